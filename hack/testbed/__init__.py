"""A real Kubernetes on one machine, from the package registries: no container registry, no Docker, no virtual machine.

Read in this order:

    debian, golang, programs   get the programs: Debian packages, and Go modules built once into the cache
    images, wheels             get the images: debootstrap and buildah, kept in the cache too
    process, machine           a process that can be stopped later by anybody; a namespace that is a whole machine
    segment                    machines on one bridge: enough for keepalived
    certs, controlplane, audit etcd and kube-apiserver, on loopback or inside a machine
    node, cluster              a segment whose machines run kubelet: a real cluster
    runs                       what is running on this machine, and how to remove it
    fixtures                   all of it for pytest

Nothing outside loopback, the testbed's own namespaces, its cache and its cgroups is touched.
"""
