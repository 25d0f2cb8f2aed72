"""Several addresses per family for one Service, with a real API server, the webhook and kubectl."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from tests.app.conftest import Installation, a_group, a_pool, a_service, wait_for

pytestmark = pytest.mark.apiserver

COUNT, POOL, ADDRESSES = "kavip.io/address-count", "kavip.io/pool", "kavip.io/addresses"
FIELD = f"metadata.annotations[{COUNT}]"
SPREAD = "keepalived-operator.redhat-cop.io/spreadvips"
GROUP = "keepalived-operator.redhat-cop.io/keepalivedgroup"
PREFER = {"ipFamilyPolicy": "PreferDualStack"}


@pytest.fixture(scope="module")
def kavip(prepared: ControlPlane) -> Iterator[Installation]:
    """Webhook and controller, with a group of each mode."""
    made = Installation(prepared)
    try:
        made.start()
        spread = a_group("spread", instances={"mode": "Shared", "count": 2})
        made.apply_and_wait(a_group("edge", default=True), spread)
        yield made
    finally:
        made.close()


def counted(name: str, pool: str, number: int | str, *, wants: str = "", **spec: Any) -> dict[str, Any]:
    """A Service that requests this *number* of addresses per family; "": without the annotation."""
    notes = {POOL: pool, COUNT: str(number), ADDRESSES: wants, **spec.pop("annotations", {})}
    return a_service(name, annotations={key: value for key, value in notes.items() if value}, **spec)


def gets(kavip: Installation, name: str, *addresses: str) -> None:
    """Wait until Service *name* has exactly these addresses in this order."""
    wait_for(f"{name} has {addresses}", lambda: kavip.addresses(name) == list(addresses))


def refusal(kavip: Installation, service: dict[str, Any]) -> str:
    """What kubectl prints, because *service* is refused."""
    done = kavip.try_apply(service)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_a_service_grows_and_shrinks(kavip: Installation) -> None:
    """A higher number adds addresses, a lower one takes the last; without the annotation one stays."""
    kavip.apply_and_wait(a_pool("grow", "198.51.100.0/28", autoAssign=False))
    kavip.apply(counted("grow", "grow", ""))
    gets(kavip, "grow", "198.51.100.0")
    kavip.apply(counted("grow", "grow", 3))
    gets(kavip, "grow", "198.51.100.0", "198.51.100.1", "198.51.100.2")
    kavip.apply(counted("grow", "grow", 2))
    gets(kavip, "grow", "198.51.100.0", "198.51.100.1")
    kavip.apply(counted("grow", "grow", ""))
    gets(kavip, "grow", "198.51.100.0")
    wait_for("the record is that of one", lambda: COUNT not in kavip.condition("grow")["message"])


def test_named_addresses_count_and_stay(kavip: Installation) -> None:
    """They are among the number, and shrinking does not take them."""
    kavip.apply_and_wait(a_pool("named", "198.51.100.16/28", autoAssign=False))
    kavip.apply(counted("named", "named", 3, wants="198.51.100.20"))
    gets(kavip, "named", "198.51.100.20", "198.51.100.16", "198.51.100.17")
    kavip.apply(counted("named", "named", 2, wants="198.51.100.17"))
    gets(kavip, "named", "198.51.100.20", "198.51.100.17")
    text = refusal(kavip, counted("named", "named", 1, wants="198.51.100.17,198.51.100.18"))
    assert "has 2 IPv4 addresses; want at most one per family" in text


def test_both_families_have_the_number(kavip: Installation) -> None:
    """In the order of the families; at most 32 over both."""
    kavip.apply_and_wait(a_pool("dual", "198.51.100.32/28", "2001:db8:7::/120", autoAssign=False))
    kavip.apply(counted("dual", "dual", 2, **PREFER))
    gets(kavip, "dual", "198.51.100.32", "198.51.100.33", "2001:db8:7::", "2001:db8:7::1")
    text = refusal(kavip, counted("dual", "dual", 17, **PREFER))
    assert FIELD in text
    assert "'17': 34 addresses over 2 families; want at most 16 per family, 32 together" in text
    assert "want a number from 1 to 32" in refusal(kavip, counted("dual", "dual", 33))
    gets(kavip, "dual", "198.51.100.32", "198.51.100.33", "2001:db8:7::", "2001:db8:7::1")


def test_a_pool_without_room_gives_what_it_has(kavip: Installation) -> None:
    """kubectl prints a warning, the condition says how many are missing, and they follow."""
    kavip.apply_and_wait(a_pool("room", "198.51.100.48/31", autoAssign=False))
    done = kavip.try_apply(counted("room", "room", 3))
    assert done.returncode == 0, done.stderr
    assert "2 of 3 IPv4 addresses: pool room has no more" in done.stderr
    gets(kavip, "room", "198.51.100.48", "198.51.100.49")
    wait_for("it says what is missing", lambda: kavip.condition("room").get("reason") == "PoolExhausted")
    assert kavip.condition("room")["status"] == "False"
    kavip.apply(a_pool("room", "198.51.100.48/30", autoAssign=False))
    gets(kavip, "room", "198.51.100.48", "198.51.100.49", "198.51.100.50")
    wait_for("nothing is missing", lambda: kavip.condition("room").get("status") == "True")


def test_a_number_beyond_the_quota_is_refused(kavip: Installation) -> None:
    """For a named pool; what the Service has stays."""
    kavip.apply_and_wait(a_pool("quota", "198.51.100.64/28", autoAssign=False, maxPerNamespace=2))
    kavip.apply(counted("quota", "quota", 2))
    gets(kavip, "quota", "198.51.100.64", "198.51.100.65")
    text = refusal(kavip, counted("quota", "quota", 3))
    assert "may hold no more addresses of pool quota (maxPerNamespace)" in text
    assert "forbidden" in text.lower()
    gets(kavip, "quota", "198.51.100.64", "198.51.100.65")


def test_addresses_of_a_spread_service_have_vrids_of_their_own(kavip: Installation) -> None:
    """In a Shared group too: beside the Shared instances there is one for each address."""
    kavip.apply_and_wait(a_pool("spread", "198.51.100.80/28", autoAssign=False))
    kavip.apply(counted("spread", "spread", 3, annotations={GROUP: "lb/spread", SPREAD: "true"}))
    gets(kavip, "spread", "198.51.100.80", "198.51.100.81", "198.51.100.82")
    own = [f"shop/spread/198.51.100.{number}" for number in (80, 81, 82)]

    def held() -> list[str]:
        found = kavip.get("keepalivedgroup", "spread", "-n", "lb") or {}
        return sorted(found.get("status", {}).get("routerIDs", {}))

    wait_for("each address has a VRID", lambda: held() == ["group/0", "group/1", *own])
    kavip.apply(counted("spread", "spread", 1, annotations={GROUP: "lb/spread", SPREAD: "true"}))
    wait_for("two are free again", lambda: held() == ["group/0", "group/1", own[0]])
