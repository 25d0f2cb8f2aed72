"""
What one Service holds: what stands in its status and externalIPs, and what is written and not yet seen.

*A stale cache never moves an address.* Between a status write and its return through the watch the Service has its old
addresses and the new ones, and the new ones are what it holds. A write is conditional on the resourceVersion that it
was decided on, so whatever follows that version either contains the write or proves that it failed: either way the
expectation ends. Expectations pile up until then: a second write that meets a 409 must not forget the first, which may
be the very reason of the 409.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.ledger.claims import Claim
from kavip.ipam.request import Terms, read_request, terms_of_unknown


class Expectation(NamedTuple):
    """A status write with *addresses*, conditional on the resourceVersion *since* ("": not conditional)."""

    addresses: tuple[Address, ...]
    since: str


class Holding(NamedTuple):
    """One Service: *current* and *external* as seen in *version*, *wanted* by name, *expected* writes, newest last."""

    terms: Terms
    current: tuple[Address, ...] = ()
    external: tuple[Address, ...] = ()
    wanted: tuple[Address, ...] = ()
    version: str = ""
    expected: tuple[Expectation, ...] = ()

    @classmethod
    def of(cls, service: Service, *, default_group: str = "") -> "Holding":
        """What *service* shows, which belongs to *default_group* where it declares none."""
        request, _ = read_request(service)
        wanted = request.wanted if service.is_load_balancer else ()
        external, version = service.external_addresses, service.metadata.resource_version
        terms = request.terms.within(default_group) if service.is_load_balancer else request.terms
        return cls(terms, request.current, external, wanted, version)

    @classmethod
    def unknown(cls, key: str) -> "Holding":
        """What a Service holds that has not been seen yet."""
        return cls(terms_of_unknown(key))

    @property
    def held(self) -> tuple[Address, ...]:
        """The addresses in status, as soon as all writes are seen."""
        return self.expected[-1].addresses if self.expected else self.current

    def shows(self, address: Address) -> bool:
        """Whether *address* was seen with the Service, not merely expected."""
        return address in self.current or address in self.external

    def claims(self) -> dict[Address, Claim]:
        """Every address that nobody else may be given now."""
        result = dict.fromkeys(self.external, Claim(self.terms, standing=False)) if self.external else {}
        if self.current or self.expected:
            standing = Claim(self.terms, standing=True)
            result.update(dict.fromkeys(self.current, standing))
            for expectation in self.expected:
                result.update(dict.fromkeys(expectation.addresses, standing))
        return result

    def expecting(self, addresses: Iterable[Address], since: str) -> "Holding":
        """The same, with one more write under way."""
        return self._replace(expected=(*self.expected, Expectation(tuple(addresses), since)))

    def abandoning(self) -> "Holding":
        """The same, without the newest write, which was surely not done."""
        return self._replace(expected=self.expected[:-1])

    def seen_after(self, before: "Holding | None") -> "Holding":
        """The same, with those writes of *before* that this observation does not settle."""
        if before is None or not before.expected:
            return self
        return self._replace(expected=tuple(each for each in before.expected if not self._settles(each)))

    def _settles(self, expectation: Expectation) -> bool:
        since = expectation.since
        if not since or not self.version:
            return set(self.current) == set(expectation.addresses)
        if since.isdecimal() and self.version.isdecimal():
            return int(self.version) > int(since)
        return self.version != since
