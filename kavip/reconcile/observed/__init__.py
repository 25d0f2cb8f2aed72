"""
What the controller has seen besides the Snapshot. PURE.

* :mod:`~kavip.reconcile.observed.objects`: the last answer of each agent, and the objects that groups own;
* :mod:`~kavip.reconcile.observed.agent`: an answer of ``/state``, decoded;
* :mod:`~kavip.reconcile.observed.mastership`: which node is master of what, by those answers;
* :mod:`~kavip.reconcile.observed.collisions`: VRIDs that another router uses, by keepalived's counters;
* :mod:`~kavip.reconcile.observed.neighbours`: VRIDs and VIPs that nodes of other groups still run;
* :mod:`~kavip.reconcile.observed.operator`: whether keepalived-operator runs;
* :mod:`~kavip.reconcile.observed.ownership`: who made an object of a group.
"""
