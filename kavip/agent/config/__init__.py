"""
From the group's configuration to this node's. PURE.

* :mod:`~kavip.agent.config.model`: the values: configurations, instances, faults;
* :mod:`~kavip.agent.config.blocks`, :mod:`~kavip.agent.config.parser`: read a text;
* :mod:`~kavip.agent.config.validate`: the shape that a text must have;
* :mod:`~kavip.agent.config.facts`: the facts of the node: interfaces, addresses, route;
* :mod:`~kavip.agent.config.localize`: the node's lines, its interface, the password;
* :mod:`~kavip.agent.config.sources`: whether VRRP can leave from its source address;
* :mod:`~kavip.agent.config.returnroutes`: the way back of replies, as rules of nftables, routing rules and routes;
* :mod:`~kavip.agent.config.exclude`: excludes faulty instances, so that the others can run;
* :mod:`~kavip.agent.config.withhold`: leaves out VIPs that another machine on the LAN has;
* :mod:`~kavip.agent.config.lowest`: the running configuration with the lowest priority, for a hand-over;
* :mod:`~kavip.agent.config.switchover`: when the node switches to the next configuration.
"""
