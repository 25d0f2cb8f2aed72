"""
Groups whose configuration is in ``golden/``, and functions that render a group.

After an intended change: ``python -m tests.vrrp.samples`` writes the golden files again; read the difference.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import ConfigTemplateRef, GroupVirtualIP, Instances, KeepalivedGroup, PasswordAuth, SecretRef
from kavip.api.service import Service
from kavip.vrrp import config, keys, routerids
from kavip.vrrp.configtemplate import AddedLines, with_lines
from kavip.vrrp.grammar import Line
from kavip.vrrp.instances import Instance, Model, model_of
from kavip.vrrp.members import Peer, member_of
from kavip.vrrp.running import running_instances
from tests.support import build

GOLDEN = Path(__file__).parent / "golden"
NEW: dict[str, Any] = {
    "unicast_enabled": True,
    "segment": "default",
    "vrrp_version": 3,
    "advert_interval_milliseconds": 200,
}
"""The defaults of a new group."""
STEADY = {**NEW, "advert_interval_milliseconds": 1000}
"""A new group that tolerates a pause of three seconds, for tests in which no transition may happen by accident."""


def peer_of(node: Node) -> Peer:
    """*node* as a settled peer: every node listens to it at its internal addresses."""
    return Peer(node.metadata.name, node.internal_ip(4), node.internal_ip(6))


def nodes(count: int, *, ipv6: bool = True) -> list[Peer]:
    """
    Nodes n1, n2, ... at 192.0.2.11, 192.0.2.12, ... and 2001:db8:2::11, ..., the addresses of the testbed's segment.
    """
    found = []
    for number in range(1, count + 1):
        more = [f"2001:db8:2::{10 + number}"] if ipv6 else []
        found.append(peer_of(build.node(f"n{number}", f"192.0.2.{10 + number}", *more)))
    return found


def shared(count: int = 16) -> Instances:
    """Shared mode."""
    return Instances(mode="Shared", count=count)


def model(
    group: KeepalivedGroup,
    services: Sequence[Service],
    peers: Sequence[Peer],
    *,
    before: config.Config | None = None,
) -> Model:
    """The model, with VRIDs as the controller assigns them; *before* is the configuration that the nodes run."""
    members = [member_of(service, group) for service in services]
    held, blacklist = group.status.router_ids or {}, routerids.blacklist_of(group.spec)
    wanted, pinned = keys.wanted_keys(group, members), keys.pinned_ids(group)
    ids = routerids.assign(held, wanted, blacklist=blacklist, taken=frozenset(), pinned=pinned)
    running = running_instances(before.text if before else "")
    anchors = {name: each.identity.anchor.address for name, each in running.items()}
    return model_of(group, members, peers, ids, anchors=anchors)


def named(found: Model) -> dict[str, Instance]:
    """The instances of a model by name."""
    return {instance.name: instance for instance in found.instances}


def vips(instance: Instance) -> list[str]:
    """The VIPs of an instance, its anchor first."""
    return [str(vip.address) for vip in (instance.anchor, *instance.excluded)]


def conf(group: KeepalivedGroup, services: Sequence[Service], peers: Sequence[Peer], **more: Any) -> str:
    """The text."""
    return config.render(model(group, services, peers, **more)).text


def annotated(key: str, *addresses: str, verbatim: str = "", spread: bool = False, **more: Any) -> Service:
    """A Service that holds *addresses*."""
    notes = {names.VERBATIM_ANNOTATION: verbatim, names.SPREAD_ANNOTATION: "true" if spread else ""}
    return build.service(key, holds=addresses, annotations={key: text for key, text in notes.items() if text}, **more)


def plain() -> str:
    """A new group: unicast, version 3, one Service per kind of address list."""
    services = [annotated("shop/web", "192.0.2.130"), annotated("shop/many", "192.0.2.131", "192.0.2.132")]
    return conf(build.group(**NEW), services, nodes(3))


def predecessor() -> str:
    """A group of keepalived-operator: multicast, version 2, with a password and VRIDs in its status."""
    password = PasswordAuth(secret_ref=SecretRef(name="vrrp"))
    held = {"shop/web": 7, "shop/gone": 1, "shop/spread/192.0.2.141": 2}
    group = build.group(router_ids=held, password_auth=password, blacklist_router_ids=[1, 3])
    services = [
        annotated("shop/web", "192.0.2.140", verbatim='{"track_src_ip": "", "track_interface": "{ eth0 }"}'),
        annotated("shop/spread", "192.0.2.141", "192.0.2.142", spread=True),
    ]
    return conf(group, services, nodes(2, ipv6=False))


def dual() -> str:
    """Dual stack, with VRRP on an interface of its own; one node has no IPv6 address."""
    group = build.group(**NEW, vrrp_interface="eth1", preempt_delay_seconds=5)
    peers = [*nodes(2), Peer("n3", nodes(3)[2].ipv4)]
    return conf(group, [annotated("shop/web", "192.0.2.130", "2001:db8:2::130")], peers)


def shared_mode() -> str:
    """Shared mode: the Shared instances have anchors of their own."""
    services = [annotated(f"shop/s{number}", f"192.0.2.{140 + number}") for number in range(8)]
    services.append(annotated("shop/six", "2001:db8:2::140"))
    local = annotated("shop/local", "192.0.2.160", external_traffic_policy="Local")
    return conf(build.group(**NEW, instances=shared(3)), [*services, local], nodes(2))


def lone() -> str:
    """One node: unicast has no peer, and must not become multicast."""
    return conf(build.group(**NEW), [annotated("shop/web", "192.0.2.130", "2001:db8:2::130")], nodes(1))


def extras() -> str:
    """VIPs of the group itself, lines of the group and of a Service, programs."""
    group = build.group(
        **NEW,
        no_preempt=True,
        virtual_ips=[GroupVirtualIP(address="192.0.2.200/24"), GroupVirtualIP(address="2001:db8:2::200/64")],
        verbatim_config={"router_id": "border", "vrrp_garp_master_refresh": "60", "startup_script": "/bin/echo up"},
        allow_scripts=True,
        allow_verbatim=["dont_track_primary", "track_interface"],
    )
    wanted = '{"track_interface": "{ eth1 weight -20 }", "preempt_delay": "2.5", "dont_track_primary": ""}'
    return conf(group, [annotated("shop/web", "192.0.2.130", verbatim=wanted)], nodes(2))


def templated() -> str:
    """Lines of a template in global_defs and in instances: flags, values, and a block."""
    group = build.group(**NEW, allow_verbatim=["track_interface"], config_template_ref=ConfigTemplateRef("lines"))
    wanted = model(group, [annotated("shop/web", "192.0.2.130", "2001:db8:2::130")], nodes(2))
    added = AddedLines(
        (Line("vrrp_garp_master_refresh", ("60",)), Line("vrrp_min_garp")),
        {
            "shop/web": (Line("accept"), Line("track_interface", block=("eth1", "weight", "-20"))),
            "shop/web/v6": (Line("garp_master_delay", ("2",)),),
        },
    )
    return config.render(with_lines(group, wanted, added)).text


SAMPLES: dict[str, Callable[[], str]] = {
    "plain": plain,
    "predecessor": predecessor,
    "dual": dual,
    "shared": shared_mode,
    "lone": lone,
    "extras": extras,
    "templated": templated,
}


def main() -> None:
    """Write the golden files."""
    for name, sample in SAMPLES.items():
        (GOLDEN / f"{name}.conf").write_text(sample(), encoding="ascii")


if __name__ == "__main__":
    main()
