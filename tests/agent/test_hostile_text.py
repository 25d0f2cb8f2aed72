"""
Hostile text on its whole way: webhook, controller, ConfigMap, agent, real keepalived.

Each text is put into every field that a user can write, also past the webhook, because an object may be older. Each
holds a word that must not appear in the file that keepalived reads, or in its dump.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from kavip.api.group import GroupVirtualIP, KeepalivedGroup
from kavip.errors import UnsafeValue
from kavip.names import CONFIG_KEY, SPREAD_ANNOTATION, VERBATIM_ANNOTATION
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Object
from tests.admission import evaluation
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import WEB, WEB_VIP, master, started
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build
from tests.transitions.livegroup import NEW
from tests.vrrp import confparser, keywordvalues

CANARY = "canary"
_TOUCH = "/bin/touch /tmp/canary"
pytestmark = pytest.mark.netns

TEXTS = (
    f"5\n    notify {_TOUCH}",
    f"5\r\n    notify_master {_TOUCH}",
    f'5 }} vrrp_script canary {{ script "{_TOUCH}" }} vrrp_instance V9 {{ state MASTER',
    f"}}\nvrrp_instance canary {{\n    notify {_TOUCH}\n",
    "} include /tmp/canary",
    "5 # canary",
    "5 ! canary",
    "5\\# canary",
    "\\! canary",
    '"canary',
    "5 'canary'",
    '"${_RANDOM canary}"',
    "${canary}",
    "$canary=1",
    "$CANARY canary",
    "~SEQ(canary, 1, 9) $canary",
    "~LST(canary, 1, 2) x",
    "@canary 5",
    "@^canary 5",
    "include /tmp/canary",
    "5 canary",
    "5\tcanary",
    "5\x0bcanary",
    "5\x0ccanary",
    "5\x00canary",
    "5\x85canary",
    "5\u2028canary",
    "5\xa0canary",
    "{{ canary }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}canary",
    "{% include 'canary' %}",
    "{# canary #}",
    "$(touch /tmp/canary)",
    "`touch /tmp/canary`",
    f"5; {_TOUCH}",
    f"| {_TOUCH}",
    "x" * 1023 + "\ncanary",
    "x" * 1100 + " canary",
    "192.0.2.140 canary",
    "192.0.2.140/24 dev canary",
    "192.0.2.140%canary",
    "../../canary",
    "# kavip: authentication canary",
    "канарейка canary",
    "5\u202ecanary",
)


@dataclass
class Results:
    """The results: the *texts* for nodes by their origin, and the places that *passed* the webhook."""

    texts: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    unsafe: int = 0


def group(**spec: Any) -> KeepalivedGroup:
    """A group that allows everything that a group can allow."""
    return build.group(GROUP, **{**NEW, "allow_verbatim": keywordvalues.EVERY, "allow_scripts": True, **spec})


def service(key: str, address: str, *, notes: dict[str, str] | None = None, **more: Any) -> Any:
    """A Service of the group with one VIP."""
    return build.service(key, group=GROUP, type="ClusterIP", external_ips=[address], annotations=notes, **more)


def of_services(text: str) -> Iterator[tuple[str, Any]]:
    """Every Service that can hold *text*, with the place."""
    lines = [{keyword: text} for keyword in keywordvalues.KNOWN] + [{text: "5"}]
    annotations = {f"verbatimconfig {next(iter(each))}": {VERBATIM_ANNOTATION: json.dumps(each)} for each in lines}
    annotations |= {"verbatimconfig": {VERBATIM_ANNOTATION: text}, "spreadvips": {SPREAD_ANNOTATION: text}}
    for number, (place, notes) in enumerate(annotations.items()):
        yield place, service(f"bad/s{number}", f"198.18.1.{number}", notes=notes)
    yield "external IP", service("bad/external", text)
    yield "status", service("bad/status", "198.18.2.1", holds=[text])
    for place in ("name", "namespace"):
        bad = service("bad/name", "198.18.2.2")
        yield place, replace(bad, metadata=replace(bad.metadata, **{place: text}))


def of_groups(text: str) -> Iterator[tuple[str, KeepalivedGroup]]:
    """Every group that can hold *text*, with the place."""
    yield "verbatimConfig", group(verbatim_config=dict.fromkeys((*keywordvalues.KNOWN_GLOBALLY, text), text))
    for name in ("interface", "vrrp_interface", "interface_from_ip", "segment", "openshift_cluster_name"):
        yield name, group(**{name: text})
    yield "allowVerbatim", group(allow_verbatim=[text])
    yield "virtualIPs", group(virtual_ips=[GroupVirtualIP(address=text)])
    yield "interface of virtualIPs", group(virtual_ips=[GroupVirtualIP(address="203.0.113.1", interface=text)])
    yield "routerIDs", group(router_ids={text: 7, WEB: 26})


def planned(results: Results, place: str, *objects: Object) -> None:
    """Plan, and keep the text that would be mounted."""
    simulation = SimulatedCluster(cluster(service(WEB, WEB_VIP), *objects))
    results.places.add(place)
    try:
        simulation.settle(Key(KeyKind.GROUP, GROUP))
    except UnsafeValue:
        results.unsafe += 1
        return
    found = simulation.objects.configmaps.get(GROUP)
    if found and found.data:
        results.texts.setdefault(found.data[CONFIG_KEY], place)


def everything() -> Results:
    """All texts in all places."""
    results = Results()
    for text in TEXTS:
        bad = dict(of_services(text))
        results.passed |= {place for place, each in bad.items() if not evaluation.create(each, group()).refusals}
        planned(results, "Services", group(), *bad.values())
        for place, each in of_groups(text):
            if len(evaluation.create(each).refusals) < len(each.spec.verbatim_config or ("one",)):
                results.passed.add(place)
            planned(results, place, each)
        node = build.node("n9", "192.0.2.99")
        planned(results, "name of a node", group(), replace(node, metadata=replace(node.metadata, name=text)))
        planned(results, "address of a node", group(), build.node("n9", text))
    return results


def test_no_hostile_text_reaches_keepalived(pod: MakePod) -> None:
    """It is refused by admission, ignored in existing objects, and never in a file of keepalived."""
    results = everything()
    assert len(results.places) > 10
    assert results.passed == {
        "name",
        "namespace",
        "routerIDs",
        "status",
    }  # the API server validates these, or kavip writes them
    assert len(results.texts) > 4
    node = master(started(pod("n1"), next(iter(results.texts))), WEB)
    before = node.transitions()[WEB]
    for text, place in results.texts.items():
        if place == "name of a node":  # no API server stores such a node; the agent accepts no condition with it
            assert "no instance is left" in node.refuses(node.config.write(text))
        else:
            assert CANARY not in text, place
            node.runs(node.config.write(text))
            assert node.state()["leftOut"] == [], place
        read(node)
    passwords = pod("n2")
    passwords.password.parent.mkdir(parents=True, exist_ok=True)
    protected = mounts.rendered({WEB: WEB_VIP}, **mounts.WITH_PASSWORD)
    passwords.password.write_text(mounts.PASSWORD)
    started(passwords, protected, authentication=True)
    for text in TEXTS[::3]:  # all go through one pattern, and each takes two reads of the mount
        passwords.password.write_text(text, encoding="utf-8")
        passwords.wait_until(f"{text!r} is refused", lambda: passwords.state()["refused"].startswith("password: want"))
        assert CANARY not in passwords.logs()
        read(passwords)
        passwords.password.write_text(mounts.PASSWORD)
        passwords.wait_until("the right one is taken", lambda: passwords.state()["refused"] == "")
    assert master(node, WEB).transitions()[WEB] == before  # the last text may have restarted it
    assert not node.host.exec("ls", "/tmp").stdout.count("canary\n")


def read(pod: Pod) -> None:
    """Fail if a text is in keepalived's file, in its dump, or in ``/state``."""
    config = (pod.run_dir / "keepalived.conf").read_text()
    dump = (pod.run_dir / "keepalived.json").read_text()
    assert CANARY not in config + dump + json.dumps(pod.state())
    assert "notify" not in config and "script" not in config.replace("enable_script_security", "")
    blocks = {each.words[0] for each in confparser.read(config)}
    assert blocks == {"global_defs", "vrrp_instance"}
