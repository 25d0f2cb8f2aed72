"""
The controller: what the replica that leads does.

:mod:`.plan` (Services and pools) and :mod:`.group` decide, with the help of :mod:`.programmed`, :mod:`.roster`,
:mod:`.standing` and :mod:`.manifests`; they are pure and speak in the values of :mod:`.outcome` and :mod:`.observed`.
:mod:`.worker` carries a decision out, :mod:`.apply` is the only writer, :mod:`.probe` looks at the agents.
"""
