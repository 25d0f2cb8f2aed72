"""
``kavip plan``, ``check`` and ``render`` over files: the same decisions as in the cluster, without one.

Files are read in the order of their names; objects of kinds that kavip does not read are passed over. What cannot be
read is a :class:`BadInput` that names the file, the document and the field.
"""

