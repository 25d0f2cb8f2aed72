"""Validation: what kavip renders is accepted; everything else is refused, and not quoted."""

import pytest

from kavip.agent.config import validate
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig, ParsedConfig, RefusedConfig
from kavip.agent.config.validate import ExaminedConfig
from kavip.api.agent import ProblemCode
from kavip.vrrp.tracking import Track
from tests.agent import mounts
from tests.agent.config.test_localize import facts

SOUND = """\
# kavip: written by kavip for KeepalivedGroup lb/edge; do not edit
global_defs {
    router_id edge
}
vrrp_instance shop/web {
    state BACKUP
    interface eth0
    virtual_router_id 7
    priority 200
    virtual_ipaddress {
        192.0.2.130/32 dev eth0
    }
}
"""


def test_a_configuration_is_read() -> None:
    """Name, VRID, interface, priority and addresses of each instance are known."""
    found = validate.read(SOUND)
    assert isinstance(found, ParsedConfig)
    (instance,) = found.instances
    assert (instance.name, instance.router_id, instance.priority, instance.family) == ("shop/web", 7, 200, 4)
    assert [str(each) for each in instance.virtual_ips] == ["192.0.2.130/32"]
    assert found.interfaces == {"eth0"}


def test_everything_that_kavip_renders_is_read() -> None:
    """Both families, excluded addresses, passwords, Shared mode, users' lines; on a node of the group and another."""
    from kavip.api.group import Instances

    several = {f"shop/s{number}": f"192.0.2.{130 + number},2001:db8:2::{130 + number}" for number in range(5)}
    texts = [
        mounts.rendered(several),
        mounts.rendered(several, nodes=1),
        mounts.rendered(several, unicast_enabled=False, **mounts.WITH_PASSWORD, advert_interval_milliseconds=1000),
        mounts.rendered(several, instances=Instances(mode="Shared", count=4)),
        mounts.rendered({}, verbatim_config={"vrrp_garp_master_delay": "3"}),
        mounts.rendered(several, allow_scripts=True, verbatim_config={"startup_script": "/bin/true -x"}),
    ]
    for text in texts:
        for node in ("n1", "n9"):
            found = localize(mounts.mounted(text, password=mounts.PASSWORD), facts(node=node))
            assert isinstance(found, LocalizedConfig), found


TRACKED = SOUND.replace(
    "vrrp_instance", 'track_file check-a {\n    file "/run/kavip/track/check-a"\n}\nvrrp_instance', 1
).replace("    virtual_ipaddress", "    track_file {\n        check-a weight -100\n    }\n    virtual_ipaddress")


def test_track_files_are_read() -> None:
    """The track files of an instance and their weights are known."""
    found = validate.read(TRACKED)
    assert isinstance(found, ParsedConfig), found
    assert found.instances[0].tracks == (Track("check-a", -100),)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("track_file check-a {", "track_file {", "line 5: a track file without a name"),
        ("track_file check-a {", "track_file A/b {", "line 5: a track file without a name"),
        ('"/run/kavip/track/check-a"', '"/etc/passwd"', "line 6: not a track file"),
        ('"/run/kavip/track/check-a"', '"/run/kavip/track/check-a" x', "line 6: not a track file"),
        ('"/run/kavip/track/check-a"\n', '"/run/kavip/track/check-a"\n    init_file 1 overwrite\n', "line 7: not a"),
        ('    file "/run/kavip/track/check-a"\n', "    weight 5\n", "line 6: not a track file"),
        ("check-a weight -100", "check-a weight -254", "instance shop/web: line 7 of the instance: a track file wants"),
        ("check-a weight -100", "check-a", "instance shop/web: line 7 of the instance: a track file wants"),
        ("check-a weight -100", "check-a weight 5 reverse", "instance shop/web: line 7 of the instance: a track file"),
        (
            "check-a weight -100",
            "check-b weight -100",
            "instance shop/web: it follows a track file that is not defined",
        ),
    ],
)
def test_other_track_files_are_refused(old: str, new: str, why: str) -> None:
    """keepalived can overwrite any file as a track file, and refuses an instance that follows an undefined one."""
    assert old in TRACKED
    found = validate.read(TRACKED.replace(old, new, 1))
    assert isinstance(found, RefusedConfig)
    assert why in found.message


