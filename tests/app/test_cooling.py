"""Cool-down on the real API server: what is freed rests, for others only, and over the death of the controller."""

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, wait_for

pytestmark = pytest.mark.apiserver


def furnish(installation: Installation, *addresses: str, seconds: int) -> None:
    """A default group and a pool with cool-down, of which kavip knows."""
    installation.applied(a_pool("edge", *addresses, cooldownSeconds=seconds), a_group("edge", default=True))
    for subject in (["vippool", "edge"], ["keepalivedgroup", "edge", "-n", "lb"]):
        wait_for(
            f"kavip knows {subject}",
            lambda subject=subject: installation.get(*subject).get("status", {}).get("conditions"),
        )


def cooling(installation: Installation) -> list[dict[str, str]]:
    """``status.cooling`` of the pool."""
    found: list[dict[str, str]] = installation.get("vippool", "edge")["status"].get("cooling", [])
    return found


def given(installation: Installation, name: str) -> list[str]:
    """The addresses of a Service, waited for."""
    found: list[str] = wait_for(f"{name} has an address", lambda: installation.addresses(name))
    return found


def delete(installation: Installation, name: str) -> dict[str, str]:
    """Delete a Service; the rest that follows, as soon as status tells of it."""
    installation.plane.kubectl("delete", "service", name, "-n", "shop")
    who = f"shop/{name}"
    found: dict[str, str] = wait_for(
        f"what {who} freed rests", lambda: next((each for each in cooling(installation) if each["service"] == who), {})
    )
    return found


def test_a_freed_address_rests_and_comes_back(installation: Installation) -> None:
    """Others get another one, or wait and hear until when; the Service that freed it has it at once."""
    installation.start()
    furnish(installation, "192.0.2.128/31", seconds=3600)
    installation.applied(a_service("web"))
    assert given(installation, "web") == ["192.0.2.128"]
    rest = delete(installation, "web")
    assert rest["address"] == "192.0.2.128"
    done = installation.apply(a_service("wish", annotations={"kavip.io/addresses": "192.0.2.128"}))
    assert done.returncode == 0, done.stderr
    words = f"address 192.0.2.128 rests until {rest['until']} for Service shop/web, which freed it"
    assert words in done.stderr
    installation.applied(a_service("other"))
    assert given(installation, "other") == ["192.0.2.129"]
    told = wait_for("the wish is told", lambda: installation.condition("wish"))
    assert (told["reason"], told["message"].startswith(words)) == ("AddressInUse", True)
    assert installation.get("vippool", "edge")["status"]["ipv4"] == {"total": 2, "assigned": 1, "available": 0}
    installation.applied(a_service("web"))
    assert given(installation, "web") == ["192.0.2.128"]
    wait_for("nothing rests any more", lambda: not cooling(installation))
    wait_for("the wish hears of it", lambda: "used by Service shop/web" in installation.condition("wish")["message"])


def test_a_rest_outlives_the_controller_and_ends_at_its_time(installation: Installation) -> None:
    """Killed and started again, it gives the address to who waits when the rest is over, and not before."""
    first = installation.start("--lease-seconds=3", webhook=False)
    furnish(installation, "192.0.2.128/32", seconds=10)
    installation.applied(a_service("web"))
    given(installation, "web")
    rest = delete(installation, "web")
    first.kill()
    installation.applied(a_service("next"))
    second = installation.start("--lease-seconds=3", webhook=False)
    wait_for("it leads", lambda: second.metric("kavip_leader") == 1.0)
    wait_for("next is told", lambda: installation.condition("next"))
    assert given(installation, "next") == ["192.0.2.128"]
    assert installation.condition("next")["lastTransitionTime"] >= rest["until"]
    wait_for("nothing rests any more", lambda: not cooling(installation))
