"""
The second input of a decision: what the controller has observed besides the Snapshot.
"""

from dataclasses import dataclass, field

from kavip.podtemplate.defaulttemplate import NO_TEMPLATE, DefaultTemplate
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.records import Records
from kavip.reconcile.observed.templates import ConfigTemplates


@dataclass(frozen=True, slots=True)
class Observed:
    """
    What decisions read besides the Snapshot, and never change.

    *agents*: what the agents reported. *objects*: the objects that groups own. *records*: what the controller recorded
    of its own plans and writes. *template*: the patch of the pods of every group. *templates*: those of
    ``keepalived.conf``.
    """

    agents: AgentStates = field(default_factory=AgentStates)
    objects: OwnedObjects = field(default_factory=OwnedObjects)
    records: Records = field(default_factory=Records)
    template: DefaultTemplate = NO_TEMPLATE
    templates: ConfigTemplates = field(default_factory=ConfigTemplates)
