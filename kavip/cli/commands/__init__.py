"""
The commands for users. Most of them only read.

``drain`` and ``undrain`` change one annotation of a Node; ``convert`` and ``import`` change Services. Each module
imports what it runs only when it runs. Exit status: 0 yes, 1 no (an object is refused, a Service waits), 2 the
command line is wrong, or there is no answer.

* :mod:`~kavip.cli.commands.check`, :mod:`kavip.cli.commands.plan`: files as admission and the controller would treat
  them;
* :mod:`~kavip.cli.commands.render`: the ``keepalived.conf`` of groups in files, and groups without an API server;
* :mod:`~kavip.cli.commands.explain`: why one Service has its addresses or none;
* :mod:`~kavip.cli.commands.status`: every VIP and the node that holds it;
* :mod:`~kavip.cli.commands.ui`: the same as a page with the live picture;
* :mod:`~kavip.cli.commands.doctor`: what is wrong with a cluster, and what mends it;
* :mod:`~kavip.cli.commands.collect`: a support bundle;
* :mod:`~kavip.cli.commands.drain`: move the VIPs of a node to other nodes, and let them return;
* :mod:`~kavip.cli.commands.convert`: Services with ``externalIPs`` become LoadBalancer Services, in a cluster or in
  files (:mod:`~kavip.cli.commands.rewriting`);
* :mod:`~kavip.cli.commands.importing`: objects and Services of other load balancers;
* :mod:`~kavip.cli.commands.progress`: how far a command is that takes long;
* :mod:`~kavip.cli.commands.vrids`: the VRIDs of an OpenShift cluster;
* :mod:`~kavip.cli.commands.shellcompletion`: completion in shells.
"""

from typing import Final

import click

from kavip.cli.commands.check import check
from kavip.cli.commands.collect import collect
from kavip.cli.commands.convert import convert
from kavip.cli.commands.doctor import doctor
from kavip.cli.commands.drain import drain, undrain
from kavip.cli.commands.explain import explain
from kavip.cli.commands.importing import import_
from kavip.cli.commands.plan import plan
from kavip.cli.commands.render import render
from kavip.cli.commands.shellcompletion import completion
from kavip.cli.commands.status import status
from kavip.cli.commands.ui import ui
from kavip.cli.commands.vrids import vrids

ALL: Final[tuple[click.Command, ...]] = (
    check,
    plan,
    render,
    explain,
    status,
    ui,
    doctor,
    collect,
    drain,
    undrain,
    convert,
    import_,
    vrids,
    completion,
)
