"""
The keepalived of this node: what it runs, and what it does.

* :mod:`~kavip.agent.keepalived.rundir`: the run directory; :mod:`~kavip.agent.keepalived.trackfiles`: its track files;
* :mod:`~kavip.agent.keepalived.configtest`: ``keepalived --config-test``, in a :mod:`~kavip.agent.keepalived.sandbox`;
* :mod:`~kavip.agent.keepalived.bisect`: finds the instances that keepalived refuses;
* :mod:`~kavip.agent.keepalived.process`: the running daemon;
* :mod:`~kavip.agent.keepalived.monitor`: asks it for dumps, and confirms a reload by one;
* :mod:`~kavip.agent.keepalived.reload`: makes it run a configuration, or the last good one.
"""
