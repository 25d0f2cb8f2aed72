"""
``kavip ui``: a page on loopback with the live picture of a cluster, or of files.

Any user of this machine can connect to loopback, and any web page can send requests to it. So the page itself holds no
data, and data needs two secrets that only the reader's page has.

* :mod:`~kavip.cli.ui.access`: which requests are answered: one-time token, session, ``Host``, ``Origin``;
* :mod:`~kavip.cli.ui.board`: the latest picture, for those that wait for the next one;
* :mod:`~kavip.cli.ui.feed`: what puts pictures there: the watches of a cluster, or files;
* :mod:`~kavip.cli.ui.files`: the files of the page, in the folder ``page``;
* :mod:`~kavip.cli.ui.server`: the server: files, session, stream of pictures, page of a Service.
"""
