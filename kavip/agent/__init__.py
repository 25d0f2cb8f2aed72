"""
The node side: makes keepalived on one node run what the controller wrote for the group, and says how it went.

It knows no Kubernetes: its input is a mounted ConfigMap and Secret, its output a file, a signal and an HTTP port.

* :mod:`~kavip.agent.grammar`, :mod:`~kavip.agent.localize`, :mod:`~kavip.agent.dump`, :mod:`~kavip.agent.state`,
  :mod:`~kavip.agent.exporter` decide; they do no I/O.
* :mod:`~kavip.agent.mount`, :mod:`~kavip.agent.files`, :mod:`~kavip.agent.network`, :mod:`~kavip.agent.trial` and
  :mod:`~kavip.agent.daemon` each speak to one thing outside: the mount, the run directory, netlink, a checking child,
  the running daemon.
* :mod:`~kavip.agent.reloader` puts them in order, :mod:`~kavip.agent.server` answers, :mod:`~kavip.agent.run` starts.
"""
