"""
From the group's configuration to this node's. PURE.

* :mod:`~kavip.agent.config.model`: the values: configuration, instance, fault;
* :mod:`~kavip.agent.config.blocks`, :mod:`~kavip.agent.config.parser`, :mod:`~kavip.agent.config.draft`: read a text;
* :mod:`~kavip.agent.config.validate`: the shape that a text must have;
* :mod:`~kavip.agent.config.facts`: what the node is: interfaces, addresses, routes;
* :mod:`~kavip.agent.config.localize`: this node's lines, its interface, the password;
* :mod:`~kavip.agent.config.exclude`: takes instances out, so that the others can run;
* :mod:`~kavip.agent.config.switchover`: when this node switches to the configuration that follows.
"""
