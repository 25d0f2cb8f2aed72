"""
The controller: what the replica that leads does. All of it is I/O; the decisions are in :mod:`kavip.reconcile`.

* :mod:`~kavip.controller.leadership`: the queue, workers, prober and Events of one term of leadership;
* :mod:`~kavip.controller.recovery`: cool-downs of addresses that were freed while no controller ran;
* :mod:`~kavip.controller.worker`: takes a key from the queue, reconciles it, carries the Plan out;
* :mod:`~kavip.controller.delays`: when a key may be reconciled;
* :mod:`~kavip.controller.writer`: the only writer of Plans;
* :mod:`~kavip.controller.chartvalues`: applies the pools and groups of the chart's values;
* :mod:`~kavip.controller.templatefile`: reads the patch of all pods;
* :mod:`~kavip.controller.configmapreader`: reads the content of ConfigMaps that groups name and the watches leave out;
* :mod:`~kavip.controller.templaterenderer`: renders templates of keepalived.conf, one after the other;
* :mod:`~kavip.controller.prober`: reads ``/state`` of every agent;
* :mod:`~kavip.controller.statereader`: reads one of them, at the least cost;
* :mod:`~kavip.controller.agentclient`: one request for it;
* :mod:`~kavip.controller.viptexts`: the VIPs that it reads, by text;
* :mod:`~kavip.controller.viplists`: the lists of them that agents report, by hash;
* :mod:`~kavip.controller.probebudget`: how often a node is asked, by what its answers cost;
* :mod:`~kavip.controller.probeintervals`: how often a node is asked, by the number of nodes;
* :mod:`~kavip.controller.metrics`: the metrics that are computed at each scrape.
"""
