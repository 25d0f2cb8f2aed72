"""Fuzzing of admission: bytes at the endpoint of a server process, and objects of the right shape at the policy."""

from fuzz import reproducible as reproducible  # a seed gives the same examples in each process
