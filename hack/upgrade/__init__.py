"""
``make upgrade FROM=COMMIT BY=WAY``: from an older version to this one, with VIPs up and while Services are written.

ways      what a user does on each install path, as docs/howto/install.md says
release   a release of this checkout in a registry of the cluster
crowd     two groups with many VIPs (VIPS=1600), one of which keeps its pods
presence  which nodes have each of these VIPs, from one look at all kernels to the next
measure   carries it out, and measures: the exit status is 1 if a call to a webhook is lost, if an address or a VRID
          changes, or if the VIP is silent for longer than a fail-over takes
"""
