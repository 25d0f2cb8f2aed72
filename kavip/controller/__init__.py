"""
The controller: what the replica that leads does. All of it is I/O; the decisions are in :mod:`kavip.reconcile`.

* :mod:`~kavip.controller.leadership`: the queue, workers, prober and Events of one term of leadership;
* :mod:`~kavip.controller.worker`: takes a key, reconciles it, carries the Plan out;
* :mod:`~kavip.controller.writer`: the only writer;
* :mod:`~kavip.controller.prober`: reads ``/state`` of the agents;
* :mod:`~kavip.controller.metrics`, :mod:`~kavip.controller.meters`: metrics of pools, waiters, masters and agents.
"""
