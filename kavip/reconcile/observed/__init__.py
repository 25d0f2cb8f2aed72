"""
What the controller has observed besides the Snapshot. PURE.

* :mod:`~kavip.reconcile.observed.observed`: ``Observed``, the second input of every decision, of these parts:
  :mod:`~kavip.reconcile.observed.agentstates`: what the agents reported;
  :mod:`~kavip.reconcile.observed.objects`: the objects that groups own;
  :mod:`~kavip.reconcile.observed.records`: what the controller recorded of its own plans and writes;
  :mod:`~kavip.reconcile.observed.templates`: templates of keepalived.conf, and what came out of them;
* :mod:`~kavip.reconcile.observed.agent`: decodes an answer of ``/state``;
  :mod:`~kavip.reconcile.observed.exporter`: decodes an answer of the exporter in keepalived-operator's pods;
* :mod:`~kavip.reconcile.observed.readynodes`: the ready nodes of a group, by what those answers report;
* :mod:`~kavip.reconcile.observed.mastership`: which node is master of what, by those answers;
* :mod:`~kavip.reconcile.observed.foreignclaims`: VIPs that another machine on the LAN has, by the same answers;
* :mod:`~kavip.reconcile.observed.collisions`: VRIDs that another router uses, by keepalived's counters;
* :mod:`~kavip.reconcile.observed.reported`: what the nodes run by those answers, for a text that is lost;
* :mod:`~kavip.reconcile.observed.neighbours`: VRIDs and VIPs that nodes of other groups still run;
* :mod:`~kavip.reconcile.observed.operator`: whether keepalived-operator runs;
* :mod:`~kavip.reconcile.observed.ownership`: which controller made an object of a group.
"""
