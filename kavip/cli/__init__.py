"""
The command line: thin; each command imports only what it runs, so that the agent stays small.

* :mod:`~kavip.cli.main`: the program, and the commands that serve: run, webhook, controller, agent;
* :mod:`~kavip.cli.commands`: the commands that ask and change nothing: check, plan, render, explain, status, vrids;
* :mod:`~kavip.cli.flags`: options that several commands have;
* :mod:`~kavip.cli.sources`: where objects come from: files, or a cluster;
* :mod:`~kavip.cli.views`: what is made of them, and how it is printed.
"""
