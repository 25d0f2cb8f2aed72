"""A pod that starts while a password is replaced: it holds no VIP while the others run the previous one."""

from dataclasses import replace
from typing import Final

import msgspec
import pytest

from kavip.agent.config.model import LocalizedConfig, MountedConfig
from kavip.agent.newpassword import WAIT, JoiningPod
from kavip.agent.report.dump import Data, Dump, Entry, Stats
from kavip.api.agent import decode_state
from kavip.reconcile.observed.agent import node_state
from tests.agent import mounts
from tests.agent.config.test_localize import facts, localized

TEXT: Final = mounts.rendered({"shop/web": "192.0.2.200,2001:db8:2::200"}, **mounts.WITH_PASSWORD)
MOUNTED: Final = mounts.mounted(TEXT, authentication=True, password="new")
OURS, SIXTH = "shop/web", "shop/web/v6"
"""The second has version 3 without passwords, so an advert for it proves nothing."""


class Pod:
    """A pod that has just started, with a clock."""

    def __init__(
        self, good: LocalizedConfig | None = None, mounted: MountedConfig = MOUNTED, *, is_unproven: bool = False
    ) -> None:
        """*good* ran last."""
        self.seconds = 100.0
        self.installed = localized(mounted.text, facts(), authentication=True, password=mounted.password)
        self.joining = JoiningPod(lambda: self.seconds, lambda: self.seconds + 1_000_000_000)
        self.joining.start(good, is_unproven=is_unproven)

    def receive(self, **counted: Stats) -> bool:
        """Count adverts; whether the pod is held back."""
        if self.joining.is_listening:
            self.joining.observe(self.installed, dump(**counted))
        return self.joining.update(MOUNTED)

    def still_listens(self) -> bool:
        """Whether the pod still listens."""
        return self.joining.is_listening


def dump(ours: Stats = Stats(), sixth: Stats = Stats()) -> Dump:  # noqa: B008 - frozen
    """keepalived's counters."""
    return tuple(Entry(Data(name, 10, 1), stats) for name, stats in ((OURS, ours), (SIXTH, sixth)))


@pytest.mark.parametrize("count", ["auth_failure", "authtype_mismatch", "invalid_authtype"])
def test_unauthenticated_adverts_hold_the_pod_back(count: str) -> None:
    """From the first one on, until all switch."""
    pod = Pod()
    assert not pod.receive(sixth=Stats(advert_rcvd=3))
    assert pod.still_listens()
    assert pod.receive(ours=Stats(**{count: 1}), sixth=Stats(advert_rcvd=3))
    assert not pod.still_listens()
    assert not pod.joining.update(replace(MOUNTED, is_next=True))
    assert not pod.joining.is_held_back


def test_a_static_pod_is_not_held_back() -> None:
    """Without a controller there is no switch."""
    pod = Pod()
    assert pod.receive(ours=Stats(auth_failure=1))
    assert not pod.joining.update(replace(MOUNTED, is_static=True))


def test_the_hold_ends_after_a_while() -> None:
    """The adverts may be another router's."""
    pod = Pod()
    assert pod.receive(ours=Stats(auth_failure=1))
    pod.seconds += WAIT - 1
    assert pod.receive()
    pod.seconds += 2
    assert not pod.receive()
    assert not pod.receive(ours=Stats(auth_failure=9))


def test_the_message_says_until_when_and_what_to_do() -> None:
    """In 200 characters, and it does not change meanwhile."""
    pod = Pod()
    assert pod.receive(ours=Stats(auth_failure=1))
    notice = pod.joining.problem.message
    assert "at most until 2001-09-09T01:52:20.000Z" in notice  # 1,000,000,100 and WAIT
    assert "blacklistRouterIDs" in notice
    assert node_state(decode_state(msgspec.json.encode({"group": "lb/edge", "refused": notice}))).refused == notice
    pod.seconds += 60
    assert pod.receive()
    assert pod.joining.problem.message == notice


def test_one_accepted_advert_is_enough() -> None:
    """It proves the password, whatever else comes."""
    pod = Pod()
    assert not pod.receive(ours=Stats(auth_failure=5, advert_rcvd=1))
    assert not pod.receive(ours=Stats(auth_failure=9))


def test_a_pod_without_adverts_stops_listening() -> None:
    """After an election's time; later adverts take no VIP away."""
    pod = Pod()
    assert not pod.receive()
    pod.seconds += 20
    assert not pod.receive()
    assert not pod.joining.is_listening
    assert not pod.receive(ours=Stats(auth_failure=1))


def test_a_node_that_joins_listens_when_others_know_it() -> None:
    """Until then it has no source address, and gets no adverts."""
    pod = Pod()
    joined = pod.installed
    text = joined.text.replace("    unicast_src_ip 192.0.2.11\n", "")
    assert text != joined.text
    pod.installed = replace(joined, text=text)
    for _ in range(2):
        assert not pod.receive()
        pod.seconds += 60
    pod.installed = joined
    assert pod.receive(ours=Stats(auth_failure=1))


def test_a_pod_that_ran_before_does_not_listen() -> None:
    """It keeps the password that runs."""
    pod = Pod(good=Pod().installed)
    assert not pod.joining.is_listening
    assert not pod.receive(ours=Stats(auth_failure=1))


def test_a_pod_that_ran_for_a_moment_listens() -> None:
    """An earlier agent ended before it could decide."""
    pod = Pod(good=Pod().installed, is_unproven=True)
    assert pod.joining.is_unproven
    assert pod.receive(ours=Stats(auth_failure=1))
    assert pod.joining.is_unproven


def test_a_decision_for_the_password_proves_it() -> None:
    """A later agent of the pod needs no other."""
    pod = Pod()
    assert not pod.receive(ours=Stats(advert_rcvd=1))
    assert not pod.joining.is_unproven


def test_another_password_is_tried() -> None:
    """The Secret was changed back."""
    pod = Pod()
    assert pod.receive(ours=Stats(auth_failure=1))
    assert not pod.joining.update(replace(MOUNTED, password="old"))
    assert pod.joining.is_listening


def test_the_only_node_of_a_group_is_not_held_back() -> None:
    """There is no node to switch with."""
    only_node = mounts.mounted(mounts.rendered({OURS: "192.0.2.200"}, nodes=1, **mounts.WITH_PASSWORD), password="new")
    pod = Pod()
    pod.joining.observe(pod.installed, dump(ours=Stats(auth_failure=1)))
    assert not pod.joining.update(replace(only_node, authentication=True))


def test_a_pod_that_is_held_back_runs_an_empty_configuration() -> None:
    """Without a hash, because it is not the wanted one."""
    found = localized(TEXT, facts(), authentication=True, password="new", held="because")
    assert (found.configuration.instances, found.config_hash) == ((), "")
