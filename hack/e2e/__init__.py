"""Kubernetes' own end-to-end specs of load balancers, run against kavip (``make e2e``)."""
