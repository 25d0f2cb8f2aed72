"""
What the page of ``kavip ui`` shows, as one value: of the objects of a cluster or of files, and the answers of agents.

* :mod:`~kavip.cli.views.picture.rows`: the rows of each section;
* :mod:`~kavip.cli.views.picture.picture`: all sections of one moment;
* :mod:`~kavip.cli.views.picture.problems`: what is wrong, the most urgent first;
* :mod:`~kavip.cli.views.picture.addressmap`: the addresses of a pool, with who has what;
* :mod:`~kavip.cli.views.picture.successors`: which node takes a VIP over;
* :mod:`~kavip.cli.views.picture.timeline`: what has changed between two pictures, and the Events before;
* :mod:`~kavip.cli.views.picture.changes`: the difference of two pictures, as the page receives it;
* :mod:`~kavip.cli.views.picture.servicepage`: the way of one Service from its annotations to the wire.
"""
