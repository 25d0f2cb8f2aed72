"""
Wire types: the only place that knows the names of JSON fields.

Frozen msgspec Structs of the parts that kavip reads or writes. Unknown fields are ignored, as Kubernetes clients must;
what a field means stands in the CRDs. Pure: no I/O, no clock.
"""
