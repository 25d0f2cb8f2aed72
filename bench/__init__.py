"""Benchmarks (``make bench``): measurements, most of them as ratios to another measurement of the same run."""
