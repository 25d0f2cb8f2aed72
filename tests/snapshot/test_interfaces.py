"""The interfaces that pools name for the addresses of Services."""

from kavip import names
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from tests.support import build


def test_the_interface_of_an_address_is_a_change_of_its_services_only() -> None:
    """Of an assigned address and of an external IP; pools come and go, are edited, and fall out of force."""
    holds, names_ip = ("192.0.2.130",), ("198.51.100.5",)
    web = build.service("shop/web", group="lb/edge", holds=holds)
    raw = build.service("shop/raw", group="lb/edge", type="ClusterIP", external_ips=list(names_ip))
    api = build.service("shop/api", group="lb/edge", holds=["192.0.2.9"])
    snapshot = Snapshot.from_objects([build.group(), web, raw, api])
    asked: list[str] = []

    def make(service: Service) -> str:
        asked.append(service.key)
        places = (snapshot.interface_of(each) for each in service.virtual_ips)
        return ",".join(each.interface if each else "-" for each in places)

    def ask() -> dict[str, str]:
        asked.clear()
        (found,) = snapshot.derived("lb/edge", None, make, lambda _: "").values()
        return dict(zip(("api", "raw", "web"), found, strict=True))

    assert ask() == {"api": "-", "raw": "-", "web": "-"}
    snapshot.put(build.pool("dmz", "198.51.100.0/24", interface="vlan20"))
    assert ask() == {"api": "-", "raw": "vlan20", "web": "-"}
    assert asked == ["shop/raw"]
    snapshot.put(build.pool("edge", "192.0.2.128/25", interface="vlan30"))
    assert ask() == {"api": "-", "raw": "vlan20", "web": "vlan30"}
    assert asked == ["shop/web"]
    snapshot.put(build.pool("edge", "192.0.2.128/25", interface="vlan30", priority=7))
    assert ask() and asked == []
    snapshot.put(build.pool("edge", "192.0.2.128/25", interface="vlan30", priority=-1))  # not in force any more
    assert ask() and asked == []
    snapshot.put(build.pool("dmz", "198.51.100.0/24", interface="vlan40"))
    assert (ask()["raw"], asked) == ("vlan40", ["shop/raw"])
    snapshot.drop(names.VIP_POOL, "dmz")
    assert (ask()["raw"], asked) == ("-", ["shop/raw"])
