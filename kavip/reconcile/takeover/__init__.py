"""
How a group is taken over from keepalived-operator. PURE.

* :mod:`~kavip.reconcile.takeover.progress`: what exists of the old installation, and whether the take-over may begin;
* :mod:`~kavip.reconcile.takeover.replacement`: deletes the old pods, one at a time;
* :mod:`~kavip.reconcile.takeover.fieldmanager`: how server-side apply comes to own the fields of an old object.
"""
