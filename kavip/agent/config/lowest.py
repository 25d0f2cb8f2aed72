"""
The running configuration with the lowest priority, so that other nodes take this node's VIPs over while it still runs.

Only the priorities differ, so keepalived keeps its instances at the reload. An instance stays as it is if no other node
would take it over in time: it has ``nopreempt`` or ``preempt_delay``, or no unicast peer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kavip.agent.config import blocks
from kavip.agent.config.blocks import Block
from kavip.agent.config.model import LocalizedConfig, ParsedConfig
from kavip.vrrp.tracking import LOWEST

INTERVALS: Final = 4
"""Advert intervals after which a backup has taken over: three, and the skew time, at most one (RFC 9568, 6.1)."""

_PRIORITY: Final = re.compile(r"( +)priority \d+")
_INTERVAL: Final = re.compile(r" +advert_int (\d+(?:\.\d+)?)")
_STAYS: Final = re.compile(r" +(?:nopreempt|preempt_delay \S+)")
_DEFAULT_INTERVAL: Final = 1.0


@dataclass(frozen=True, slots=True)
class LoweredConfig:
    """*names* are the instances whose priority is lower now, *seconds* the time in which others take them over."""

    localized: LocalizedConfig
    names: frozenset[str] = frozenset()
    seconds: float = 0.0


def lowered(localized: LocalizedConfig) -> LoweredConfig:
    """The configuration *localized* with the lowest priority in each instance that another node may take over."""
    found = blocks.split(localized.text)
    moving = {each.name: each for each in found if each.name and _may_move(each)}
    text = blocks.joined(_lowered(each) if each.name in moving else each for each in found)
    instances = tuple(
        replace(each, priority=LOWEST) if each.name in moving else each for each in localized.configuration.instances
    )
    return LoweredConfig(
        replace(localized, text=text, configuration=ParsedConfig(instances)),
        frozenset(moving),
        INTERVALS * max(map(_interval, moving.values()), default=0.0),
    )


def _may_move(block: Block) -> bool:
    has_priority = any(_PRIORITY.fullmatch(line) for line in block.lines)
    return has_priority and not any(_STAYS.fullmatch(line) for line in block.lines) and _may_have_peers(block)


def _may_have_peers(block: Block) -> bool:
    """Whether *block* has a unicast peer, or uses multicast, where peers are unknown."""
    lines: Iterator[str] = iter(block.lines)
    for line in lines:
        if line.strip() == "unicast_peer {":
            return next(lines, "").strip() != "}"
    return True


def _lowered(block: Block) -> Block:
    return replace(block, lines=tuple(_PRIORITY.sub(rf"\g<1>priority {LOWEST}", line) for line in block.lines))


def _interval(block: Block) -> float:
    found = (match for line in block.lines if (match := _INTERVAL.fullmatch(line)))
    return max((float(match[1]) for match in found), default=_DEFAULT_INTERVAL)
