"""
How the nodes of a group come to run another configuration. PURE.

* :mod:`~kavip.reconcile.rollout.configmap`: what the ConfigMap holds: the text that runs, and the one that follows;
* :mod:`~kavip.reconcile.rollout.peers`: peers are added before and removed after;
* :mod:`~kavip.reconcile.rollout.switchover`: changes that all nodes make at one instant;
* :mod:`~kavip.reconcile.rollout.readiness`: which nodes are not ready for such a change.
"""
