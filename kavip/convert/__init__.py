"""
What external IPs and the objects of other load balancers become in kavip. PURE.

* :mod:`~kavip.convert.steps`: the next step of one Service; a failure between two steps loses nothing;
* :mod:`~kavip.convert.externalips`: Services with ``externalIPs`` become LoadBalancer Services.
"""
