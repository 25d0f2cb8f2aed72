"""
The TLS context that serves a certificate, and whether OpenSSL accepts the certificate.

OpenSSL reads certificates from files only. A memfd is a file that is never on disk and works on a read-only root.

Each certificate needs a new context. A context keeps one certificate per type of key, and the client's preferences
choose among them: a live context with an ECDSA certificate would still serve it after an RSA certificate was loaded.
"""

import os
import ssl

from kavip.pki.certificates import KeyPair


def server_context() -> ssl.SSLContext:
    """A server context without a certificate: TLS 1.2 and up, HTTP/1.1."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    return made


def serving_context(leaf: KeyPair) -> ssl.SSLContext:
    """A server context that serves *leaf* only."""
    made = server_context()
    descriptor = os.memfd_create("kavip-webhook-leaf", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(leaf.certificate_pem + leaf.key_pem)
        made.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return made


def openssl_error(leaf: KeyPair) -> str:
    """Why OpenSSL rejects *leaf*, for example because its key is too short; "" if it accepts it."""
    try:
        serving_context(leaf)
    except ssl.SSLError as error:
        return f"OpenSSL rejects the certificate: {error.reason or error}"
    return ""
