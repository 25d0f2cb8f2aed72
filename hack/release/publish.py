"""Pushes a release to a registry, by digest, and signs what the registry then holds."""

import hashlib
from pathlib import Path
from typing import Final

from hack.release import signature
from hack.release.build import chart_of, digests, image_of
from hack.testbed import debian
from hack.testbed.errors import TestbedError
from hack.testbed.place import run
from hack.testbed.progress import step

SKOPEO: Final = {"skopeo": "skopeo"}


def push(dist: Path, registry: str, *, key: str = "", ca: Path | None = None) -> None:
    """
    Push image and chart of *dist* to *registry*, with the credentials of `skopeo login`; every digest stays.

    *key*: the private key of cosign that signs both. *ca*: a directory with the registry's CA (ca.crt).
    """
    debian.install(SKOPEO)
    for digest, name in digests(dist):
        repository, _, version = name.partition(":")
        archive = dist / (chart_of(version) if repository.startswith("charts/") else image_of(version))
        with step(f"Push {name}", f"to {registry}"):
            flags = ["--all", "--preserve-digests", *([f"--dest-cert-dir={ca}"] if ca else [])]
            target = f"{registry}/{repository}"
            run(["skopeo", "copy", *flags, f"oci-archive:{archive}", f"docker://{target}:{version}"], timeout=1800)
            _check(target, version, digest, ca)
        if key:
            signature.sign_reference(f"{target}@{digest}", key=key, ca=ca)


def _check(target: str, version: str, digest: str, ca: Path | None) -> None:
    """The registry has under the tag what was built."""
    flags = [f"--cert-dir={ca}"] if ca else []
    done = run(["skopeo", "inspect", "--raw", *flags, f"docker://{target}:{version}"], timeout=300)
    found = f"sha256:{hashlib.sha256(done.stdout.encode()).hexdigest()}"
    if found != digest:
        raise TestbedError(f"{target}:{version} is {found} in the registry: want {digest}")
