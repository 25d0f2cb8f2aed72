"""
keepalived: VRIDs, the lines that users may add, the model of a group and its text.

Pure: every result depends on the arguments only. What keepalived 2.2.7 does with each line was measured, and the form
of the text follows from that. The modules, in the order of the data:

* :mod:`~kavip.vrrp.groupspec`: validation of a KeepalivedGroup by itself, and the defaults of a new one;
* :mod:`~kavip.vrrp.members`: the Services and nodes of a group as input of its configuration;
* :mod:`~kavip.vrrp.routerids`, :mod:`kavip.vrrp.openshift`: the assignment of VRIDs, and those never used;
* :mod:`~kavip.vrrp.tokens`, :mod:`kavip.vrrp.grammar`, :mod:`kavip.vrrp.keywords`, :mod:`kavip.vrrp.verbatim`: the
  lines that users may add;
* :mod:`~kavip.vrrp.targets`: what health checks may request;
* :mod:`~kavip.vrrp.keys`: the keys that need a VRID; :mod:`kavip.vrrp.sharding`: the Services of each Shared instance;
* :mod:`~kavip.vrrp.units`: which unit carries which address (:mod:`kavip.vrrp.virtualips`);
* :mod:`~kavip.vrrp.priorities`: the order of the nodes of each instance, of which some are preferred
  (:mod:`kavip.vrrp.preference`) or drained (:mod:`kavip.vrrp.drain`). New instances change it so that the nodes lead
  equally many (:mod:`kavip.vrrp.homes`), others move for that on request (:mod:`kavip.vrrp.rebalance`), and
  :mod:`kavip.vrrp.placement` changes it where the VIPs of one Service are spread (:mod:`kavip.vrrp.spread`, like
  rebalancing a minimum-cost flow of :mod:`kavip.vrrp.flow`). :mod:`kavip.vrrp.moves` combines these, and decides which
  moves are made one after the other;
* :mod:`~kavip.vrrp.instances`: the model of one group, with :mod:`kavip.vrrp.globaldefs`, :mod:`kavip.vrrp.timing` and
  :mod:`kavip.vrrp.tracking`;
* :mod:`~kavip.vrrp.config`: the model as the text of ``keepalived.conf``; :mod:`kavip.vrrp.nodelines`: other nodes in
  such a text; :mod:`kavip.vrrp.compact`: the text without the lines for nodes that its instances repeat;
  :mod:`kavip.vrrp.packed`: its gzip;
* :mod:`~kavip.vrrp.configtemplate`, :mod:`kavip.vrrp.addedlines`: a user's template of that text, and the lines that
  it adds;
* :mod:`~kavip.vrrp.identity`, :mod:`kavip.vrrp.running`, :mod:`kavip.vrrp.staging`: what all nodes must agree on, what
  a published text makes them run (:mod:`kavip.vrrp.addresslists`: of its thousands of addresses, those that differ from
  the text before), and which part of a change may roll from node to node;
* :mod:`~kavip.vrrp.operatorconfig`, :mod:`kavip.vrrp.coexistence`: what keepalived-operator's daemons run, and the
  model beside them while they are replaced.
"""
