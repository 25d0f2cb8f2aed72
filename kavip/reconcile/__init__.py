"""
The decisions of the controller: Snapshot and Observed in, Plan out. PURE.

* :mod:`~kavip.reconcile.plan`: keys, and Plans: the writes, Events and requeue of one reconcile;
* :mod:`~kavip.reconcile.enqueue`: which keys a watch event concerns; :mod:`~kavip.reconcile.predicate`: whether the
  event is kavip's own status write;
* :mod:`~kavip.reconcile.observed`: ``Observed``: answers of agents, owned objects, keepalived-operator;
* :mod:`~kavip.reconcile.service`: one Service; :mod:`~kavip.reconcile.pool`: one VIPPool;
  :mod:`~kavip.reconcile.group`: one KeepalivedGroup: VRIDs, configuration, objects, status;
* :mod:`~kavip.reconcile.rollout`: how the nodes of a group come to run another configuration;
* :mod:`~kavip.reconcile.takeover`: how a group is taken over from keepalived-operator, and its old pods are deleted;
* :mod:`~kavip.reconcile.chartvalues`: the pools and groups of the chart's values;
* :mod:`~kavip.reconcile.segmentids`: the VRIDs that other groups take; :mod:`~kavip.reconcile.mergepatch`,
  :mod:`~kavip.reconcile.text`: shared helpers.
"""
