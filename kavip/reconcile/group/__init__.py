"""
Reconciles one KeepalivedGroup. PURE.

* :mod:`~kavip.reconcile.group.reconcile`: the plan of one group, in these steps;
* :mod:`~kavip.reconcile.group.inactive`: the plan of a group that kavip does not serve;
* :mod:`~kavip.reconcile.group.existing`: what exists: pods, running revision, foreign objects;
* :mod:`~kavip.reconcile.group.desired`: what should run:
  :mod:`~kavip.reconcile.group.members`: its Services, each with its VIPs;
  :mod:`~kavip.reconcile.group.routerids`: the VRID of each instance;
  :mod:`~kavip.reconcile.group.deadnodes`: the dead nodes, which spread VIPs avoid;
  :mod:`~kavip.reconcile.group.lackingnodes`: the nodes without an interface that a pool names;
  :mod:`~kavip.reconcile.group.placedunits`: the instances that keep their place;
  :mod:`~kavip.reconcile.group.successors`: the nodes that may take over from a drained one with ``noPreempt``;
  :mod:`~kavip.reconcile.group.configuration`: the text, and what of it may roll from node to node;
  :mod:`~kavip.reconcile.group.configtemplate`: the text with the lines of a template;
  :mod:`~kavip.reconcile.group.notation`: whether its text may be compact or packed;
  :mod:`~kavip.reconcile.group.sizing`: what fits into one ConfigMap;
  :mod:`~kavip.reconcile.group.links`: what nodes need of pools besides the text;
  :mod:`~kavip.reconcile.group.localpolicy`: how nodes learn of endpoints for ``externalTrafficPolicy: Local``;
  :mod:`~kavip.reconcile.group.detection`: what agents need to find out whether another machine has a VIP;
* :mod:`~kavip.reconcile.group.rollout`: what to publish, apply and replace now:
  :mod:`~kavip.reconcile.group.objects`: the objects to apply;
  :mod:`~kavip.reconcile.group.annotations`: the pods to annotate;
  :mod:`~kavip.reconcile.group.manifests`: these objects as data;
  :mod:`~kavip.reconcile.group.podtemplate`: the DaemonSet after the patches of its pods;
* :mod:`~kavip.reconcile.group.outdated`: the Services whose conditions are outdated;
  :mod:`~kavip.reconcile.group.served`: those that are served and report it, which need no comparison;
* :mod:`~kavip.reconcile.group.status`: the status, and its conditions :mod:`~kavip.reconcile.group.accepted`,
  :mod:`~kavip.reconcile.group.programmed`, :mod:`~kavip.reconcile.group.ready`;
  :mod:`~kavip.reconcile.group.instances`: which node is master of each instance and VIP;
* :mod:`~kavip.reconcile.group.moves`: Events about VIPs that have moved to another node.
"""
