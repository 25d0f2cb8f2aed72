"""Ledgers to ask, and Services to look at."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import settle, waits_for
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from tests.support.build import pool

EDGE = pool("edge", "192.0.2.0/29", "2001:db8::/125")
SHARE = {names.SHARING_KEY_ANNOTATION: "web"}
DUAL: dict[str, Any] = {"families": ("IPv4", "IPv6")}


def ip(text: str) -> Address:
    """An address."""
    return parse_address(text)


def at(version: int, found: Service) -> Service:
    """*found* as it was at a resourceVersion."""
    meta = msgspec.structs.replace(found.metadata, resource_version=str(version))
    return msgspec.structs.replace(found, metadata=meta)


def ledger_of(*services: Service, pools: Pools | None = None) -> Ledger:
    """A ledger over one pool that has seen *services*."""
    ledger = Ledger(pools or Pools.of([EDGE]))
    for each in services:
        ledger.observe(each.key, each)
    return ledger


def wait(ledger: Ledger, pools: Pools, *services: Service) -> None:
    """Look at *services*, which get nothing, and let them wait."""
    for each in services:
        ledger.observe(each.key, each)
        outcome = settle(each, pools, ledger)
        assert (
            isinstance(outcome, Refusal) or outcome.refusal or len(outcome.addresses) < len(each.spec.ip_families or ())
        )
        request, _ = read_request(each)
        ledger.wait(request, waits_for(request, outcome, pools))
