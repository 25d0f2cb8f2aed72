"""
The commands that ask and change nothing: the decisions of the cluster, over files or over one look at a cluster.

A guided tour, from the bottom up:

* :mod:`~kavip.ask.documents`, with :mod:`~kavip.ask.measure` and :mod:`~kavip.ask.fields`, :mod:`~kavip.ask.files`:
  objects in files; :mod:`~kavip.ask.overlay`: these over those of a cluster.
* :mod:`~kavip.ask.offline`: check, plan and render without a cluster; :mod:`~kavip.ask.tables`: as people read them.
* :mod:`~kavip.ask.together`, :mod:`~kavip.ask.drift`: what they would change; :mod:`~kavip.ask.static`: a group
  without an API.
* :mod:`~kavip.ask.unmanaged`, :mod:`~kavip.ask.explaining`, :mod:`~kavip.ask.telling`: why a Service has what it has.
* :mod:`~kavip.ask.reading`: one look at a cluster; :mod:`~kavip.ask.watching`, :mod:`~kavip.ask.overview`: how things
  stand, and go on.
* :mod:`~kavip.ask.flags`, :mod:`~kavip.ask.commands`: the commands themselves.
"""
