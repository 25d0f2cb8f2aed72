"""
The node side: makes keepalived on one node run what the controller wrote for the group, and reports how it went.

It knows no Kubernetes: its input is a mounted ConfigMap and Secret, its output a file, a signal and an HTTP port.

* :mod:`~kavip.agent.main`: starts; :mod:`~kavip.agent.reconciler`: the loop, from mount to daemon to state;
* :mod:`~kavip.agent.watch`: wakes the loop, by :mod:`~kavip.agent.inotify` and :mod:`~kavip.agent.rtnetlink`;
* :mod:`~kavip.agent.mount`: what kubelet mounts; :mod:`~kavip.agent.netlink`: interfaces and addresses;
* :mod:`~kavip.agent.config`: the node's configuration, made from the group's (PURE);
* :mod:`~kavip.agent.keepalived`: the daemon: test, install, reload, monitor;
* :mod:`~kavip.agent.health`: health checks, and endpoints of Services with policy ``Local``;
* :mod:`~kavip.agent.joining`: a new pod that has another password than the others;
* :mod:`~kavip.agent.http`: the port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``.
"""
