"""After a change, every waiting Service that can now be served is requeued."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import settle, waits_for
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from tests.ipam.deciding import ours
from tests.support.build import pool, service
from tests.support.examples import examples

SHARE = {names.SHARING_KEY_ANNOTATION: "web"}
FOUR = ("192.0.2.0", "192.0.2.1", "198.51.100.0")
SIX = ("2001:db8::", "2001:db8::1", "2001:db8:1::")
STACKS: tuple[dict[str, Any], ...] = (
    {"families": ("IPv4",)},
    {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"},
    {"families": ("IPv6", "IPv4"), "ip_family_policy": "PreferDualStack"},
    {"families": ("IPv6", "IPv4"), "ip_family_policy": "RequireDualStack"},
)


@st.composite
def pools(draw: st.DrawFn) -> Pools:
    """Two small pools, one of which must be named; perhaps with a quota or something excluded."""
    rules: dict[str, Any] = draw(st.sampled_from(({}, {}, {"max_per_namespace": 1}, {"exclude": [FOUR[0]]})))
    other = draw(st.sampled_from((["198.51.100.0"], ["198.51.100.0", SIX[2]])))
    return Pools.of([pool("edge", "192.0.2.0/31", "2001:db8::/127", **rules), pool("lab", *other, auto_assign=False)])


@st.composite
def subjects(draw: st.DrawFn) -> Service:
    """A Service with random requests, with or without addresses."""
    stack = draw(st.sampled_from(STACKS))
    notes = draw(st.sampled_from(({}, {}, SHARE, {names.REASSIGN_ANNOTATION: "true"})))
    if number := draw(st.sampled_from(("", "", "2", "3"))):
        notes = {**notes, names.COUNT_ANNOTATION: number}
    four = draw(st.sampled_from(((), *((each,) for each in FOUR), FOUR[:2])))
    six = draw(st.sampled_from(((), (), (), *((each,) for each in SIX), SIX[:2])))
    holds = [*four, *six]
    asks = {"pool": draw(st.sampled_from(("", "edge", "lab"))), "wants": draw(st.sampled_from(("",) * 6 + FOUR))}
    return ours("a/web", holds, annotations=notes, **stack, **asks)


@st.composite
def holders(draw: st.DrawFn) -> list[Service]:
    """Other Services, which hold addresses."""
    return [
        service(
            f"{draw(st.sampled_from('ab'))}/h{place}",
            holds=[address],
            families=("IPv6" if ":" in address else "IPv4",),
            annotations=draw(st.sampled_from((None, SHARE))),
        )
        for place, address in enumerate((*FOUR, *SIX))
        if draw(st.integers(0, 5))
    ]


def held(subject: Service, ledger: Ledger, over: Pools) -> set[Any]:
    """Plan *subject*; its addresses afterwards. It waits for missing ones."""
    outcome = settle(subject, over, ledger)
    request, _ = read_request(subject)
    addresses = () if isinstance(outcome, Refusal) else outcome.addresses
    if set(addresses) != set(ledger.held(subject.key) or ()):
        ledger.expect(subject.key, addresses, resource_version="1")
    ledger.wait(request, waits_for(request, outcome, over))
    return set(addresses)


@pytest.mark.slow
@examples(500, deadline=None, derandomize=True)
@given(st.data())
def test_every_service_that_can_be_served_is_requeued(data: st.DataObject) -> None:
    """
    An address or a port of a shared address is freed. A plan of a Service that was not requeued would change nothing.
    """
    over = data.draw(pools())
    ledger, subject = Ledger(over), data.draw(subjects())
    others = data.draw(holders())
    for each in (subject, *others):
        ledger.observe(each.key, each)
    before = held(subject, ledger, over)
    ledger.drain_requeues()
    for each in others:
        match data.draw(st.sampled_from(("stays", "goes", "uses another port"))):
            case "goes":
                ledger.observe(each.key, None)
            case "uses another port":
                notes, held_ = each.metadata.annotations, [str(address) for address in each.ingress_addresses]
                families = each.spec.ip_families or ()
                edited = service(each.key, holds=held_, families=families, annotations=notes, port=8080)
                ledger.observe(each.key, edited)
    called = ledger.drain_requeues()
    after = held(subject, ledger, over)
    assert after == before or subject.key in called
