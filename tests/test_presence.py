"""Which nodes have each VIP during an upgrade, by looks at their kernels."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hack.testbed import runs
from hack.testbed.errors import TestbedError
from hack.testbed.place import Result
from hack.testbed.segment import Host, Segment
from hack.upgrade import crowd
from hack.upgrade.measure import LONGEST_SILENCE, is_unsteady
from hack.upgrade.presence import Presence, addresses, watching

BOTH = frozenset({"a", "b"})
A, B, NONE = frozenset({"a"}), frozenset({"b"}), frozenset[str]()


def seen(*looks: tuple[frozenset[str], frozenset[str]]) -> Presence:
    """A look at both nodes each second, which takes 0.25 s."""
    found = Presence(BOTH)
    for at, (first, second) in enumerate(looks):
        found.take(at, at + 0.25, {"n1": first, "n2": second})
    return found


def test_vips_that_stay() -> None:
    """They do not move, and are always on one node."""
    found = seen((A, B), (A, B), (A, B))
    assert (found.moves, found.absent, found.doubled) == (0, 0, 0)


def test_a_vip_on_no_node() -> None:
    """It may be gone from the begin of the last look that found it to the end of the next one that does."""
    found = seen((BOTH, NONE), (A, NONE), (A, NONE), (BOTH, NONE), (A, NONE), (BOTH, NONE))
    assert (found.moves, found.absent, found.doubled) == (0, 3.25, 0)


def test_a_vip_that_is_always_absent() -> None:
    """The time counts to the end."""
    assert seen((A, NONE), (A, NONE), (A, NONE)).absent == 2.25


def test_a_hand_over() -> None:
    """Both nodes have the VIP for a while; that is one move."""
    found = seen((BOTH, NONE), (BOTH, A), (B, A), (B, A))
    assert (found.moves, found.absent, found.doubled) == (1, 0, 2.25)


def test_looks_that_are_far_apart() -> None:
    """What begins and ends between them is not seen, so the time between them counts."""
    found = seen((A, B), (A, B))
    assert found.gap == 1.25
    found.take(9.0, 9.25, {"n1": A, "n2": B})
    assert found.gap == 8.25
    assert is_unsteady({crowd.REPLACED: found, crowd.KEPT: seen((A, B))})


def test_a_node_that_cannot_be_read_is_an_error() -> None:
    """Otherwise nothing would be seen, and everything be well."""

    class Broken(Host):
        def exec(self, *_: str, **__: object) -> Result:
            raise TestbedError("no machine")

    with (
        pytest.raises(TestbedError, match="no machine"),
        watching([Broken("n1", Path("/nowhere"), 1)], {"some": BOTH}),
    ):
        pass


@pytest.mark.netns
def test_an_address_is_seen_while_others_are_deleted() -> None:
    """The kernel lists those that were added first before it, and a list by position skips one for each of them."""
    gone, stays = (
        [f"198.19.{third}.{fourth}" for third in range(8) for fourth in range(at, at + 100)] for at in (0, 100)
    )

    def change(verb: str, addresses: list[str], *, at_once: int) -> None:
        lines = [f"address {verb} {each}/32 dev eth0\n" for each in addresses]
        for at in range(0, len(lines), at_once):
            host.exec("ip", "-batch", "-", input="".join(lines[at : at + at_once]))

    with runs.in_memory() as state, Segment(state, nodes=1) as lan, ThreadPoolExecutor(1) as threads:
        host = lan.node("n1")
        change("add", gone + stays, at_once=len(gone + stays))
        deleting = threads.submit(change, "del", gone, at_once=20)
        looks = 0
        while not deleting.done():
            assert addresses(host) >= {*stays}
            looks += 1
        deleting.result()
        assert looks and not addresses(host) & {*gone}


def test_other_addresses_do_not_count() -> None:
    """A node's own address is on each node."""
    own = frozenset({"own"})
    assert seen((A | own, B | own), (A | own, B | own)).doubled == 0


@pytest.mark.parametrize(
    ("replaced", "kept", "unsteady"),
    [
        (seen((BOTH, NONE), (NONE, BOTH)), seen((BOTH, NONE), (BOTH, NONE)), False),
        (seen((BOTH, NONE), (NONE, BOTH)), seen((BOTH, NONE), (NONE, BOTH)), True),
        (seen((A, B)), seen((A, B), (A, NONE), (A, B)), True),
        (seen((A, B), *[(A, NONE)] * round(LONGEST_SILENCE)), seen((A, B)), True),
        (seen((A, B), *[(BOTH, B)] * round(LONGEST_SILENCE)), seen((A, B)), True),
    ],
)
def test_pods_that_stay_keep_their_vips(replaced: Presence, kept: Presence, unsteady: bool) -> None:
    """The VIPs of the others may move, each within the time of a hand-over."""
    assert is_unsteady({crowd.REPLACED: replaced, crowd.KEPT: kept}) is unsteady
