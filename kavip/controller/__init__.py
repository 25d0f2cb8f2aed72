"""
The controller: what the replica that leads does.

A change becomes keys (:mod:`.wakes`), a key becomes a Plan, a Plan becomes writes. Pure, in the order of reading:

* :mod:`.outcome`, :mod:`.observed`: the values in which decisions speak: keys and Plans; what was seen of the cluster;
  :mod:`.text`: what their messages share;
* :mod:`.plan`: the plan of one Service, with :mod:`.addressing` (which addresses), :mod:`.programmed` and
  :mod:`.advertised` (its conditions) and :mod:`.news` (is it worth a write), :mod:`.judging` (of a group's Services:
  whose are no longer so); :mod:`.removals`, :mod:`.echo` and :mod:`.unanswered`: what others, the watch and a lost
  answer make of what was written; :mod:`.restraint`: how often that may be; :mod:`.pools`: the plan of one pool;
* :mod:`.group`: the plan of one group, with :mod:`.roster` and :mod:`.fit` (what it is to run, what there is room for),
  :mod:`.vrids`, :mod:`.manifests` and :mod:`.monitoring` (its objects), :mod:`.belongings` and :mod:`.owner` (which are
  there, and whose), :mod:`.acceptance` and :mod:`.standing` (its status), :mod:`.difference` (of it, what is sent) and
  :mod:`.errands` (what its pods are told);
* :mod:`.rollout`: nodes that join and leave; :mod:`.elsewhere`: what nodes of other groups still run;
  :mod:`.following`: VIPs that follow endpoints (policy ``Local``);
* :mod:`.switch`, with :mod:`.published` and :mod:`.voters`: changes that all nodes of a group make at one instant;
* :mod:`.reports`, :mod:`.mastership`, :mod:`.collisions`: what the agents say; who is master of what by that; who else
  uses a VRID;
* :mod:`.aside`, :mod:`.misplaced`, :mod:`.rivals`: groups that kavip leaves alone; keepalived-operator, while it runs;
* :mod:`.takeover`, :mod:`.handover`: a group taken over from it: what is there, and which pod is replaced next, with
  :mod:`.exported` (what its pods tell) and :mod:`.managed` (whose the fields of its objects are).

I/O: :mod:`.worker` carries Plans out, :mod:`.apply` is the only writer, :mod:`.probe` looks at the agents,
:mod:`.meters` shows what they say as metrics.
"""
