"""Benchmarks: ratios measured in one run (``make bench``); never an absolute time as a promise."""
