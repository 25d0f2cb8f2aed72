"""
The command line. Each command imports only what it runs, so that the agent stays small.

* :mod:`~kavip.cli.main`: the program, and the commands that serve: run, webhook, controller, agent;
* :mod:`~kavip.cli.commands`: the commands for users;
* :mod:`~kavip.cli.ui`: the page of ``kavip ui``, and its server;
* :mod:`~kavip.cli.flags`: options that several commands have;
* :mod:`~kavip.cli.printing`: lines for a terminal;
* :mod:`~kavip.cli.sources`: objects from files or a cluster;
* :mod:`~kavip.cli.views`: decisions about these objects, and their output.
"""