@pytest.mark.parametrize("block", ["unicast_peer { x }", "virtual_ipaddress { 192.0.2.9 }", "track_file { x }"])
def test_blocks_that_kavip_reads_are_not_on_one_line(block: str) -> None:
    """keepalived reads them there too, and nothing here would know what is in them."""
    found = validate.examine(SOUND.replace("    virtual_router_id", f"    {block}\n    virtual_router_id"))
    assert isinstance(found, ExaminedConfig)
    assert found.faults["shop/web"].message.endswith("a brace that is not at the end of the line")


@pytest.mark.parametrize("twice", ["    interface eth0\n", "    unicast_peer {\n        192.0.2.12\n    }\n"])
def test_a_second_interface_or_list_of_peers_is_refused(twice: str) -> None:
    """kavip writes one; the rest of the instance is read all the same."""
    text = SOUND.replace("    interface eth0\n", "").replace(
        "    virtual_router_id", f"{twice * 2}    virtual_router_id"
    )
    found = validate.examine(text)
    assert isinstance(found, ExaminedConfig)
    assert found.faults["shop/web"].message.endswith(f"{twice.split(maxsplit=1)[0]} stands twice")
    assert [str(each) for each in found.instances[0].virtual_ips] == ["192.0.2.130/32"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("    include /etc/passwd", "never writes"),
        ("    includea /etc/shadow", "never writes"),
        ('    config_save_dir "x;id;"', "never writes"),
        ("    net_namespace other", "never writes"),
        ("    reload_file /etc/passwd", "never writes"),
        ("    use_pid_dir", "never writes"),
        ("    \\! x", "that keepalived interprets"),
        ("    router_id a # b", "that keepalived interprets"),
        ("    router_id a!b", "that keepalived interprets"),
        ("    $X=1", "that keepalived interprets"),
        ("    router_id ${_HASH}", "that keepalived interprets"),
        ("    ~SEQ(i, 1, 9) router_id $i", "that keepalived interprets"),
        ("    @n1,n2 router_id x", "does not name a node"),
        ("    @", "does not name a node"),
        ('    router_id "a', "unbalanced quote"),
        ("    router_id a }", "brace"),
        ("    router_id { a", "brace"),
        ("    x { include /etc/passwd }", "brace"),
        ("    router_id \x00a", "printable ASCII"),
        ("    router_id a\r", "printable ASCII"),
        ("    router_id\ta", "printable ASCII"),
        ("    router_id é", "printable ASCII"),
        ("    router_id " + "a" * 600, "longer than"),
        ('    "router_id" a', "not a keyword"),
        ("}\n}", "not open"),
        ("}\nvirtual_server 192.0.2.1 80 {", "brace"),
        ("}\nvirtual_server_group x {", "never writes"),
        ("}\nvrrp_script x {", "never writes"),
        ("}\nrouter_id a", "outside a block"),
        ("}\nvrrp_instance {", "without a name"),
        ("# a \\# b", "backslash"),
    ],
)
def test_what_kavip_never_writes_is_refused(line: str, why: str) -> None:
    """The message has the line's number and the reason, not the line."""
    text = SOUND.replace("    router_id edge", f"    router_id edge\n{line}")
    found = validate.read(text)
    assert isinstance(found, RefusedConfig)
    assert why in found.message
    assert "line " in found.message
    assert "passwd" not in found.message and "shadow" not in found.message


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("virtual_router_id 7", "virtual_router_id", "virtual_router_id wants a number"),
        ("virtual_router_id 7", "virtual_router_id 256", "virtual_router_id wants a number"),
        ("virtual_router_id 7", "virtual_router_id 07", "virtual_router_id wants a number"),
        ("virtual_router_id 7", "virtual_router_id 7 8", "virtual_router_id wants a number"),
        ("    virtual_router_id 7\n", "", "virtual_router_id is missing"),
        ("    interface eth0\n", "", "interface is missing"),
        ("interface eth0", "interface", "interface wants one name"),
        ("interface eth0", "interface eth0 eth1", "interface wants one name"),
        ("priority 200", "priority 255", "priority wants a number"),
        ("192.0.2.130/32", "192.0.2.130/", "prefix length"),
        ("192.0.2.130/32", "192.0.2.130/0", "prefix length"),
        ("192.0.2.130/32", "192.0.2.130/33", "prefix length"),
        ("192.0.2.130/32", "::/129", "prefix length"),
        ("192.0.2.130/32", "192.0.2.300/32", "not an IP address"),
        (
            "        192.0.2.130/32 dev eth0\n",
            "        192.0.2.130/32 dev eth0\n        192.0.2.130/24 dev eth0\n",
            "virtual IP 192.0.2.130 stands twice",
        ),
        ("global_defs {\n    router_id edge\n}\n", "", "no global_defs"),
    ],
)
def test_what_keepalived_would_misread_is_refused(old: str, new: str, why: str) -> None:
    """Missing and extra words, numbers out of range and duplicate addresses are found without keepalived."""
    assert old in SOUND
    found = validate.read(SOUND.replace(old, new))
    assert isinstance(found, RefusedConfig)
    assert why in found.message


