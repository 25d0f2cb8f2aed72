"""A real Kubernetes on one machine, from the package registries: no container registry, no Docker, no virtual machine.

Read in this order:

    debian, golang, programs    the programs: Debian packages, and Go modules built once into the cache
    images, buildah             the images: debootstrap and buildah, in the cache too
    prepare, progress           all of that side by side; what is left, and for how long
    process, machine            a process that a later run can stop; a set of namespaces that is a whole machine
    systemd                     a machine whose init is systemd, for what a shutdown does
    segment                     machines on one bridge: enough for keepalived
    flags, certs, controlplane  etcd and kube-apiserver, on loopback or inside a machine; audit: their requests
    node, cluster, dns          machines that run kubelet: a real cluster, with CoreDNS if requested
    runs                        what runs on this machine, and how to remove it
    fixtures                    all of it for pytest

Nothing is touched but loopback, the testbed's own namespaces, its cache, and the cgroups of its containers.
"""
