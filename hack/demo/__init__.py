"""The demo: kavip does its whole job on a real cluster, every command printed before its output (``make demo``)."""
