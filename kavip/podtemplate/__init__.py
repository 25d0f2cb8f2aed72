"""
Patches of the pods of groups. PURE.

* :mod:`~kavip.podtemplate.strategicmerge`: strategic merge patches; :mod:`~kavip.podtemplate.podschema`: how the fields
  of a pod template merge.
"""
