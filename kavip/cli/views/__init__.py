"""
Decisions about the objects of files or a cluster, and their output as text, JSON or YAML. PURE.

* :mod:`~kavip.cli.views.listing`: the objects, and what could not be read; :mod:`~kavip.cli.views.apply`: manifests
  applied to objects of a cluster;
* :mod:`~kavip.cli.views.simulate`: admission and the controller's plans, run on objects of files;
  :mod:`~kavip.cli.views.planoutput`: the output of check and plan;
* :mod:`~kavip.cli.views.diff`: what files would change in a cluster; :mod:`~kavip.cli.views.objectdiff`: the difference
  of one object; :mod:`~kavip.cli.views.switchover`: the part that all nodes change at one instant;
* :mod:`~kavip.cli.views.static`: a group without an API server, as static pods or systemd units;
  :mod:`~kavip.cli.views.staticplatforms`: these pods in the shape of a platform;
  :mod:`~kavip.cli.views.staticnodes`: their nodes, as the command line names them;
* :mod:`~kavip.cli.views.explain`: why a Service has its addresses or none; :mod:`~kavip.cli.views.explainoutput`: the
  output of explain; :mod:`~kavip.cli.views.places`: the interfaces of addresses;
  :mod:`~kavip.cli.views.noderanks`: the order of the nodes;
* :mod:`~kavip.cli.views.status`: the state of every VIP; :mod:`~kavip.cli.views.statusoutput`: the output of status;
  :mod:`~kavip.cli.views.drain`: how far a node is drained;
* :mod:`~kavip.cli.views.conversion`: which Services with external IPs can be converted;
  :mod:`~kavip.cli.views.conversionoutput`: their changes as a diff; :mod:`~kavip.cli.views.manifestedit`: a change in
  the text of a manifest;
* :mod:`~kavip.cli.views.importing`: where the Services of another load balancer go;
  :mod:`~kavip.cli.views.importingoutput`: the output of import;
* :mod:`~kavip.cli.views.doctor`: what is wrong with a cluster; :mod:`~kavip.cli.views.bundle`: what a support bundle
  holds;
* :mod:`~kavip.cli.views.picture`: what the page of ``kavip ui`` shows;
* :mod:`~kavip.cli.views.scope`: the Services that a user names;
* :mod:`~kavip.cli.views.table`: tables of text; :mod:`~kavip.cli.views.structured`: JSON and YAML.
"""
