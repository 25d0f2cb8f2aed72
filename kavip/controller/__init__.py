"""
The controller: what the replica that leads does.

A change becomes keys (:mod:`.wakes`), a key becomes a Plan, a Plan becomes writes. Pure, in the order of reading:

* :mod:`.outcome`, :mod:`.observed`: the values in which decisions speak: keys and Plans; what was seen of the cluster;
* :mod:`.plan`, :mod:`.pools`: the plan of one Service, with :mod:`.programmed` and :mod:`.news` (is it worth a write);
  of one pool;
* :mod:`.group`: the plan of one group, with :mod:`.roster` and :mod:`.fit` (what it is to run, what there is room for),
  :mod:`.vrids`, :mod:`.manifests` and :mod:`.monitoring` (its objects), :mod:`.belongings` and :mod:`.owner` (which are
  there, and whose), :mod:`.acceptance` and :mod:`.standing` (its status) and :mod:`.errands` (what its pods are told);
* :mod:`.switch`, with :mod:`.published` and :mod:`.voters`: changes that all nodes of a group make at one instant;
* :mod:`.aside`, :mod:`.misplaced`, :mod:`.rivals`: groups that kavip leaves alone; keepalived-operator, while it runs.

I/O: :mod:`.worker` carries Plans out, :mod:`.apply` is the only writer, :mod:`.probe` looks at the agents.
"""
