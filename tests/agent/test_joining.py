"""A pod that starts while its password is replaced: it gives way to those who run the one before."""

from dataclasses import replace
from typing import Final

import msgspec
import pytest

from kavip.agent.config.localize import Mounted
from kavip.agent.config.model import Localized
from kavip.agent.joining import WAIT, Newcomer
from kavip.agent.keepalived.dump import Data, Dump, Entry, Stats
from kavip.api.agent import decode_state
from kavip.reconcile.observed.agent import node_state
from tests.agent import scene
from tests.agent.config.test_localize import facts, localized

TEXT: Final = scene.rendered({"shop/web": "192.0.2.200,2001:db8:2::200"}, **scene.WITH_PASSWORD)
MOUNTED: Final = scene.mounted(TEXT, authentication=True, password="new")
OURS, SIXTH = "shop/web", "shop/web/v6"
"""The second is of version 3, which has no passwords: whoever is heard there proves nothing."""


class Pod:
    """A pod that has just started, and a clock."""

    def __init__(self, good: Localized | None = None, mounted: Mounted = MOUNTED) -> None:
        """*good* ran before."""
        self.seconds = 100.0
        self.installed = localized(mounted.text, facts(), authentication=True, password=mounted.password)
        self.newcomer = Newcomer(lambda: self.seconds, lambda: self.seconds + 1_000_000_000)
        self.newcomer.begin(good)

    def hears(self, **counted: Stats) -> bool:
        """Whether it gives way when keepalived has counted this."""
        if self.newcomer.listens:
            self.newcomer.hear(self.installed, dump(**counted))
        return self.newcomer.gives_way(MOUNTED)

    def listens(self) -> bool:
        """Whether it listens still."""
        return self.newcomer.listens


def dump(ours: Stats = Stats(), sixth: Stats = Stats()) -> Dump:  # noqa: B008 - frozen
    """What keepalived tells."""
    return tuple(Entry(Data(name, 10, 1), stats) for name, stats in ((OURS, ours), (SIXTH, sixth)))


@pytest.mark.parametrize("count", ["auth_failure", "authtype_mismatch", "invalid_authtype"])
def test_it_gives_way_to_those_whom_it_cannot_accept(count: str) -> None:
    """Not before it hears them, and until all switch."""
    pod = Pod()
    assert not pod.hears(sixth=Stats(advert_rcvd=3))
    assert pod.listens()
    assert pod.hears(ours=Stats(**{count: 1}), sixth=Stats(advert_rcvd=3))
    assert not pod.listens()
    assert not pod.newcomer.gives_way(replace(MOUNTED, is_next=True))
    assert not pod.newcomer.is_outvoted


def test_it_does_not_wait_where_nobody_has_the_nodes_switch() -> None:
    """A static pod has no controller: whoever it cannot accept is a stranger."""
    pod = Pod()
    assert pod.hears(ours=Stats(auth_failure=1))
    assert not pod.newcomer.gives_way(replace(MOUNTED, is_static=True))


def test_it_gives_way_for_a_while_only() -> None:
    """Who is heard may be a stranger."""
    pod = Pod()
    assert pod.hears(ours=Stats(auth_failure=1))
    pod.seconds += WAIT - 1
    assert pod.hears()
    pod.seconds += 2
    assert not pod.hears()
    assert not pod.hears(ours=Stats(auth_failure=9))


def test_it_says_until_when_it_gives_way_and_what_to_do_about_a_stranger() -> None:
    """In as many letters as a controller passes on; and it says the same all the time."""
    pod = Pod()
    assert pod.hears(ours=Stats(auth_failure=1))
    said = pod.newcomer.why
    assert said.endswith("at most until 2001-09-09T01:52:20.000Z")  # 1,000,000,100 and WAIT
    assert "blacklistRouterIDs" in said
    assert node_state(decode_state(msgspec.json.encode({"group": "lb/edge", "refused": said}))).refused == said
    pod.seconds += 60
    assert pod.hears()
    assert pod.newcomer.why == said


def test_strangers_beside_those_whom_it_accepts() -> None:
    """One who has its password proves that it is the right one."""
    pod = Pod()
    assert not pod.hears(ours=Stats(auth_failure=5, advert_rcvd=1))
    assert not pod.hears(ours=Stats(auth_failure=9))


def test_whom_nobody_hears_listens_no_longer() -> None:
    """After as many intervals as a master is heard in; what comes later is no reason to leave what it holds."""
    pod = Pod()
    assert not pod.hears()
    pod.seconds += 20
    assert not pod.hears()
    assert not pod.newcomer.listens
    assert not pod.hears(ours=Stats(auth_failure=1))


def test_a_node_that_joins_listens_when_others_know_it() -> None:
    """Until then it speaks from nowhere, and hears nobody, however long that takes."""
    pod = Pod()
    joined = pod.installed
    text = joined.text.replace("    unicast_src_ip 192.0.2.11\n", "")
    assert text != joined.text
    pod.installed = replace(joined, text=text)
    for _ in range(2):
        assert not pod.hears()
        pod.seconds += 60
    pod.installed = joined
    assert pod.hears(ours=Stats(auth_failure=1))


def test_a_pod_that_ran_before_does_not_listen() -> None:
    """It knows the password that runs, and keeps it."""
    pod = Pod(good=Pod().installed)
    assert not pod.newcomer.listens
    assert not pod.hears(ours=Stats(auth_failure=1))


def test_another_password_is_tried_anew() -> None:
    """The Secret was edited back."""
    pod = Pod()
    assert pod.hears(ours=Stats(auth_failure=1))
    assert not pod.newcomer.gives_way(replace(MOUNTED, password="old"))
    assert pod.newcomer.listens


def test_the_only_node_of_a_group_gives_way_to_nobody() -> None:
    """There is nobody who could know better."""
    alone = scene.mounted(scene.rendered({OURS: "192.0.2.200"}, nodes=1, **scene.WITH_PASSWORD), password="new")
    pod = Pod()
    pod.newcomer.hear(pod.installed, dump(ours=Stats(auth_failure=1)))
    assert not pod.newcomer.gives_way(replace(alone, authentication=True))


def test_what_is_held_is_an_empty_configuration() -> None:
    """It bears no hash: it is not the one that is wanted."""
    found = localized(TEXT, facts(), authentication=True, password="new", held="because")
    assert (found.configuration.instances, found.config_hash) == ((), "")
