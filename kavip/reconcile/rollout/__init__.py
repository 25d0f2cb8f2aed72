"""
How the nodes of a group come to run another configuration. PURE.

* :mod:`~kavip.reconcile.rollout.configmap`: what the ConfigMap publishes: the current revision and the next one, with
  the interfaces and routes of pools (:mod:`~kavip.reconcile.rollout.poollinks`);
* :mod:`~kavip.reconcile.rollout.peers`: which nodes join or leave next, so that all hear each other at any time;
* :mod:`~kavip.reconcile.rollout.difference`: whether a change may roll from node to node;
* :mod:`~kavip.reconcile.rollout.switchover`: the changes that may not: all nodes make them at one instant;
  :mod:`~kavip.reconcile.rollout.readiness`: which nodes are not ready for that.
"""
