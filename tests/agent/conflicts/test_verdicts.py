"""What answers of the LAN mean, and when it is asked again."""

from kavip.agent.conflicts.verdicts import (
    AGAIN,
    DEFEND,
    FRESH,
    QUIET,
    RETRY,
    ROUNDS,
    SETTLE,
    Answer,
    Finding,
    HeldClaims,
    Verdicts,
    first_reports,
)
from kavip.api.address import Address, parse_address
from kavip.api.agent import MOST_CONFLICTS, ConflictKind, ProblemCode
from kavip.vrrp.virtualips import VirtualIP, host

ONE, TWO = (host(parse_address(f"192.0.2.{number}"), "eth0") for number in (130, 131))
MAC, OTHER = "02:00:c0:00:02:63", "02:00:c0:00:02:64"
CLAIMED = Finding(Answer.CLAIMED, MAC)


def verdicts(*found: Finding, vip: VirtualIP = ONE, every: float = 1.0) -> Verdicts:
    """The verdicts after *found* about *vip*, one each second from 0 on."""
    made = Verdicts()
    for number, finding in enumerate(found):
        made.record(vip, finding, now=number * every, time=f"t{number}", jitter=0.5)
    return made


def test_a_vip_is_withheld_until_the_lan_was_silent() -> None:
    """Unasked it is withheld without a fault; silence counts for a while."""
    made = Verdicts()
    assert made.due([TWO, ONE], now=0) == (ONE, TWO) and made.withheld([ONE], now=0) == {ONE: None}
    made.record(ONE, Finding(Answer.SILENT), now=0, time="", jitter=0)
    assert made.due([TWO, ONE], now=1) == (TWO,)
    assert made.withheld([ONE, TWO], now=1) == {TWO: None}
    assert made.due([ONE, TWO], now=FRESH) == (TWO, ONE) and made.withheld([ONE], now=FRESH) == {ONE: None}


def test_a_claimed_vip_is_asked_for_again() -> None:
    """The fault names the machine; the report keeps the time of the first claim in a row."""
    made = verdicts(CLAIMED, CLAIMED)
    fault = made.withheld([ONE], now=500)[ONE]
    assert fault is not None and fault.code is ProblemCode.ADDRESS_CONFLICT and MAC in fault.message
    assert made.due([ONE], now=AGAIN) == () and made.due([ONE], now=AGAIN + 1) == (ONE,)
    (report,) = made.reports()
    assert (report.address, report.hardware_address, report.since) == ("192.0.2.130", MAC, "t0")
    assert report.kind is ConflictKind.WITHHELD
    made.record(ONE, Finding(Answer.SILENT), now=40, time="t40", jitter=0)
    assert made.withheld([ONE], now=41) == {} and made.reports() == ()
    assert made.next_due() == 40 + FRESH


def test_the_claim_of_a_node_withholds_nothing() -> None:
    """Neither when the LAN is asked, nor when the controller says later that the machine is a node."""
    assert verdicts(Finding(Answer.NODE)).withheld([ONE], now=1) == {}
    made = verdicts(CLAIMED)
    made.accept({OTHER})
    assert made.withheld([ONE], now=1)
    made.accept({MAC})
    assert made.withheld([ONE], now=1) == {} and made.reports() == ()


def test_a_machine_that_asks_too_only_delays() -> None:
    """It claims the address a moment later, or it does not; nodes that ask at the same time do not wait for ever."""
    contended = Finding(Answer.CONTENDED)
    assert verdicts(contended).withheld([ONE], now=0) == {ONE: None}
    assert verdicts(contended).due([ONE], now=0.69) == () and verdicts(contended).due([ONE], now=0.7) == (ONE,)
    assert verdicts(*[contended] * (ROUNDS - 1)).withheld([ONE], now=1) == {ONE: None}
    assert verdicts(*[contended] * ROUNDS).withheld([ONE], now=2) == {}
    assert verdicts(contended, contended, CLAIMED).withheld([ONE], now=2)[ONE] is not None
    assert verdicts(contended, Finding(Answer.SILENT), contended, contended).withheld([ONE], now=3) == {ONE: None}


def test_an_interface_that_cannot_send() -> None:
    """A link that is down withholds; an interface without ARP, or an agent without the right, does not."""
    made = verdicts(Finding(Answer.DOWN))
    assert made.withheld([ONE], now=1) == {ONE: None}
    assert made.due([ONE], now=1) == () and made.due([ONE], now=RETRY) == (ONE,)
    made.expire()
    assert made.due([ONE], now=1) == (ONE,)
    made = verdicts(Finding(Answer.UNABLE))
    assert made.withheld([ONE], now=1e9) == {} and made.due([ONE], now=1e9) == () and made.is_unable