def test_an_unfinished_configuration_is_refused() -> None:
    """A truncated text has a block that is never closed, or no global_defs."""
    for length in range(0, len(SOUND) - 2, 7):
        assert isinstance(validate.read(SOUND[:length]), RefusedConfig)


def test_an_instance_that_stands_twice_is_refused() -> None:
    """keepalived reports it only as a remark."""
    instance = SOUND[SOUND.index("vrrp_instance") :]
    other = instance.replace("130", "131").replace("router_id 7", "router_id 8")
    found = validate.read(SOUND + other)
    assert found == RefusedConfig(ProblemCode.CONFIG_INVALID, "instance shop/web stands twice")


INSTANCE = SOUND[SOUND.index("vrrp_instance") :]
CART = INSTANCE.replace("shop/web", "shop/cart").replace("130", "131").replace("router_id 7", "router_id 8")


def faults_of(text: str, settled: ParsedConfig | None = None) -> dict[str, str]:
    """The messages of the faulty instances of *text*, by name."""
    found = validate.examine(text, settled=settled or ParsedConfig())
    assert isinstance(found, ExaminedConfig), found
    return {name: fault.message for name, fault in found.faults.items()}


def test_a_fault_belongs_to_its_instance() -> None:
    """Other instances are read; the line number counts from the instance's first line."""
    spoilt = CART.replace("    state BACKUP", "    state ~BACKUP")
    for text, line in ((SOUND + spoilt, 2), (SOUND.replace(INSTANCE, spoilt + INSTANCE), 2)):
        assert faults_of(text) == {"shop/cart": f"line {line} of the instance: a character that keepalived interprets"}
        found = validate.examine(text)
        assert isinstance(found, ExaminedConfig)
        assert [(each.name, each.router_id) for each in found.instances] == [("shop/cart", 8), ("shop/web", 7)]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    virtual_router_id 8\n", "", "virtual_router_id is missing"),
        ("    state BACKUP", "    include /etc/passwd", "line 2 of the instance: a keyword that kavip never writes"),
        ("    state BACKUP", "    }", "line 3 of the instance: a line behind the end of the block"),
        ("    state BACKUP", "    }\n    vrrp_instance b {", "line 3 of the instance: a line behind the end"),
        ("    state BACKUP", "    x {", "line 9 of the instance: a block vrrp_instance is never closed"),
        ("131/32", "130/32", "virtual IP 192.0.2.130 stands in another instance too"),
        ("router_id 8", "router_id 7", "virtual_router_id 7 stands in another instance too"),
    ],
)
def test_a_faulty_instance_does_not_affect_others(old: str, new: str, why: str) -> None:
    """No text of a user has an effect outside its block."""
    for text in (SOUND + CART.replace(old, new), SOUND.replace(INSTANCE, INSTANCE + CART.replace(old, new))):
        found = faults_of(text)
        assert why in found["shop/cart"]
        assert "shop/web" not in found


def test_the_instance_that_has_an_address_keeps_it() -> None:
    """Of two instances with the same address, the new one is faulty, in any order."""
    settled = validate.read(SOUND)
    assert isinstance(settled, ParsedConfig)
    thief = CART.replace("131", "130").replace("shop/cart", "shop/a")
    text = SOUND.replace(INSTANCE, thief + INSTANCE)
    assert list(faults_of(text)) == ["shop/web"]
    assert list(faults_of(text, settled)) == ["shop/a"]


def test_a_fault_outside_instances_refuses_everything() -> None:
    """There is no instance to exclude."""
    for text in (SOUND.replace("router_id edge", "include x"), SOUND + "    vrrp_instance x {\n}\n", SOUND + "}\n"):
        assert isinstance(validate.examine(text), RefusedConfig)
