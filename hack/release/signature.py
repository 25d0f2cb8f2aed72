"""Signatures by cosign, with a key that the caller gives: of the checksums, and of what a registry holds.

No transparency log is asked and none is needed to verify: a cluster without the internet has none.
"""

from pathlib import Path
from typing import Final

from hack.release import tools
from hack.testbed.place import run

_OFFLINE: Final = ("--use-signing-config=false", "--tlog-upload=false", "--yes")
_TIMEOUT: Final = 300.0


def sign_file(path: Path, *, key: str) -> Path:
    """Sign a file; return the path of the bundle with the signature."""
    bundle = path.with_name(f"{path.name}.sigstore.json")
    run(
        [tools.program("cosign"), "sign-blob", f"--key={key}", f"--bundle={bundle}", *_OFFLINE, str(path)],
        timeout=_TIMEOUT,
    )
    return bundle


def verify_file(path: Path, *, key: str) -> bool:
    """Whether the bundle beside a file is a signature of it by the owner of the public *key*."""
    bundle = path.with_name(f"{path.name}.sigstore.json")
    command = ["verify-blob", f"--key={key}", f"--bundle={bundle}", "--insecure-ignore-tlog=true", str(path)]
    return run([tools.program("cosign"), *command], check=False, timeout=_TIMEOUT).returncode == 0


def sign_reference(reference: str, *, key: str, ca: Path | None = None) -> None:
    """Sign what a registry holds; *reference* names it by digest. The signature is stored beside it."""
    flags = [f"--key={key}", *_OFFLINE, *_trust(ca)]
    run([tools.program("cosign"), "sign", *flags, reference], timeout=_TIMEOUT)


def verify_reference(reference: str, *, key: str, ca: Path | None = None) -> bool:
    """Whether a registry has, beside what *reference* names by digest, a signature by the owner of the public *key*."""
    flags = [f"--key={key}", "--insecure-ignore-tlog=true", *_trust(ca)]
    return run([tools.program("cosign"), "verify", *flags, reference], check=False, timeout=_TIMEOUT).returncode == 0


def _trust(ca: Path | None) -> list[str]:
    return [f"--registry-cacert={ca / 'ca.crt'}"] if ca else []
