"""
Patches of the pods of groups: ``spec.podTemplate``, and one file for all groups. PURE.

* :mod:`~kavip.podtemplate.strategicmerge`: strategic merge patches; :mod:`~kavip.podtemplate.podschema`: how the fields
  of a pod template merge;
* :mod:`~kavip.podtemplate.guard`, :mod:`~kavip.podtemplate.containers`: what a patch may change;
  :mod:`~kavip.podtemplate.skeleton`: the template for a check before there is a DaemonSet;
* :mod:`~kavip.podtemplate.permissions`: what the administrator permits;
* :mod:`~kavip.podtemplate.defaulttemplate`: the file for all groups.
"""
