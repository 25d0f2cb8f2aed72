"""
kavip makes ``type: LoadBalancer`` Services work on clusters without a cloud.

A guided tour, from the bottom up:

* :mod:`kavip.names`, :mod:`kavip.errors`: every string another system can see; every exception. :mod:`kavip.memo`:
  results that are kept while what they were made of stays.
* :mod:`kavip.api`: wire types, the only place with the names of JSON fields.
* :mod:`kavip.ipam`: parse, validate, allocate: which address may a Service have, and why not.
* :mod:`kavip.vrrp`: keepalived: VRIDs, verbatim lines, the model and its text.
* :mod:`kavip.pki`: certificates as values.
* :mod:`kavip.podtemplate`: patches of the pods of groups: how they merge, and what they may change.
* :mod:`kavip.snapshot`: everything that a decision may look at, with its indexes.
* :mod:`kavip.rendering`: renders templates of users in a process that can do nothing else.
* :mod:`kavip.http`: listening sockets, bounded connections, probes and metrics.
* :mod:`kavip.kube`: the API server: client, informer, work queue, lease and leader, events.
* :mod:`kavip.admission`: may this object be so, and which defaults does it get. :mod:`kavip.webhook`: the server that
  answers with it, and its certificates.
* :mod:`kavip.reconcile`: what the controller decides. :mod:`kavip.controller`: what the replica that leads does:
  workers, the only writer, the prober of the agents.
* :mod:`kavip.convert`: what external IPs and the objects of other load balancers become in kavip.
* :mod:`kavip.agent`: the node side: localise, check, swap, reload, report. It has no access to the API server.
* :mod:`kavip.caches`: informers that fill the Snapshot; :mod:`kavip.app`: one replica, put together, with
  :mod:`kavip.settings` and :mod:`kavip.telemetry`.
* :mod:`kavip.cli`: the command line: the same decisions, printed for users.

Snapshot in, Plan or Verdict out: the packages up to :mod:`kavip.snapshot`, and the modules that decide, do no I/O and
read no clock. ``async def`` is the mark of I/O.
"""

from typing import Final

__version__: Final = "0.2.0"
