"""
The table of decisions: for which cases of other projects kavip has the expected outcome, for which another, and why.

``python -m tests.ipam.decided`` writes ``cases/DECIDED.md``; a test compares.
"""

from collections.abc import Iterator
from typing import Final

from tests.ipam.caserun import FILES, FOLDER, Json

PAGE: Final = FOLDER / "DECIDED.md"

ON_PURPOSE: Final = {
    "A16": "admission refuses the edit; once made it costs the younger sharer the address, as in N04",
    "A17": "admission refuses the edit; once made it costs the younger sharer the address, as in N04",
    "C04": "the API server never lets a Service change its first family; if it did, the address of a family that the "
    "Service no longer has would go, and one of its own family come",
    "F04": "a pool that is shrunk under a holder strands it: the address stays, with a condition",
    "F08": "an address that a pool no longer hands out is stranded: it stays, with a condition",
    "J10": "a newly requested address that is not available removes nothing: the old one stays while it is legal",
    "J14": "an address outside every pool that another controller wrote is respected: ForeignStatus",
    "J24": "foreign status of a family that the Service does not have is left alone: ForeignStatus",
    "J36": "a request for one family of a dual-stack Service is served, and the other family is added",
    "J38": "a host name in status is another controller's: ForeignStatus",
    "J44": "several addresses in status are adopted or left alone, never removed (one is in no pool)",
    "K01": "a pool that vanishes under a holder strands it: the address stays, with a condition",
    "L06": "names are unique at the API server: there is no second pool of a name, only an update of the first",
    "L10": "a selector may list a value twice",
    "P32": "a pool that is shrunk under a holder strands it: the address stays, with a condition",
    "P47": "a host name in status is another controller's: ForeignStatus",
    "P52": "foreign status of a family that the Service does not have is left alone: ForeignStatus",
    "P64": "a request for one family of a dual-stack Service is served, and the other family is added",
    "P71": "a pool that is deleted under a holder strands it: the address stays, with a condition",
    "P86": "a bare address in a pool is a /32 or a /128: there is no other meaning",
    "P87": "a CIDR with host bits set is refused: it is as likely a typing error as a network",
    "V02": "an address that another Service has is shared only by a sharing key that both carry, never silently",
    "V25": "ranges of one pool that overlap are refused, and the message names both: one of them is a mistake",
    "V26": "a CIDR with host bits set is refused; and .0 is given, as MetalLB does, unless avoidBuggyIPs",
    "V29": "fe80::/10 is link-local: no pool may hold it",
    "CI12": "the first and the last address of a CIDR are given, as MetalLB does (.0 and .255 not with avoidBuggyIPs)",
    "CI15": "at most one address per family: InvalidRequest",
    "CI19": "a pool that is deleted under a holder strands it: the address stays, with a condition",
    "CI20": "a pool that is shrunk under a holder strands it: the address stays, with a condition",
    "CI21": "a selector that no longer matches removes no address: the holder is stranded, with a condition",
    "CI22": "a removed label removes no address: the holder is stranded, with a condition",
    "CI26": "an address outside every pool that another controller wrote is respected: ForeignStatus",
    "O04": "an address outside every pool that another controller wrote is respected: ForeignStatus",
    "O05": "text that is no address is not kavip's: ForeignStatus (the API server accepts none)",
    "O07": "an unreadable request is reported (InvalidRequest), not replaced by another one",
    "O08": "an unavailable address is reported (AddressInUse), not replaced by another one",
    "N04": "when an edit of either Service ends the sharing of an address, the older Service keeps it",
    "N06": "a pool that is deleted under a holder strands it: the address stays, with a condition",
}
"""The cases with another outcome in kavip, each with the reason."""


def page() -> str:
    """The table as a page for people."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Outcomes of the test cases of other projects, and of our own"
    yield ""
    total = sum(len(book["cases"]) for book in FILES)
    yield f"{total} cases, {len(ON_PURPOSE)} of them with another outcome on purpose. Written by `python -m"
    yield "tests.ipam.decided`; `tests/ipam/test_cases.py` runs each case and compares this page with the outcome."
    for book in FILES:
        source = book["source"]
        yield ""
        yield f"## {_origin(source)}"
        yield ""
        if "repository" in source:
            yield f"{source['repository']}, {source['licence_of_source']}; {source['form']}."
        else:
            yield f"{source['form']}."
        yield ""
        yield "| case | what | decided |"
        yield "|---|---|---|"
        for case in book["cases"]:
            why = ON_PURPOSE.get(case["id"])
            decided = f"otherwise: {why}" if why else "as expected"
            yield f"| {case['id']} | {case['title'].replace('|', ' ')} | {decided} |"


def _origin(source: Json) -> str:
    if "repository" not in source:
        return f"{source['project']}'s own"
    version = source.get("version") or f"commit {source['commit'][:7]}"
    return f"{source['project']}, {version}"


if __name__ == "__main__":
    PAGE.write_text(page())
