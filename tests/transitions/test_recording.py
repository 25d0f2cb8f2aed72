"""How long a VIP was away, by the requests of a client."""

import pytest

from tests.agent import mounts
from tests.keepalived_operator.oldobjects import conf, instance
from tests.transitions.adverts import Advert
from tests.transitions.recording import Recording, instances
from tests.transitions.vipclient import LOST, RESET, TIMEOUT, UNANSWERED

VIP = "192.0.2.130"


def recorded(*answered: str) -> Recording:
    """A recording of consecutive requests, by the node that answered, "-" for no answer, or a reset."""
    rows = [(n * 0.01, None if answerer in ("-", RESET) else 0.001, answerer) for n, answerer in enumerate(answered)]
    return Recording(rows={VIP: rows})


def test_a_silence_is_from_answer_to_answer() -> None:
    """Unanswered requests between two answered ones count as one silence."""
    assert round(recorded("n1", "-", "-", "n2", "n2", "-", "n2").longest_silence, 6) == 0.03
    assert round(recorded("n1", "-", "n2", "-", "-", "-", "n2").longest_silence, 6) == 0.04


def test_a_silence_at_the_end_counts() -> None:
    """A silence at the end counts up to the last request; a VIP without answers at the beginning is new."""
    assert round(recorded("-", "n1", "-", "-").longest_silence, 6) == 0.02
    assert recorded("-", "n1").longest_silence == 0.0


def test_a_reset_is_no_answer() -> None:
    """The connection was established, but the request was lost."""
    assert round(recorded("n1", RESET, "n2").longest_silence, 6) == 0.02


def moved(*rows: tuple[float, str], resigned: bool = False) -> Recording:
    """n1 is master until n2's first advert at 1.0; its second is at 1.2. *rows*: requests with moment and result."""
    sent_adverts = [
        (0.8, "n1", 150),
        (0.9, "n1", 0 if resigned else 150),
        (1.0, "n2", 200),
        (1.2, "n2", 200),
        (1.4, "n2", 200),
    ]
    adverts = [Advert(moment, node, 4, 7, priority, 0.2) for moment, node, priority in sent_adverts]
    middle = ((sent, 0.001 if answerer == "n1" else None, answerer) for sent, answerer in rows)
    requests = [(0.0, 0.001, "n1"), *middle, (2.0, 0.001, "n2")]
    return Recording(rows={VIP: requests}, adverts=adverts, router_ids={7: "shop/web"}, instances={VIP: "shop/web"})


def test_a_vip_moved_cleanly_where_only_its_moves_cost_requests() -> None:
    """Any number of requests may be lost between the old master's last answer and the new master's second advert."""
    assert moved().moved_cleanly(VIP, moves=1)
    assert not moved().moved_cleanly(VIP, moves=0)
    assert moved((0.99, LOST), (1.0, LOST), (1.1, "Connection refused"), (1.2, LOST)).moved_cleanly(VIP, moves=1)
    assert moved((0.7, RESET)).moved_cleanly(VIP, moves=1)
    assert moved().moved_cleanly(VIP, moves=0, since=1.1)


@pytest.mark.parametrize("moment", [0.5, 0.79, 0.98, 1.21])
def test_a_request_lost_before_or_after_a_move_is_not_explained_by_it(moment: float) -> None:
    """The old master answered a later request, or the new master was established: the loss has another cause."""
    assert not moved((moment, LOST), (0.99, "n1")).moved_cleanly(VIP, moves=1)
    assert not moved((0.79, LOST)).moved_cleanly(VIP, moves=1)


def test_a_request_that_waited_for_the_old_master_is_explained_by_the_move() -> None:
    """An unanswered request may have waited for the old master until its timeout."""
    assert moved((0.5, UNANSWERED)).moved_cleanly(VIP, moves=1)
    assert not moved((1.0 - TIMEOUT - 0.1, UNANSWERED)).moved_cleanly(VIP, moves=1, since=-TIMEOUT)
    assert not moved((1.3, UNANSWERED)).moved_cleanly(VIP, moves=1)


def test_a_move_after_priority_0_is_not_clean() -> None:
    """After priority 0 there is an election, and clients wait, whether or not a request is lost."""
    assert not moved(resigned=True).moved_cleanly(VIP, moves=1)
    assert moved(resigned=True).moved_cleanly(VIP, moves=1, since=0.95)


def test_a_timeline_has_masters_and_losses_in_order() -> None:
    """All lines are on one clock, which begins with the first event."""
    lines = moved((1.0, LOST), (1.1, LOST), resigned=True).timeline().splitlines()
    assert lines == [
        "{}; the client paused for up to 1.000 s",
        "  +0.000 192.0.2.130: n1 for 0.000 s, 1 requests, up to 0.001 s",
        "  +0.800 shop/web of IPv4: n1 is master, priority 150",
        "  +0.900 shop/web of IPv4: n1 sends priority 0",
        "  +1.000 192.0.2.130: lost for 0.100 s, 2 requests",
        "  +1.000 shop/web of IPv4: n2 is master, priority 200",
        "  +1.400 shop/web of IPv4: n2 sends its last advert",
        "  +2.000 192.0.2.130: n2 for 0.000 s, 1 requests, up to 0.001 s",
    ]


def test_the_instance_of_a_vip_is_found_in_either_text() -> None:
    """The text of kavip and the text of keepalived-operator."""
    ours = mounts.rendered({"shop/web": f"{VIP},2001:db8:2::130", "shop/cart": "192.0.2.13"})
    wanted = {VIP: "shop/web", "2001:db8:2::130": "shop/web", "192.0.2.13": "shop/cart"}
    assert instances(ours, [*wanted, "192.0.2.131"]) == wanted
    assert instances(conf(instance("shop/web", 7, VIP)), [VIP]) == {VIP: "shop/web"}
