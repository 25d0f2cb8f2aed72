"""
Reconciles one Service: its addresses and its three conditions. PURE.

* :mod:`~kavip.reconcile.service.reconcile`: the plan of one Service, the only writer of ``Service.status``;
* :mod:`~kavip.reconcile.service.allocation`: ``AddressAssigned``: the addresses that it gets;
* :mod:`~kavip.reconcile.service.conflicts`: addresses that it gives up, because another machine on the LAN has them;
* :mod:`~kavip.reconcile.service.vips`: its VIPs and the group that serves them, which the other two conditions read;
* :mod:`~kavip.reconcile.service.programmed`: ``Programmed``: do all nodes run its VIPs;
* :mod:`~kavip.reconcile.service.advertised`: ``Advertised``: which node is master of each VIP;
* :mod:`~kavip.reconcile.service.throttle`: when a changed condition is written, and how often;
* :mod:`~kavip.reconcile.service.status`: the status patch.
"""
