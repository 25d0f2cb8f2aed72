"""The short decision of admission about a new Service agrees with the whole one."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, breaks_sharing, decide, gets_first_addresses
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.deciding import EDGE, FULL, LAB, ours
from tests.ipam.simulatedcontroller import entered
from tests.ipam.test_histories import POOLS, services
from tests.support.build import service

HELD = st.sampled_from([(), (), ("192.0.2.0",), ("192.0.2.1", "2001:db8::1"), ("198.51.100.0",), ("10.9.9.9",)])
HOLDERS = [("z/0", "192.0.2.0"), ("z/1", "192.0.2.1"), ("z/2", "2001:db8::"), ("z/3", "198.51.100.0")]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Service, list[Service]]:
    """A Service, with or without addresses from kavip or another controller, beside others that have some."""
    drawn, holds = draw(services("a/p")), draw(HELD)
    holding = (ours if draw(st.booleans()) else service)("a/p", holds=list(holds)).status
    subject = msgspec.structs.replace(drawn, status=holding) if holds else drawn
    return subject, [service(key, holds=[held]) for key, held in draw(st.sets(st.sampled_from(HOLDERS)))]


@given(worlds())
def test_what_gets_its_first_addresses_is_assigned_all_of_them_without_remarks(
    world: tuple[Service, list[Service]],
) -> None:
    """Then the whole decision has no refusal, no stranded address, and nothing to keep; and no sharing ends."""
    subject, others = world
    pools = Pools.of(POOLS)
    ledger, (request, _) = entered(pools, (subject, *others)), read_request(subject)
    if gets_first_addresses(request, pools, ledger):
        decided = decide(request, pools, ledger)
        assert isinstance(decided, Allocation)
        assert (decided.reason, decided.refusal, request.lacking(decided.addresses)) == (Reason.ASSIGNED, None, ())
        assert breaks_sharing(request, pools, ledger) is None


def test_it_holds_for_most_new_services_only() -> None:
    """A Service that has an address, requests one by name, or finds none is decided as a whole."""
    pools = Pools.of((EDGE, LAB))

    def gets(subject: Service, *others: Service) -> bool:
        return gets_first_addresses(read_request(subject)[0], pools, entered(pools, (subject, *others)))

    assert gets(service("a/p"))
    assert gets(service("a/p", pool="edge"))
    assert not gets(service("a/p", pool="edge"), *FULL)
    assert not gets(service("a/p", pool="gone"))
    assert not gets(service("a/p", wants="192.0.2.129"))
    assert not gets(ours("a/p", ["192.0.2.129"]))
