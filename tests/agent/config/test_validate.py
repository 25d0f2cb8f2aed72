"""The shape of configurations: what kavip renders is read, everything else is refused without being quoted."""

import pytest

from kavip.agent.config import validate
from kavip.agent.config.localize import localize
from kavip.agent.config.model import Configuration, Localized, Refused
from kavip.agent.config.validate import Examined
from kavip.vrrp.tracking import Track
from tests.agent import scene
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
    """Name, VRID, interface, priority and addresses of each instance are known afterwards."""
    found = validate.read(SOUND)
    assert isinstance(found, Configuration)
    (instance,) = found.instances
    assert (instance.name, instance.router_id, instance.priority, instance.family) == ("shop/web", 7, 200, 4)
    assert [str(each) for each in instance.virtual_ips] == ["192.0.2.130/32"]
    assert found.interfaces == {"eth0"}


def test_everything_that_kavip_renders_is_read() -> None:
    """Both families, excluded lists, passwords, Shared mode and users' own lines pass, on a node and on a stranger."""
    from kavip.api.group import Instances

    several = {f"shop/s{number}": f"192.0.2.{130 + number},2001:db8:2::{130 + number}" for number in range(5)}
    texts = [
        scene.rendered(several),
        scene.rendered(several, nodes=1),
        scene.rendered(several, unicast_enabled=False, **scene.WITH_PASSWORD, advert_interval_milliseconds=1000),
        scene.rendered(several, instances=Instances(mode="Shared", count=4)),
        scene.rendered({}, verbatim_config={"vrrp_garp_master_delay": "3"}),
        scene.rendered(several, allow_scripts=True, verbatim_config={"startup_script": "/bin/true -x"}),
    ]
    for text in texts:
        for node in ("n1", "n9"):
            found = localize(scene.mounted(text, password=scene.PASSWORD), facts(node=node))
            assert isinstance(found, Localized), found


TRACKED = SOUND.replace(
    "vrrp_instance", 'track_file check-a {\n    file "/run/kavip/track/check-a"\n}\nvrrp_instance', 1
).replace("    virtual_ipaddress", "    track_file {\n        check-a weight -100\n    }\n    virtual_ipaddress")


def test_track_files_are_read() -> None:
    """Which files an instance follows, and with which weight, is known afterwards."""
    found = validate.read(TRACKED)
    assert isinstance(found, Configuration), found
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
    """keepalived can be told to overwrite any file, and refuses an instance that follows what is not defined."""
    assert old in TRACKED
    found = validate.read(TRACKED.replace(old, new, 1))
    assert isinstance(found, Refused)
    assert why in found.reason


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("    include /etc/passwd", "never writes"),
        ("    includea /etc/shadow", "never writes"),
        ('    config_save_dir "x;id;"', "never writes"),
        ("    net_namespace other", "never writes"),
        ("    reload_file /etc/passwd", "never writes"),
        ("    use_pid_dir", "never writes"),
        ("    \\! x", "meaning of its own"),
        ("    router_id a # b", "meaning of its own"),
        ("    router_id a!b", "meaning of its own"),
        ("    $X=1", "meaning of its own"),
        ("    router_id ${_HASH}", "meaning of its own"),
        ("    ~SEQ(i, 1, 9) router_id $i", "meaning of its own"),
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
    """The line's number and the reason are told, the line is not."""
    text = SOUND.replace("    router_id edge", f"    router_id edge\n{line}")
    found = validate.read(text)
    assert isinstance(found, Refused)
    assert why in found.reason
    assert "line " in found.reason
    assert "passwd" not in found.reason and "shadow" not in found.reason


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
    """Missing and extra words, numbers out of range and doubled addresses are found without keepalived."""
    assert old in SOUND
    found = validate.read(SOUND.replace(old, new))
    assert isinstance(found, Refused)
    assert why in found.reason


def test_an_unfinished_configuration_is_refused() -> None:
    """A text that was cut off has a block that is never closed, or no global_defs."""
    for length in range(0, len(SOUND) - 2, 7):
        assert isinstance(validate.read(SOUND[:length]), Refused)


def test_an_instance_that_stands_twice_is_refused() -> None:
    """keepalived would say so only in passing."""
    instance = SOUND[SOUND.index("vrrp_instance") :]
    other = instance.replace("130", "131").replace("router_id 7", "router_id 8")
    found = validate.read(SOUND + other)
    assert found == Refused("instance shop/web stands twice")


INSTANCE = SOUND[SOUND.index("vrrp_instance") :]
CART = INSTANCE.replace("shop/web", "shop/cart").replace("130", "131").replace("router_id 7", "router_id 8")


def faults_of(text: str, settled: Configuration | None = None) -> dict[str, str]:
    """What is wrong with each instance of *text*, which is sound outside them."""
    found = validate.examine(text, settled=settled or Configuration())
    assert isinstance(found, Examined), found
    return {name: fault.reason for name, fault in found.faults.items()}


def test_a_fault_is_its_instances_own() -> None:
    """The neighbour is read whole; the line is counted in the instance, so that no neighbour changes the message."""
    spoilt = CART.replace("    state BACKUP", "    state ~BACKUP")
    for text, line in ((SOUND + spoilt, 2), (SOUND.replace(INSTANCE, spoilt + INSTANCE), 2)):
        assert faults_of(text) == {
            "shop/cart": f"line {line} of the instance: a character that keepalived gives a meaning of its own"
        }
        found = validate.examine(text)
        assert isinstance(found, Examined)
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
def test_what_is_wrong_with_an_instance_spares_the_others(old: str, new: str, why: str) -> None:
    """Whatever a tenant could bring about stays within the block."""
    for text in (SOUND + CART.replace(old, new), SOUND.replace(INSTANCE, INSTANCE + CART.replace(old, new))):
        found = faults_of(text)
        assert why in found["shop/cart"]
        assert "shop/web" not in found


def test_who_has_an_address_keeps_it() -> None:
    """Of two instances that want the same, the newcomer is at fault, wherever it stands in the text."""
    settled = validate.read(SOUND)
    assert isinstance(settled, Configuration)
    thief = CART.replace("131", "130").replace("shop/cart", "shop/a")
    text = SOUND.replace(INSTANCE, thief + INSTANCE)
    assert list(faults_of(text)) == ["shop/web"]
    assert list(faults_of(text, settled)) == ["shop/a"]


def test_what_is_wrong_outside_instances_is_nobodys_fault() -> None:
    """All of it is refused."""
    for text in (SOUND.replace("router_id edge", "include x"), SOUND + "    vrrp_instance x {\n}\n", SOUND + "}\n"):
        assert isinstance(validate.examine(text), Refused)
