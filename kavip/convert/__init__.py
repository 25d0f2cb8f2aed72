"""
What external IPs and the objects of other load balancers become in kavip. PURE.

* :mod:`~kavip.convert.steps`: the next step of one Service; a failure between two steps loses nothing;
* :mod:`~kavip.convert.externalips`: Services with ``externalIPs`` become LoadBalancer Services;
  :mod:`~kavip.convert.sharing`: which of them share addresses;
* :mod:`~kavip.convert.metallb`, :mod:`~kavip.convert.kubevip`: objects of other load balancers as manifests of kavip
  (:mod:`~kavip.convert.imported`);
* :mod:`~kavip.convert.handover`: their Services become kavip's, with their addresses;
  :mod:`~kavip.convert.provider`: which Services are theirs, and what their annotations mean.
"""
