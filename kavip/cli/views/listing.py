"""
The objects on which a command decides, and what could not be read.
"""

from dataclasses import dataclass, field

from kavip.api.workload import ConfigMap, Written
from kavip.snapshot import Object


@dataclass(frozen=True, slots=True)
class Listing:
    """
    The objects of a cluster, or of files.

    *absent*: the kinds of which no object can be known. *hidden*: by kind, why not all of its objects could be read.
    *notes*: what the user must know of both. *written*: by ``Kind ns/name``, the objects that kavip made for groups.
    *templates*: ConfigMaps that groups name. *watch_error*: why the objects may be outdated, "" if they are current.
    """

    objects: tuple[Object, ...] = ()
    absent: frozenset[str] = frozenset()
    hidden: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    written: dict[str, Written] = field(default_factory=dict)
    templates: tuple[ConfigMap, ...] = ()
    watch_error: str = ""
