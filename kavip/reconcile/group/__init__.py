"""
Reconciles one KeepalivedGroup: its objects, its status, and which of its Services are looked at again. PURE.

* :mod:`~kavip.reconcile.group.reconcile`: the plan of one group;
* :mod:`~kavip.reconcile.group.inactive`: groups that kavip does not serve;
* :mod:`~kavip.reconcile.group.desired`: members, nodes, VRIDs, port, model and text;
  :mod:`~kavip.reconcile.group.sizing`: what fits into one ConfigMap;
  :mod:`~kavip.reconcile.group.endpoints`: Services with policy ``Local``;
* :mod:`~kavip.reconcile.group.objects`: the objects that exist, and which are applied;
  :mod:`~kavip.reconcile.group.manifests`, :mod:`~kavip.reconcile.group.monitoring`: these objects as data;
* :mod:`~kavip.reconcile.group.pods`: the annotations of its pods;
* :mod:`~kavip.reconcile.group.accepted`: its condition ``Accepted``; :mod:`~kavip.reconcile.group.status`: its status;
* :mod:`~kavip.reconcile.group.members`: which of its Services have outdated conditions.
"""
