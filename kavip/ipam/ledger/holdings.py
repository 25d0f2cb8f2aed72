"""
What one Service holds: its status and externalIPs, and the status writes that the watch has not shown yet.

*A stale cache never moves an address.* Between a status write and its return through the watch, the Service holds its
old and its new addresses, and decisions use the new ones. A write is conditional on the resourceVersion that it was
decided on. Any later version therefore either contains the write or proves that it failed; both end the expectation.
Expectations are kept in a list until then: a second write that gets a 409 must not remove the first, which may be the
cause of the 409.
"""

from collections.abc import Collection, Iterable
from itertools import islice
from typing import NamedTuple

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.ledger.claims import AddressClaim
from kavip.ipam.request import Terms, read_request, terms_of_unknown
from kavip.names import MAX_VIPS


class Expectation(NamedTuple):
    """A status write with *addresses*, conditional on the resourceVersion *since* ("": not conditional)."""

    addresses: tuple[Address, ...]
    since: str


class Holding(NamedTuple):
    """
    One Service: its addresses in status (*current*) and in externalIPs (*external*), as observed in *version*.

    *wanted*: addresses requested by name. *served*: those of *external* that kavip announces. *expected*: writes that
    were not observed yet, newest last.
    """

    terms: Terms
    current: tuple[Address, ...] = ()
    external: tuple[Address, ...] = ()
    wanted: tuple[Address, ...] = ()
    version: str = ""
    served: tuple[Address, ...] = ()
    expected: tuple[Expectation, ...] = ()

    @classmethod
    def of(cls, service: Service, *, default_group: str = "") -> "Holding":
        """The holding of *service*, which belongs to *default_group* if it declares none."""
        request, _ = read_request(service)
        wanted = request.wanted if service.is_load_balancer else ()
        external, version = service.external_addresses, service.metadata.resource_version
        terms = request.terms.within(default_group) if service.is_load_balancer else request.terms
        served = _served(service, request.current) if external else ()
        return cls(terms, request.current, external, wanted, version, served)

    @classmethod
    def unknown(cls, key: str) -> "Holding":
        """The holding of a Service that was not observed yet."""
        return cls(terms_of_unknown(key))

    @property
    def held(self) -> tuple[Address, ...]:
        """The addresses in status after all expected writes."""
        return self.expected[-1].addresses if self.expected else self.current

    @property
    def is_satisfied(self) -> bool:
        """Whether the Service has an address, and every address that it requests by name."""
        return bool(self.current) and set(self.wanted).issubset(self.current)

    def is_observed(self, address: Address) -> bool:
        """Whether *address* was observed on the Service, not merely expected."""
        return address in self.current or address in self.external

    def claims(self) -> dict[Address, AddressClaim]:
        """Every address that no other Service may be assigned now."""
        result: dict[Address, AddressClaim] = {}
        if self.external:
            result = dict.fromkeys(self.external, AddressClaim(self.terms, in_status=False, is_served=False))
            result.update(dict.fromkeys(self.served, AddressClaim(self.terms, in_status=False)))
        if self.current or self.expected:
            in_status = AddressClaim(self.terms, in_status=True)
            result.update(dict.fromkeys(self.current, in_status))
            for expectation in self.expected:
                result.update(dict.fromkeys(expectation.addresses, in_status))
        return result

    def expecting(self, addresses: Iterable[Address], since: str) -> "Holding":
        """The same with one more expected write."""
        return Holding(*self[:-1], (*self.expected, Expectation(tuple(addresses), since)))  # faster than _replace()

    def abandoning(self) -> "Holding":
        """The same without the newest expected write, which was certainly not done."""
        return self._replace(expected=self.expected[:-1])

    def observed_after(self, before: "Holding | None") -> "Holding":
        """The same with those expected writes of *before* that this observation does not end."""
        if before is None or not before.expected:
            return self
        return self._replace(expected=tuple(each for each in before.expected if not self._ends(each)))

    def _ends(self, expectation: Expectation) -> bool:
        since = expectation.since
        if not since or not self.version:
            return set(self.current) == set(expectation.addresses)
        if since.isdecimal() and self.version.isdecimal():
            return int(self.version) > int(since)
        return self.version != since


def _served(service: Service, current: Collection[Address]) -> tuple[Address, ...]:
    """The external IPs that kavip announces for *service*, beside the addresses *current*."""
    if service.has_foreign_class:
        return ()
    further = (each for each in service.validated_external_ips if each not in current)
    return tuple(islice(further, max(0, MAX_VIPS - len(current))))
