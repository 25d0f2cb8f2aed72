"""
The keepalived of this node: what it is given, and what it does.

* :mod:`~kavip.agent.keepalived.rundir`: the run directory; :mod:`~kavip.agent.keepalived.trackfiles`: its track files;
* :mod:`~kavip.agent.keepalived.configtest`: ``keepalived --config-test``, in a :mod:`~kavip.agent.keepalived.sandbox`;
* :mod:`~kavip.agent.keepalived.bisect`: finds the instances that keepalived refuses;
* :mod:`~kavip.agent.keepalived.process`: the running daemon; :mod:`~kavip.agent.keepalived.dump`: what it reports;
* :mod:`~kavip.agent.keepalived.monitor`: asks the daemon for dumps; :mod:`~kavip.agent.keepalived.reload`: makes it run
  a configuration, or the last good one; :mod:`~kavip.agent.keepalived.penalty`: configurations that it did not survive;
* :mod:`~kavip.agent.keepalived.cleanup`: removes addresses that a killed daemon left behind.
"""
