"""
Whether another machine on the LAN has a VIP: before this node announces it for the first time, and while it holds it.

* :mod:`~kavip.agent.conflicts.packets`: the packets (PURE);
"""
