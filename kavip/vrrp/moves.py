"""
Which nodes rank first for the units of a group, and which moves of VIPs wait for each other.

Two kinds of moves are made one after the other:

* those that balance a group that asks for it (:mod:`kavip.vrrp.rebalance`);
* those that spread the VIPs of a Service that a text of kavip 0.1.0 has in hash order (:mod:`kavip.vrrp.spread`). The
  text names the units that are spread. A unit that runs, is not named, and would move, keeps its order until its turn.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kavip.vrrp.homes import HomeFinder, PlacedUnits
from kavip.vrrp.priorities import NO_HOMES
from kavip.vrrp.rebalance import Balance
from kavip.vrrp.spread import Lead
from kavip.vrrp.units import Unit


@dataclass(frozen=True, slots=True)
class Placement:
    """
    The *homes* and *leads* of units, by name, see :mod:`kavip.vrrp.homes` and :mod:`kavip.vrrp.placement`.

    *spread*: the units that are spread, sorted. *unspread*: those that must move for that, sorted, with their new
    nodes. *balance*: None if the group does not ask for it. *follows_dead*: dead nodes change the leads. *unspread* and
    *balance* are as they are before the next move.
    """

    homes: Mapping[str, str]
    leads: Mapping[str, Lead]
    spread: tuple[str, ...]
    unspread: tuple[tuple[str, str], ...] = ()
    balance: Balance | None = None
    follows_dead: bool = False


def place(finder: HomeFinder, units: Collection[Unit], placed: PlacedUnits | None) -> Placement:
    """The placement of *units*, with the next move if it may begin; *placed* None: all units follow the hash."""
    homes = finder.homes(units, placed) if placed else NO_HOMES
    settled = finder.leads(units, homes, dead=frozenset())
    leads = finder.leads(units, homes, dead=finder.dead) if finder.dead else settled
    unspread = tuple(sorted(_unspread(finder, units, placed, homes, settled))) if placed else ()
    balance = finder.balance(units, homes) if placed and placed.wants_balance else None
    held = {unit for unit, _ in unspread}
    if placed and placed.may_move:
        if unspread:
            held.discard(unspread[0][0])
        elif balance:
            homes = {**homes, **dict(balance.moves[:1])}
    return Placement(
        homes,
        {unit: lead for unit, lead in leads.items() if unit not in held},
        tuple(sorted(unit.name for unit in units if unit.spread and unit.name not in held)),
        unspread,
        balance,
        follows_dead=leads != settled,
    )


def _unspread(
    finder: HomeFinder,
    units: Collection[Unit],
    placed: PlacedUnits,
    homes: Mapping[str, str],
    leads: Mapping[str, Lead],
) -> Iterator[tuple[str, str]]:
    """The units that run, are not spread, and have another first node without their lead; with the node they need."""
    for unit in units:
        if unit.name in leads and unit.name in placed.names and unit.name not in placed.spread:
            node = finder.first_node(unit, homes, leads[unit.name])
            if node != finder.first_node(unit, homes):
                yield unit.name, node
