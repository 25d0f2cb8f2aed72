"""Tests of the testbed itself."""
