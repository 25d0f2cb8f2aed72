"""
What is asked of a VIPPool (contract 3.4).

Shape and overlap are judged by :mod:`kavip.ipam.pools`, with the controller's own parser; here stands what an edit or a
deletion does to the Services that hold addresses.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.ipam.addresses import find
from kavip.ipam.pool import Pool, cautions, parse_pool
from kavip.ipam.request import read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.webhook.checks import Caution, Check, Context, Finding, spec_part
from kavip.webhook.verdict import counted, listed

Findings = Iterator[Finding]
Cluster = Context[VIPPool]


class Held(NamedTuple):
    """An address of a pool in use: *standing* in the status of Service *key*, else in its externalIPs."""

    address: Address
    key: str
    standing: bool

    def __str__(self) -> str:
        """As messages list it."""
        return f"{self.address} ({self.key})"


def pool_is_sound(pool: VIPPool, context: Cluster) -> Findings:
    """Ranges, exclusions and reservations can be read and fit, and no other pool has the same addresses."""
    yield from context.snapshot.parsed_pools.check(pool)
    yield from map(Caution, cautions(pool))


def nobody_is_stranded(pool: VIPPool, context: Cluster) -> Findings:
    """No address that a Service holds falls out of the pool."""
    new, _ = parse_pool(pool)
    old = context.snapshot.parsed_pools.get(pool.name)
    if new is None or old is None:
        return
    lost: defaultdict[str, list[Held]] = defaultdict(list)
    for held in _held(old, context.snapshot):
        if old.is_usable(held.address) and not new.is_usable(held.address):
            lost[_loser(held.address, new)].append(held)
    for field, addresses in sorted(lost.items()):
        yield from _stranding(pool, addresses, field, "leaves")


def nobody_holds_an_address(pool: VIPPool, context: Cluster) -> Findings:
    """No Service holds an address of a pool that goes."""
    old = context.snapshot.parsed_pools.get(pool.name)
    if old is not None:
        yield from _stranding(pool, list(_held(old, context.snapshot)), "metadata.name", "deleting the pool leaves")


def holders_still_match(pool: VIPPool, context: Cluster) -> Findings:
    """Those who hold addresses could have them anew: nobody moves, but their owners should know."""
    new, _ = parse_pool(pool)
    old = context.snapshot.parsed_pools.get(pool.name)
    if new is None or old is None:
        return
    strangers = [held for held in _held(old, context.snapshot) if _is_new_stranger(held, old, new, context.snapshot)]
    if strangers:
        keys = sorted({held.key for held in strangers})
        yield Caution(f"spec: no longer serves {listed(keys, most=3)}; they keep their addresses, as stranded")


def _is_new_stranger(held: Held, old: Pool, new: Pool, snapshot: Snapshot) -> bool:
    service = snapshot.services.get(held.key)
    if service is None:
        return False
    request, _ = read_request(service, group=snapshot.group_of(service))
    labels = snapshot.namespace_labels(request.namespace)
    was, now = (
        bool(pool.mismatch(request, labels)) or pool.reservations.get(held.address, held.key) != held.key
        for pool in (old, new)
    )
    return now and not was


def _held(pool: Pool, snapshot: Snapshot) -> Iterator[Held]:
    for address, terms, standing in snapshot.ledger.assigned(pool):
        yield Held(address, terms.key, standing)


def _loser(address: Address, pool: Pool) -> str:
    """The field by which *pool* has lost *address*."""
    if find(pool.ranges, address) is None:
        return "spec.addresses"
    return "spec.exclude" if find(pool.usable, address) is None else "spec.avoidBuggyIPs"


def _stranding(pool: VIPPool, held: list[Held], field: str, what: str) -> Findings:
    """Refuse to strand what stands in a status, unless the annotation allows it; of externalIPs, warn."""
    standing = [each for each in held if each.standing]
    external = [each for each in held if not each.standing]
    if standing:
        count = counted(len(standing), "address", plural="addresses")
        text = f"{what} {count} in use without a pool: {listed(standing)}"
        if pool.metadata.annotation(names.ALLOW_STRANDING_ANNOTATION) == "true":
            yield Caution(f"{field}: {text}")
        else:
            remedy = f'move these Services first, or annotate the pool {names.ALLOW_STRANDING_ANNOTATION}: "true"'
            yield Refusal(Reason.STRANDED, f"{text}; {remedy}", field)
    if external:
        yield Caution(f"{field}: {what} externalIPs without a pool: {listed(external, most=3)}")


CHAIN: Final[tuple[Check[VIPPool], ...]] = (
    Check(pool_is_sound, reads=spec_part),
    Check(nobody_is_stranded, reads=spec_part),
    Check(holders_still_match, reads=spec_part),
)
DELETION: Final[tuple[Check[VIPPool], ...]] = (Check(nobody_holds_an_address, reads=spec_part),)
