"""
Everything that a decision may read: one value, filled by informers, by files or by a test.

* :mod:`~kavip.snapshot.snapshot`: :class:`Snapshot`, the objects with their indexes and the ledger;
* :mod:`~kavip.snapshot.objects`: their kinds;
* :mod:`~kavip.snapshot.changes`: what else a change of an object has changed;
* :mod:`~kavip.snapshot.clusterranges`: the ranges that no pool may assign;
* :mod:`~kavip.snapshot.endpoints`: on which nodes a Service answers;
* :mod:`~kavip.snapshot.groupchoice`: which group serves a Service;
* :mod:`~kavip.snapshot.membership`: which Services belong to which group;
* :mod:`~kavip.snapshot.placement`: on which nodes the pods of a group run;
* :mod:`~kavip.snapshot.deletion`: which addresses an object in deletion still holds.
"""

from kavip.snapshot.groupchoice import is_candidate as is_candidate
from kavip.snapshot.objects import KINDS as KINDS
from kavip.snapshot.objects import Object as Object
from kavip.snapshot.snapshot import Snapshot as Snapshot
