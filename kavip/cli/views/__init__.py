"""
What the commands show: decisions over a Snapshot, as text or JSON. PURE.

* :mod:`~kavip.cli.views.simulate`: check, plan and render without a cluster; :mod:`~kavip.cli.views.tables`: the plan
  for people;
* :mod:`~kavip.cli.views.diff`: what files would change in a cluster; :mod:`~kavip.cli.views.switchover`: what of it all
  nodes change at one instant;
* :mod:`~kavip.cli.views.static`: a group without an API server, as static pods or systemd units;
* :mod:`~kavip.cli.views.explain`: why a Service has its addresses, or none; :mod:`~kavip.cli.views.explanation`: that
  as text and JSON; :mod:`~kavip.cli.views.unmanaged`: why kavip does not manage a Service;
* :mod:`~kavip.cli.views.status`: every VIP with its owner, and the state of groups, pools and nodes.
"""
