"""
What the agent reports: values, and their text. PURE.

* :mod:`~kavip.agent.report.dump`: keepalived's dump of its instances;
* :mod:`~kavip.agent.report.health`: the status of health checks;
* :mod:`~kavip.agent.report.state`: the agent's status, and ``/state`` made from it;
* :mod:`~kavip.agent.report.metrics`: kavip's metrics; :mod:`~kavip.agent.report.exporters`: keepalived's, by the names
  of other exporters.
"""
