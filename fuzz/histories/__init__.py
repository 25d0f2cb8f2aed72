"""Random histories of a cluster: real caches, real workers and the real writer over an API server that obeys chance."""
