"""
The objects on which a command decides, and what could not be read.
"""

from dataclasses import dataclass, field, replace

from kavip import names
from kavip.admission.chain import PolicyOptions
from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
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


def settings_in(cluster: Listing | None, settings: PolicyOptions) -> PolicyOptions:
    """*settings*, with templates permitted also where the kavip of *cluster* has accepted a group with one."""
    groups = (each for each in (cluster.objects if cluster else ()) if isinstance(each, KeepalivedGroup))
    templated = (each for each in groups if each.spec.pod_template or each.spec.config_template_ref)
    permitted = {each.metadata.namespace for each in templated if _is_accepted(each)}
    templates = replace(settings.templates, namespaces=settings.templates.namespaces | permitted)
    return replace(settings, templates=templates)


def _is_accepted(group: KeepalivedGroup) -> bool:
    """Whether kavip has accepted *group* as it is now."""
    found = conditions.find(group.status.conditions, names.ConditionType.ACCEPTED)
    return found is not None and (found.status, found.observed_generation) == ("True", group.metadata.generation)
