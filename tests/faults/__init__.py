"""Tests of the checker of histories, and a short history."""
