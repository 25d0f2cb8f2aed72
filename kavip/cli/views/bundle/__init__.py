"""
What a support bundle holds: ``kavip collect``. PURE.

Everything is on a list of what is allowed in; what no list names is left out.

* :mod:`~kavip.cli.views.bundle.fields`: the allowed fields of each kind of object;
* :mod:`~kavip.cli.views.bundle.selection`: the allowed part of an object;
* :mod:`~kavip.cli.views.bundle.relevance`: the objects, labels and logs that concern kavip;
* :mod:`~kavip.cli.views.bundle.redaction`: secrets in text;
* :mod:`~kavip.cli.views.bundle.texts`: configurations, logs, metrics and answers of agents;
* :mod:`~kavip.cli.views.bundle.contents`: the files, their names and sizes, and the index.
"""
