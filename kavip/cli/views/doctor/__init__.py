"""
What is wrong with a cluster: ``kavip doctor``. PURE.

* :mod:`~kavip.cli.views.doctor.inspection`: what was read of the cluster, and what could not be read;
* :mod:`~kavip.cli.views.doctor.finding`: a check and its findings;
* :mod:`~kavip.cli.views.doctor.checks`: the table of checks, and the report;
* :mod:`~kavip.cli.views.doctor.programs`: Kubernetes, the CRDs, kavip's Deployments and their rights;
* :mod:`~kavip.cli.views.doctor.webhooks`: whether the API server asks kavip, and trusts it;
* :mod:`~kavip.cli.views.doctor.balancers`: other programs that serve Services of type LoadBalancer;
* :mod:`~kavip.cli.views.doctor.groups`: groups and pools;
* :mod:`~kavip.cli.views.doctor.nodes`: the nodes, as their agents and kubelets report them;
* :mod:`~kavip.cli.views.doctor.output`: the report as text and JSON.
"""
