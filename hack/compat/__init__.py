"""kavip on other versions of Kubernetes than the testbed's, and with each mode of kube-proxy: `make compat`.

kubernetes    builds the programs of a version from its Go module, which is pinned beside it
__main__      runs the demo's first chapter and a fail-over for each case, and prints a table of what was seen
"""
