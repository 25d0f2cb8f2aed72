"""
Reconciles one Service: its addresses and its three conditions. PURE.

* :mod:`~kavip.reconcile.service.reconcile`: the plan of one Service, the only writer of ``Service.status``;
* :mod:`~kavip.reconcile.service.allocation`: ``AddressAssigned``: the addresses that it gets;
* :mod:`~kavip.reconcile.service.programmed`: ``Programmed``: do all nodes run its VIPs;
* :mod:`~kavip.reconcile.service.advertised`: ``Advertised``: which node holds each VIP;
* :mod:`~kavip.reconcile.service.throttle`: when a changed message is written; :mod:`~kavip.reconcile.service.budget`:
  how often one Service is written;
* :mod:`~kavip.reconcile.service.removals`: another controller took the address out of the status;
* :mod:`~kavip.reconcile.service.unanswered`: a status write that got no answer.
"""
