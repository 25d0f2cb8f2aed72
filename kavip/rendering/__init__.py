"""
Templates of users, rendered where they can do no harm.

* :mod:`~kavip.rendering.process`: starts the process, bounds and kills it;
* :mod:`~kavip.rendering.child`: the program that it runs.
"""
