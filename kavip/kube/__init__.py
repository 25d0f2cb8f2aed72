"""
The API server, and everything that speaks with it: the only package that imports kubernetes_asyncio.

* :mod:`.resources`: the kinds as data: where they live, how they decode, what kavip does with them.
* :mod:`.auth` (by way of :mod:`.lean`), :mod:`.transport`, :mod:`.codec`, :mod:`.client`: credentials, bytes, values,
  verbs; :mod:`.depth`: JSON that nests too deeply.
* :mod:`.informer`: a cache of one kind that stays true through everything an API server may do.
* :mod:`.workqueue`: which key is worked on next; :mod:`.backoff`: how long to wait after a failure.
* :mod:`.leader`, :mod:`.lease`: work that runs while, and only while, a lease is held.
* :mod:`.events`: Kubernetes Events, of low priority.

Nothing here knows what a Service means to kavip. Jitter and monotonic time live here and nowhere else.
"""
