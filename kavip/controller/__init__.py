"""
The controller: what the replica that leads does. All of it is I/O; the decisions are in :mod:`kavip.reconcile`.

* :mod:`~kavip.controller.worker`: takes a key, reconciles it, carries the Plan out;
* :mod:`~kavip.controller.apply`: the only writer;
* :mod:`~kavip.controller.probe`: reads ``/state`` of the agents;
* :mod:`~kavip.controller.meters`: metrics of what the agents report.
"""
