"""
The nodes of a static group, which has no controller: the agents keep them current by themselves.

* :mod:`~kavip.agent.peers.follower`: reads Nodes, asks the other agents, and puts the nodes into the group's text;
* :mod:`~kavip.agent.peers.membership`: which nodes are peers, and whether this node takes part (PURE);
* :mod:`~kavip.agent.peers.modeswitch`: when the group leaves multicast (PURE);
* :mod:`~kavip.agent.peers.nodelist`: the Nodes of the API server, with the access in a
  :mod:`~kavip.agent.peers.kubeconfig`; :mod:`~kavip.agent.peers.client`: one bounded GET;
* :mod:`~kavip.agent.peers.store`: the last nodes, kept on disk while the API server is away.
"""
