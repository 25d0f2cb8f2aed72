"""
The TLS context of a certificate, and whether OpenSSL takes it.

OpenSSL reads files only. A memfd is one that never touches a disk, and works on a read-only root.

A context keeps one certificate for each type of key, and the client's wishes choose among them: a live one that was
given an RSA certificate would go on showing the ECDSA certificate before it. So each certificate has a context of its
own, from the next connection on.
"""

import os
import ssl

from kavip.pki.certificates import Pair


def context() -> ssl.SSLContext:
    """A server's context without a certificate: TLS 1.2 and up, HTTP/1.1."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    return made


def showing(leaf: Pair) -> ssl.SSLContext:
    """A server's context that shows *leaf*, and nothing else."""
    made = context()
    descriptor = os.memfd_create("kavip-webhook-leaf", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(leaf.certificate_pem + leaf.key_pem)
        made.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return made


def complaint(leaf: Pair) -> str:
    """What OpenSSL has against *leaf*; a key that is too short, for example."""
    try:
        showing(leaf)
    except ssl.SSLError as error:
        return f"OpenSSL does not take the certificate: {error.reason or error}"
    return ""
