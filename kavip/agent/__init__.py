"""
The node side: makes keepalived on one node run what the controller wrote for the group, and says how it went.

It knows no Kubernetes: its input is a mounted ConfigMap and Secret, its output a file, a signal and an HTTP port.

* :mod:`~kavip.agent.configuration` holds the values. :mod:`~kavip.agent.blocks`, :mod:`~kavip.agent.draft`,
  :mod:`~kavip.agent.reader` and :mod:`~kavip.agent.grammar` read a text, :mod:`~kavip.agent.localize` makes the node's
  of the group's, :mod:`~kavip.agent.facts` knows what the node is, :mod:`~kavip.agent.prune` takes instances out,
  :mod:`~kavip.agent.switch` knows when all nodes switch to what is next, :mod:`~kavip.agent.newcomer` when a new pod
  has another password than they. :mod:`~kavip.agent.dump` is what keepalived says, :mod:`~kavip.agent.state` what the
  agent does, :mod:`~kavip.agent.exporter` both as metrics, those of keepalived by :mod:`~kavip.agent.borrowed` names.
  None of them does I/O.
* :mod:`~kavip.agent.mount`, :mod:`~kavip.agent.files`, :mod:`~kavip.agent.network`, :mod:`~kavip.agent.trial` and
  :mod:`~kavip.agent.daemon` each speak to one thing outside: the mount, the run directory, netlink, a checking child
  (held by :mod:`~kavip.agent.confine`), the running daemon.
* :mod:`~kavip.agent.sieve` finds the instances that keepalived refuses, :mod:`~kavip.agent.witness` sees what the
  daemon does, :mod:`~kavip.agent.runner` makes it run a configuration, with :mod:`~kavip.agent.penalty` for those that
  failed and :mod:`~kavip.agent.tracks` for what it is to know of the node, :mod:`~kavip.agent.sweeper` takes away what
  one left.
* :mod:`~kavip.agent.alarm` wakes the agent: by :mod:`~kavip.agent.inotify` for the mounts, by
  :mod:`~kavip.agent.rtnetlink` for the network.
* :mod:`~kavip.agent.checks` runs the health checks: each question is an :mod:`~kavip.agent.inquiry`, the answers in a
  row make its :mod:`~kavip.agent.health`.
* :mod:`~kavip.agent.locals` asks kube-proxy, by :mod:`~kavip.agent.proxy`, which Services answer on this node.
* :mod:`~kavip.agent.reloader` puts them in order, :mod:`~kavip.agent.server` answers, to whom there is room for
  (:mod:`~kavip.agent.places`), :mod:`~kavip.agent.run` starts.
"""
