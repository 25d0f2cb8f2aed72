"""
keepalived: VRIDs, the lines that users may add, the model of a group and its text.

Pure: everything here is a function of its arguments. What keepalived 2.2.7 does with each line was measured, and those
measurements decide the shape of the text. The way through the package, in the order of the data:

* :mod:`~kavip.vrrp.groups`: what a KeepalivedGroup by itself must satisfy, and the defaults of a new one;
* :mod:`~kavip.vrrp.members`: what the group's Services and Nodes ask for;
* :mod:`~kavip.vrrp.routerids`, :mod:`kavip.vrrp.openshift`: who gets which VRID, and which are never used;
* :mod:`~kavip.vrrp.tokens`, :mod:`kavip.vrrp.grammar`, :mod:`kavip.vrrp.keywords`, :mod:`kavip.vrrp.verbatim`: the
  lines that users may write;
* :mod:`~kavip.vrrp.targets`: what health checks may ask;
* :mod:`~kavip.vrrp.keys`, :mod:`kavip.vrrp.units`: what needs a VRID, and who carries which address
  (:mod:`~kavip.vrrp.virtualips`); :mod:`kavip.vrrp.shares`, :mod:`kavip.vrrp.lots`: the Services of each Shared
  instance;
* :mod:`~kavip.vrrp.instances`: the model of one group, with :mod:`kavip.vrrp.globaldefs`, :mod:`kavip.vrrp.priorities`,
  :mod:`~kavip.vrrp.timing` and :mod:`kavip.vrrp.tracking`;
* :mod:`~kavip.vrrp.config`: the model as the text of ``keepalived.conf``;
* :mod:`~kavip.vrrp.identity`, :mod:`kavip.vrrp.staging`: what all nodes must agree on, and what of a change waits for
  the moment at which all of them make it;
* :mod:`~kavip.vrrp.participants`: which nodes take part in a text that runs;
* :mod:`~kavip.vrrp.predecessor`, :mod:`kavip.vrrp.succession`: what keepalived-operator's daemons run, and the model
  beside them while they are replaced.
"""
