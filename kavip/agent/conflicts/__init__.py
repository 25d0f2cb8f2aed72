"""
Whether another machine on the LAN has a VIP: before this node announces it for the first time, and while it holds it.

* :mod:`~kavip.agent.conflicts.detection`: both, for the reconciler;
* :mod:`~kavip.agent.conflicts.inquiry`: asks the LAN for some VIPs;
* :mod:`~kavip.agent.conflicts.verdicts`: what the answers mean, and when to ask again (PURE);
* :mod:`~kavip.agent.conflicts.defence`: watches over VIPs that this node holds;
* :mod:`~kavip.agent.conflicts.listener`: hears claims of other machines;
* :mod:`~kavip.agent.conflicts.sockets`: Ethernet sockets; :mod:`~kavip.agent.conflicts.packets`: the packets (PURE).
"""
