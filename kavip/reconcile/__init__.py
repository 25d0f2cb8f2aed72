"""
What a decision of the controller is, and how it is reached: Snapshot and Observed in, Plan out. PURE.

* :mod:`~kavip.reconcile.plan`: keys, and Plans: the writes, Events and requeue of one reconcile;
* :mod:`~kavip.reconcile.enqueue`: which keys a watch event concerns; :mod:`~kavip.reconcile.predicate`: whether the
  event is our own status write;
* :mod:`~kavip.reconcile.observed`: what was seen besides the Snapshot: agents, owned objects, keepalived-operator;
* :mod:`~kavip.reconcile.service`: one Service; :mod:`~kavip.reconcile.pool`: one VIPPool;
  :mod:`~kavip.reconcile.group`: one KeepalivedGroup;
* :mod:`~kavip.reconcile.rollout`: how a group's nodes come to run another configuration;
* :mod:`~kavip.reconcile.migration`: how a group is taken over from keepalived-operator;
* :mod:`~kavip.reconcile.vrids`: the VRIDs that a group may use; :mod:`~kavip.reconcile.mergepatch`,
  :mod:`~kavip.reconcile.text`: what several of them share.
"""