def test_an_interface_that_has_come_up() -> None:
    """Its switch may not forward yet, so the first silence is verified; a claim counts at once."""
    down, silent = Finding(Answer.DOWN), Finding(Answer.SILENT)
    made = verdicts(down, silent)
    assert made.withheld([ONE], now=1) == {ONE: None} and made.due([ONE], now=1 + SETTLE) == (ONE,)
    made.expire()
    assert made.due([ONE], now=1) == ()
    made.record(ONE, silent, now=3, time="", jitter=0)
    assert made.withheld([ONE], now=3) == {}
    assert verdicts(down, silent, down, silent).withheld([ONE], now=3) == {ONE: None}
    assert verdicts(down, silent, CLAIMED).withheld([ONE], now=3)[ONE] is not None


def test_what_is_not_wanted_is_forgotten() -> None:
    """A VIP that was loaded, or that left the text, and comes back, is asked for."""
    made = verdicts(CLAIMED)
    made.retain([TWO])
    assert made.reports() == () and made.due([ONE], now=1) == (ONE,)


def test_a_claim_on_a_held_vip_lasts_until_it_is_quiet() -> None:
    """It is asked for again every ten seconds; the time of its beginning stays."""
    claims = HeldClaims()
    assert claims.heard(ONE, MAC, now=0, time="t0") and not claims.heard(ONE, MAC, now=5, time="t5")
    assert claims.heard(ONE, OTHER, now=6, time="t6")
    (report,) = claims.reports()
    assert (report.kind, report.since, report.hardware_address) == (ConflictKind.HELD, "t0", OTHER)
    assert claims.due(now=6 + DEFEND - 1) == () and claims.due(now=6 + DEFEND) == (ONE,)
    claims.asked([ONE, TWO], now=6 + DEFEND)
    assert claims.next_due() == 6 + 2 * DEFEND
    assert not claims.end(held={ONE}, nodes=set(), now=6 + QUIET - 1) and ONE in claims
    assert claims.end(held={ONE}, nodes=set(), now=6 + QUIET) and ONE not in claims


def test_a_claim_ends_with_the_vip_and_with_the_knowledge_of_the_node() -> None:
    """The VIP has moved away; or the controller says that the machine is a node."""
    for held, nodes in (({TWO}, set[str]()), ({ONE}, {MAC})):
        claims = HeldClaims()
        claims.heard(ONE, MAC, now=0, time="")
        assert claims.end(held=held, nodes=nodes, now=1) and claims.reports() == ()


def test_a_vip_is_defended_at_most_once_in_ten_seconds() -> None:
    """Each VIP by itself, however often it is claimed (RFC 5227, 2.4)."""
    claims = HeldClaims()
    for vip in (ONE, TWO):
        claims.heard(vip, MAC, now=0, time="")
    assert claims.take_defences([ONE], now=0) == (ONE,)
    claims.heard(ONE, MAC, now=5, time="")
    assert claims.take_defences([ONE, TWO], now=5) == (TWO,)
    assert claims.take_defences([ONE, TWO], now=DEFEND) == (ONE,)
    assert claims.take_defences([host(Address(4, 1), "eth0")], now=99) == ()


def test_a_vip_that_comes_back_is_not_defended_again_at_once() -> None:
    """The claim ends when the VIP moves away; the time of the defence is remembered."""
    claims = HeldClaims()
    claims.heard(ONE, MAC, now=0, time="")
    assert claims.take_defences([ONE], now=0) == (ONE,)
    claims.end(held=(), nodes=(), now=1)
    claims.heard(ONE, MAC, now=2, time="")
    assert claims.take_defences([ONE], now=2) == () and claims.take_defences([ONE], now=DEFEND) == (ONE,)


def test_the_number_of_claims_is_bounded() -> None:
    """A machine that claims everything fills neither the memory nor the state."""
    claims, many = HeldClaims(), [host(Address(4, number), "eth0") for number in range(1, 500)]
    for vip in many:
        claims.heard(vip, MAC, now=0, time="")
    assert len(claims.reports()) == MOST_CONFLICTS
    made = Verdicts()
    for vip in many:
        made.record(vip, CLAIMED, now=0, time="", jitter=0)
    found = first_reports(made.reports(), claims.reports())
    assert len(found) == MOST_CONFLICTS and {each.kind for each in found} == {ConflictKind.WITHHELD}


def test_held_claims_are_false_without_any() -> None:
    """Then no VIP of the node has to be looked at."""
    claims = HeldClaims()
    assert not claims
    claims.heard(ONE, MAC, now=0, time="t")
    assert claims
