"""
The sources of objects: files, or a cluster that is listed or watched.

* :mod:`~kavip.cli.sources.files`: objects in manifests;
* :mod:`~kavip.cli.sources.cluster`: the objects of a cluster, listed once; :mod:`~kavip.cli.sources.watch`: those that
  ``kavip status`` shows, listed or watched;
* :mod:`~kavip.cli.sources.rewrite`: Services in manifests, and their files after a change;
  :mod:`~kavip.cli.sources.stepping`: Services of a cluster, changed step by step;
* :mod:`~kavip.cli.sources.foreign`: objects of other load balancers;
* :mod:`~kavip.cli.sources.doctor`: what ``kavip doctor`` reads; :mod:`~kavip.cli.sources.agents`: what agents answer;
* :mod:`~kavip.cli.sources.bundle`: what ``kavip collect`` reads; :mod:`~kavip.cli.sources.archive`: its file;
* :mod:`~kavip.cli.sources.drain`: the annotation of a Node that drains it, and the VIPs of the Node meanwhile.
"""
