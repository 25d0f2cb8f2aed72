"""
The answers of agents at ``/state``, through the API server: that needs the right to get ``pods/proxy``.

An agent is untrusted: the number of agents, the size of an answer and the time for it are bounded.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from kavip import names
from kavip.api.agent import AgentState, decode_state
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.installation import WholeObject
from kavip.cli.views.doctor.inspection import AgentAnswer, Gap, agent_answer
from kavip.cli.views.doctor.nodes import contested
from kavip.cli.views.picture.picture import AgentAnswers
from kavip.errors import ApiError, Forbidden
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.codec import Malformed

AGAIN: Final = 3.0
"""Seconds until agents that contradict each other are asked again: three intervals of keepalived's default."""
_MOST_AGENTS: Final = 500
_LARGEST: Final = 2 * 2**20  # bytes of an answer, as for the controller
_TIMEOUT: Final = 5.0  # seconds for one answer
_AT_ONCE: Final = 16
_NAMED: Final = 3  # agents without an answer that a gap names

_AnyPod = TypeVar("_AnyPod", Pod, WholeObject)


async def ask_agents(client: Client, groups: Iterable[KeepalivedGroup]) -> tuple[tuple[AgentAnswer, ...], Gap | None]:
    """
    The answers of the agents of *groups*, and why some are missing. Agents that contradict each other are asked twice.

    Raises :class:`kavip.errors.Forbidden` if the user may not list pods.
    """
    asked, omitted = await _agents_of(client, groups)
    if not asked:
        return (), Gap("no group has pods, whose agents would know")
    answers, silent = await _ask_all(client, asked)
    if contested(list(answers.values())):
        await asyncio.sleep(AGAIN)
        again, _ = await _ask_all(client, asked)
        answers = {key: replace(each, again=again[key].state) for key, each in answers.items() if key in again}
    return tuple(answers.values()), _gap(silent, omitted=omitted, is_whole=not answers)


async def ask_once(client: Client, groups: Iterable[KeepalivedGroup]) -> AgentAnswers:
    """
    The answers of the agents of *groups*, and which do not answer. What the user may not do is a note.

    Raises :class:`kavip.errors.Unavailable` if the API server does not answer.
    """
    try:
        asked, omitted = await _agents_of(client, groups)
    except Forbidden as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        return AgentAnswers(note="you may not list pods: agents are not asked")
    slots = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_answer(client, pod, port, slots) for pod, port in asked.values()))
    forbidden = sum(isinstance(each, Forbidden) for each in found)
    refused = "you may not get pods/proxy, or agent.allowedCIDRs does not hold the API server"
    notes = (
        f"agents that do not answer: {forbidden}; {refused}" if forbidden else "",
        f"{omitted} agents are not asked" if omitted else "",
    )
    silent = {
        (_group(pod), pod.spec.node_name): _why(answer)
        for (pod, _), answer in zip(asked.values(), found, strict=True)
        if not isinstance(answer, AgentAnswer | Forbidden)
    }
    answers = tuple(each for each in found if isinstance(each, AgentAnswer))
    return AgentAnswers(answers, silent, note="; ".join(filter(None, notes)))


async def _agents_of(client: Client, groups: Iterable[KeepalivedGroup]) -> tuple[dict[str, tuple[Pod, int]], int]:
    """The pods of *groups* with their ports, by key; and the number of those that are too many to be asked."""
    ports = {each.key: each.status.metrics_port or each.spec.metrics_port or names.AGENT_PORT for each in groups}
    pods, _ = await client.list(resources.PODS, labels=names.GROUP_LABEL, on_malformed=_skip)
    known = in_turns((each for each in pods if _group(each) in ports), lambda each: (_group(each), each.spec.node_name))
    asked = {each.metadata.key: (each, ports[_group(each)]) for each in known[:_MOST_AGENTS]}
    return asked, len(known) - len(asked)


def in_turns(pods: Iterable[_AnyPod], holder: Callable[[_AnyPod], Hashable]) -> list[_AnyPod]:
    """
    The *pods* by key, but the first one of each *holder* before the second one of any.

    A node may report mirror pods in any number. So those of one node cannot displace the pods of others from a list
    that is cut.
    """
    seen: Counter[Hashable] = Counter()
    turns = []
    for pod in sorted(pods, key=lambda each: each.metadata.key):
        turns.append((seen[holder(pod)], pod))
        seen[holder(pod)] += 1
    return [pod for _, pod in sorted(turns, key=lambda each: each[0])]


async def read_state(client: Client, pod: str, *, port: int) -> AgentState:
    """The answer of the agent in *pod*; raises :class:`ApiError`, or :class:`msgspec.MsgspecError`."""
    return decode_state(await client.read_from_pod(pod, names.STATE_PATH, port=port, most=_LARGEST, timeout=_TIMEOUT))


async def _ask_all(client: Client, pods: dict[str, tuple[Pod, int]]) -> tuple[dict[str, AgentAnswer], dict[str, str]]:
    """The answers of *pods*, with their ports; and why the others did not answer; both by key."""
    slots = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_ask(client, pod, port, slots) for pod, port in pods.values()))
    results = dict(zip(pods, found, strict=True))
    answers = {key: each for key, each in results.items() if isinstance(each, AgentAnswer)}
    return answers, {key: each for key, each in results.items() if isinstance(each, str)}


async def _ask(client: Client, pod: Pod, port: int, slots: asyncio.Semaphore) -> AgentAnswer | str:
    """The answer of the agent in *pod*, or why there is none."""
    answer = await _answer(client, pod, port, slots)
    return answer if isinstance(answer, AgentAnswer) else _why(answer)


async def _answer(
    client: Client, pod: Pod, port: int, slots: asyncio.Semaphore
) -> AgentAnswer | ApiError | msgspec.MsgspecError:
    """The answer of the agent in *pod*, or the error in its place."""
    try:
        async with slots:
            state = await read_state(client, pod.metadata.key, port=port)
        return agent_answer(state, group=_group(pod), node=pod.spec.node_name)
    except (ApiError, msgspec.MsgspecError) as error:
        return error


def _why(error: ApiError | msgspec.MsgspecError) -> str:
    return str(error) if isinstance(error, ApiError) else f"its answer cannot be read: {error}"


def _gap(silent: dict[str, str], *, omitted: int, is_whole: bool) -> Gap | None:
    reasons = [f"pod {key}: {reason}" for key, reason in sorted(silent.items())]
    parts = reasons[:_NAMED]
    if len(reasons) > _NAMED:
        parts.append(f"{len(reasons) - _NAMED} more pods do not answer")
    if omitted:
        parts.append(f"{omitted} pods are not asked")
    return Gap("; ".join(parts), is_whole=is_whole) if parts else None


def _group(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.label(names.GROUP_LABEL)}"


def _skip(_: Malformed) -> None:
    """Skip a pod that cannot be read."""
