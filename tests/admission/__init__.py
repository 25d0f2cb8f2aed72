"""Admission as a user meets it: the real API server, the real kubectl and helm."""
