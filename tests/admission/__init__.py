"""Admission rules: unit tests, and tests with a real API server, kubectl and helm."""
