"""What a client's requests say about how long a VIP was away."""

import pytest

from tests.agent import mounts
from tests.changes.client import LOST, RESET, TIMEOUT, UNANSWERED
from tests.changes.seen import Seen, instances
from tests.changes.wire import Advert
from tests.predecessor.live import conf, instance

VIP = "192.0.2.130"


def seen(*answered: str) -> Seen:
    """A request after the other: who answered, or why nobody ("-" or a reset)."""
    rows = [(n * 0.01, None if who in ("-", RESET) else 0.001, who) for n, who in enumerate(answered)]
    return Seen(rows={VIP: rows})


def test_a_silence_is_from_answer_to_answer() -> None:
    """What was asked between two answered requests counts once, however often it was asked."""
    assert round(seen("n1", "-", "-", "n2", "n2", "-", "n2").longest_silence, 6) == 0.03
    assert round(seen("n1", "-", "n2", "-", "-", "-", "n2").longest_silence, 6) == 0.04


def test_a_silence_that_does_not_end_is_one() -> None:
    """A VIP that is not answered to the end was away until then; one that was not there at first came."""
    assert round(seen("-", "n1", "-", "-").longest_silence, 6) == 0.02
    assert seen("-", "n1").longest_silence == 0.0


def test_a_reset_is_no_answer() -> None:
    """The connection stood, so somebody was there; all the same its request was lost."""
    assert round(seen("n1", RESET, "n2").longest_silence, 6) == 0.02


def moved(*rows: tuple[float, str], goodbye: bool = False) -> Seen:
    """n1 leads until n2 is heard first at 1.0, and again at 1.2; *rows*: when it was asked, and who answered."""
    spoken = [
        (0.8, "n1", 150),
        (0.9, "n1", 0 if goodbye else 150),
        (1.0, "n2", 200),
        (1.2, "n2", 200),
        (1.4, "n2", 200),
    ]
    adverts = [Advert(moment, node, 4, 7, priority, 0.2) for moment, node, priority in spoken]
    middle = ((sent, 0.001 if who == "n1" else None, who) for sent, who in rows)
    asked = [(0.0, 0.001, "n1"), *middle, (2.0, 0.001, "n2")]
    return Seen(rows={VIP: asked}, adverts=adverts, router_ids={7: "shop/web"}, instances={VIP: "shop/web"})


def test_a_vip_is_kept_where_only_its_moves_cost_requests() -> None:
    """However many, and however long that took, until the new master has spoken twice."""
    assert moved().is_kept(VIP, moves=1)
    assert not moved().is_kept(VIP, moves=0)
    assert moved((0.99, LOST), (1.0, LOST), (1.1, "Connection refused"), (1.2, LOST)).is_kept(VIP, moves=1)
    assert moved((0.7, RESET)).is_kept(VIP, moves=1)
    assert moved().is_kept(VIP, moves=0, since=1.1)


@pytest.mark.parametrize("moment", [0.5, 0.79, 0.98, 1.21])
def test_what_is_lost_before_or_after_a_move_is_not_its_price(moment: float) -> None:
    """Somebody was there: the new master, or the old one, which answered who asked later."""
    assert not moved((moment, LOST), (0.99, "n1")).is_kept(VIP, moves=1)
    assert not moved((0.79, LOST)).is_kept(VIP, moves=1)


def test_what_waited_for_the_old_masters_answer_is() -> None:
    """As long as it waited."""
    assert moved((0.5, UNANSWERED)).is_kept(VIP, moves=1)
    assert not moved((1.0 - TIMEOUT - 0.1, UNANSWERED)).is_kept(VIP, moves=1, since=-TIMEOUT)
    assert not moved((1.3, UNANSWERED)).is_kept(VIP, moves=1)


def test_a_master_that_says_goodbye_does_not_hand_over() -> None:
    """Others wait for each other then, and clients for them, whether or not a request is lost by that."""
    assert not moved(goodbye=True).is_kept(VIP, moves=1)
    assert moved(goodbye=True).is_kept(VIP, moves=1, since=0.95)


def test_a_story_has_masters_and_losses_in_order() -> None:
    """On one clock, from the first of what was seen."""
    told = moved((1.0, LOST), (1.1, LOST), goodbye=True).story().splitlines()
    assert told == [
        "{}; the client paused for up to 1.000 s",
        "  +0.000 192.0.2.130: n1 for 0.000 s, 1 requests, up to 0.001 s",
        "  +0.800 shop/web of IPv4: n1 is master, priority 150",
        "  +0.900 shop/web of IPv4: n1 says goodbye",
        "  +1.000 192.0.2.130: lost for 0.100 s, 2 requests",
        "  +1.000 shop/web of IPv4: n2 is master, priority 200",
        "  +1.400 shop/web of IPv4: n2 is heard last",
        "  +2.000 192.0.2.130: n2 for 0.000 s, 1 requests, up to 0.001 s",
    ]


def test_the_instance_of_a_vip_is_found_in_either_text() -> None:
    """kavip's, and that of keepalived-operator."""
    ours = mounts.rendered({"shop/web": f"{VIP},2001:db8:2::130", "shop/cart": "192.0.2.13"})
    wanted = {VIP: "shop/web", "2001:db8:2::130": "shop/web", "192.0.2.13": "shop/cart"}
    assert instances(ours, [*wanted, "192.0.2.131"]) == wanted
    assert instances(conf(instance("shop/web", 7, VIP)), [VIP]) == {VIP: "shop/web"}
