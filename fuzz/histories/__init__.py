"""Random histories of a cluster: real caches, workers and writer over a fake API server with random faults."""
