"""
Where the commands take objects from: files, or one look at a cluster.

* :mod:`~kavip.cli.sources.files`: manifests; :mod:`~kavip.cli.sources.yaml`: documents with line numbers;
  :mod:`~kavip.cli.sources.yamlsize`: how large a document would be, before it is built;
  :mod:`~kavip.cli.sources.fields`: fields that a kind does not have;
* :mod:`~kavip.cli.sources.cluster`: one LIST of what decisions read; :mod:`~kavip.cli.sources.watch`: the same,
  watched;
* :mod:`~kavip.cli.sources.overlay`: files over a cluster, as after ``kubectl apply`` (PURE).
"""
