"""
The API server: the only package that imports kubernetes_asyncio.

* :mod:`.resources`: the kinds as data: paths, types, and the verbs that kavip uses.
* :mod:`.kubeconfig`: which kubeconfig is used, by kubectl's rules.
* :mod:`.auth` (with :mod:`.configloader`), :mod:`.transport`, :mod:`.codec`, :mod:`.client`: credentials, bytes,
  values, verbs.
* :mod:`.informer`: a cache of one kind, kept current by list and watch.
* :mod:`.workqueue`: the rate-limited work queue; :mod:`.backoff`: the delay after a failure.
* :mod:`.leader`, :mod:`.lease`: leader election.
* :mod:`.events`: Kubernetes Events, with low priority.
* :mod:`.reviewer`: reviews, such as SubjectAccessReviews: bounded, deduplicated and cached;
  :mod:`.delegatedauth`: by them, which tokens may get ``/metrics``.

Nothing here depends on what a Service means to kavip. Jitter and monotonic time are used only here.
"""
