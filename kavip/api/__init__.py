"""
Wire types: the only place with the names of JSON fields. PURE.

Frozen msgspec Structs of the parts that kavip reads or writes. Unknown fields are ignored, as Kubernetes clients must;
what a field means stands in the CRDs.

* :mod:`~kavip.api.meta`, :mod:`~kavip.api.conditions`: metadata and conditions, which all kinds share;
* :mod:`~kavip.api.service`, :mod:`~kavip.api.group`, :mod:`~kavip.api.pool`: the kinds that users write;
* :mod:`~kavip.api.cluster`, :mod:`~kavip.api.slice`, :mod:`~kavip.api.workload`, :mod:`~kavip.api.scheduling`: Nodes
  and Pods, EndpointSlices, DaemonSets and ConfigMaps, and where a DaemonSet's pods may be;
* :mod:`~kavip.api.access`, :mod:`~kavip.api.event`, :mod:`~kavip.api.lease`, :mod:`~kavip.api.registration`,
  :mod:`~kavip.api.review`: access reviews, Events, Leases, webhook configurations, admission reviews;
* :mod:`~kavip.api.rawobject`: the object of an admission review, counted before it is decoded;
* :mod:`~kavip.api.agentconfig`, :mod:`~kavip.api.agent`: ``agent.json`` and ``/state``, which the controller and the
  agents exchange; :mod:`~kavip.api.returnroute`: the marks and routing tables by which nodes lead replies back;
* :mod:`~kavip.api.address`, :mod:`~kavip.api.instant`, :mod:`~kavip.api.naming`, :mod:`~kavip.api.selector`: single
  values: addresses, timestamps, names, label selectors; :mod:`~kavip.api.spans`: sets of addresses;
* :mod:`~kavip.api.metallb`, :mod:`~kavip.api.kubevip`: what users of other load balancers write;
  :mod:`~kavip.api.handover`: a Service on its way from there;
* :mod:`~kavip.api.unknownfields`: fields that a type does not have; :mod:`~kavip.api.typeproblem`: values of a wrong
  type; :mod:`~kavip.api.fieldvalidation`: what strict field validation refuses in a manifest;
* :mod:`~kavip.api.installation`: what only ``kavip doctor`` reads;
* :mod:`~kavip.api.yamlscalars`: what a plain scalar of YAML is for Kubernetes;
* :mod:`~kavip.api.yamldocuments`: the documents of a YAML or JSON text, with the place of each part;
* :mod:`~kavip.api.chartvalues`: the pools and groups of the chart's values;
* :mod:`~kavip.api.patch`: JSON Patch; :mod:`~kavip.api.refusal`: a refusal as a value; :mod:`~kavip.api.text`: text as
  one printable line.
"""
