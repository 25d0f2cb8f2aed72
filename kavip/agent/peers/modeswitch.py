"""
When a static group leaves multicast: at one instant, and only if every node has the new file. PURE.

Nodes in multicast and nodes in unicast do not hear each other. So a node whose keepalived runs multicast keeps it until
all others report the same file, which they do once they have read the Nodes. The first node that sees this announces an
instant in its ``/state``; all others take the earliest instant that they see. Each node switches by its own clock.
"""

from collections.abc import Iterable
from typing import Final

from kavip.agent.config.model import LocalizedConfig
from kavip.agent.peers.membership import Contacts
from kavip.api.agent import Standing

LEAD: Final = 6.0
"""Seconds from the announcement to the instant: the others ask every half second."""
LONGEST: Final = 60.0
"""Seconds that an announced instant may lie ahead; a later one is ignored."""


def runs_multicast(running: LocalizedConfig | None) -> bool:
    """Whether keepalived with *running* has instances, and all of them are multicast."""
    return running is not None and bool(running.configuration.instances) and "unicast_peer {" not in running.text


def switch_time(
    known: float, file_hash: str, others: Iterable[str], contacts: Contacts, *, now: float
) -> tuple[float, str]:
    """
    The instant of the switch to the file with *file_hash*, 0 if there is none, and the node that it waits for.

    *known*: the instant that this node knew before. *now* is the wall clock. A node that has switched before, while
    this one was away, makes it switch at once.
    """
    answers = [each.answer for each in contacts.values() if each.answer and each.answer.file == file_hash]
    if any(each.standing is Standing.JOINED for each in answers):
        return min(now, known or now), ""
    announced = [each.switch_at for each in answers if 0 < each.switch_at <= now + LONGEST]
    if known or announced:
        return min([*announced, *filter(None, [known])]), ""
    for name in sorted(others):
        contact = contacts.get(name)
        if contact is None or contact.failures or contact.answer is None or contact.answer.file != file_hash:
            return 0.0, name
    return now + LEAD, ""
