"""
The live TLS context, and whether OpenSSL takes a certificate.

OpenSSL reads files only. A memfd is one that never touches a disk, and works on a read-only root.
"""

import os
import ssl

from kavip.webhook.certs import Pair


def context() -> ssl.SSLContext:
    """A server's context without a certificate: TLS 1.2 and up, HTTP/1.1."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    return made


def load(into: ssl.SSLContext, leaf: Pair) -> None:
    """Serve *leaf* from the next connection on; those that stand keep theirs."""
    descriptor = os.memfd_create("kavip-webhook-leaf", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(leaf.certificate_pem + leaf.key_pem)
        into.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def complaint(leaf: Pair) -> str:
    """What OpenSSL has against *leaf*; a key that is too short, for example. A live context is not asked first."""
    try:
        load(context(), leaf)
    except ssl.SSLError as error:
        return f"OpenSSL does not take the certificate: {error.reason or error}"
    return ""
