"""Makes a release: `make release VERSION=1.0.0` writes dist/. Read in this order:

    source                      the files of a commit, with the version written into them
    tarball, oci                archives that are equal in each build; images and charts as OCI layouts
    image, chart, manifests     what a cluster runs, and two ways to install it
    plugin                      kubectl-kavip, as one file for each platform
    notes, sbom, signature      what changed, what is in the image, and who says so
    build                       all of it, in order; a new kind of artifact has its place there
    publish, registry           pushes image and chart; a registry on the testbed

Every file has the time of the commit. So a second build of a commit, with the same Debian packages,
gives the same bytes.
"""
