"""
The controller: what the replica that leads does.

A change becomes keys (:mod:`.wakes`), a key becomes a Plan, a Plan becomes writes. Pure, in the order of reading:

* :mod:`.outcome`, :mod:`.observed`: the values in which decisions speak: keys and Plans; what was seen of the cluster;
* :mod:`.plan`, :mod:`.pools`: the plan of one Service, with :mod:`.programmed`; of one pool;
* :mod:`.group`: the plan of one group, with :mod:`.roster` (what it is to run), :mod:`.vrids`, :mod:`.manifests` (its
  objects), :mod:`.owner` (whose objects) and :mod:`.standing` (its status).

I/O: :mod:`.worker` carries Plans out, :mod:`.apply` is the only writer, :mod:`.probe` looks at the agents.
"""
