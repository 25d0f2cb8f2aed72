"""
How a group is taken over from keepalived-operator. PURE.

* :mod:`~kavip.reconcile.migration.progress`: what exists of the old installation, and whether the take-over may begin;
* :mod:`~kavip.reconcile.migration.replacement`: deletes the old pods, one at a time;
* :mod:`~kavip.reconcile.migration.fieldmanager`: how server-side apply comes to own the fields of an old object.
"""
