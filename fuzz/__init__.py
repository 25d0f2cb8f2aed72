"""Fuzzing of admission: bytes at the endpoint of a server process, and objects of the right shape at the policy."""

from fuzz import steady as steady  # in each process that fuzzes, a seed gives the same examples
