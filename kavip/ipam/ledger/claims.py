"""
Who holds one address: any number of Services claim it, and age decides among those that cannot share.

A *standing* claim is an address that is in a Service's status, or about to be; an external one stands in
``spec.externalIPs``. Whoever writes externalIPs cannot take an address away from its holder: they only keep it from
being handed out.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kavip.ipam.request import Port, Terms


class Claim(NamedTuple):
    """One Service's hold on one address."""

    terms: Terms
    standing: bool


def can_share(one: Terms, other: Terms) -> bool:
    """Whether two Services may hold one address together."""
    return one.sharing is not None and one.sharing == other.sharing and one.ports.isdisjoint(other.ports)


def holders(claims: Collection[Claim]) -> tuple[Terms, ...]:
    """
    The Services that keep the address: the oldest, and those that can share it with all older ones that keep it.

    A function of the set of claims, so that the answer never depends on the order of events.
    """
    standing = sorted((claim.terms for claim in claims if claim.standing), key=lambda terms: terms.age)
    if not standing:
        return ()
    oldest, kept = standing[0], [standing[0]]
    ports: set[Port] = set(oldest.ports)
    for terms in standing[1:]:
        if oldest.sharing is not None and terms.sharing == oldest.sharing and ports.isdisjoint(terms.ports):
            kept.append(terms)
            ports |= terms.ports
    return tuple(kept)


def rival(claims: Iterable[Claim], terms: Terms) -> Terms | None:
    """The oldest other Service that *terms* cannot share the address with."""
    others = (claim.terms for claim in claims if claim.terms.key != terms.key)
    return min((other for other in others if not can_share(other, terms)), key=lambda other: other.age, default=None)


def why_not_shared(terms: Terms, other: Terms) -> str:
    """What keeps *terms* from sharing with *other*. Completes "because ..."."""
    mine, theirs = terms.sharing, other.sharing
    if mine is None or theirs is None:
        return f"{(terms if mine is None else other).key} has no kavip.io/sharing-key"
    if mine.namespace != theirs.namespace:
        return "it is in another namespace"
    if mine.key != theirs.key:
        return f"{other.key} has another kavip.io/sharing-key"
    if mine.group != theirs.group:
        return f"{other.key} belongs to another KeepalivedGroup"
    if (mine.backend is None) != (theirs.backend is None):
        return "only one of the two has externalTrafficPolicy: Local"
    if mine.backend != theirs.backend:
        return "with externalTrafficPolicy: Local both need the same selector"
    clash = ", ".join(f"{protocol}/{port}" for protocol, port in sorted(terms.ports & other.ports))
    return f"both use {clash}"
