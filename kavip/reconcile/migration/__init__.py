"""
How a group is taken over from keepalived-operator. PURE.

* :mod:`~kavip.reconcile.migration.takeover`: what exists of the old installation, and whether the take-over may begin;
* :mod:`~kavip.reconcile.migration.replacement`: which old pod is deleted next;
* :mod:`~kavip.reconcile.migration.exporter`: what the exporter in an old pod reports;
* :mod:`~kavip.reconcile.migration.fieldmanager`: how server-side apply comes to own the fields of an old object.
"""
