"""
The node side: makes keepalived on one node run what the controller wrote for the group, and reports the result.

It does not talk to Kubernetes: its input is a mounted ConfigMap and Secret, its output files, signals, an HTTP port.

* :mod:`~kavip.agent.main`: settings, and the parts put together; :mod:`~kavip.agent.reconciler`: the loop;
* :mod:`~kavip.agent.watch`: wakes the loop, by :mod:`~kavip.agent.inotify` and :mod:`~kavip.agent.rtnetlink`;
* :mod:`~kavip.agent.desired`: what should run, from the :mod:`~kavip.agent.mount`; :mod:`~kavip.agent.newpassword`:
  whether a new pod has the password of the others (PURE);
* :mod:`~kavip.agent.preparation`: localise, test, exclude; :mod:`~kavip.agent.config`: the node's configuration, made
  from the group's (PURE);
* :mod:`~kavip.agent.peers`: the nodes of a static group, which the agents keep current by themselves;
* :mod:`~kavip.agent.conflicts`: whether another machine on the LAN has a VIP;
* :mod:`~kavip.agent.handover`: hands VIPs over when the pod ends;
* :mod:`~kavip.agent.keepalived`: the daemon: test, install, reload, monitor;
* :mod:`~kavip.agent.health`: health checks, and endpoints of Services with policy ``Local``;
* :mod:`~kavip.agent.network`: interfaces, addresses and routes; removes stale addresses;
* :mod:`~kavip.agent.returnrouting`: leads replies back by the gateways of pools, with :mod:`~kavip.agent.nftables`,
  :mod:`~kavip.agent.policyrouting` (routing rules and routes), :mod:`~kavip.agent.netlinkqueries` (quick questions to
  the kernel) and :mod:`~kavip.agent.nodesockets` (which agents live on the node);
* :mod:`~kavip.agent.reporter`: the status; :mod:`~kavip.agent.report`: ``/state`` and metrics made from it (PURE);
* :mod:`~kavip.agent.http`: the port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``.
"""
