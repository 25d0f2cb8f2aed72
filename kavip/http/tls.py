"""
The TLS context that serves a certificate, and whether OpenSSL accepts the certificate.

OpenSSL reads certificates from files only. A memfd is a file that is never on disk and works on a read-only root.

Each certificate needs a new context. A context keeps one certificate per type of key, and the client's preferences
choose among them: a live context with an ECDSA certificate would still serve it after an RSA certificate was loaded.

With a client CA the server requests a client certificate. A client without one is served; the handshake with a client
whose certificate is not of that CA, has expired or is not for clients fails.
"""

import os
import ssl

from kavip.pki.certificates import KeyPair


def server_context(client_ca: str = "") -> ssl.SSLContext:
    """A server context without a certificate: TLS 1.2 and up, HTTP/1.1; *client_ca* is PEM."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    if client_ca:
        made.load_verify_locations(cadata=client_ca)
        made.verify_mode = ssl.CERT_OPTIONAL
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate CA is enough
        made.num_tickets = 0  # a resumed session would not be verified again
    return made


def serving_context(leaf: KeyPair, client_ca: str = "") -> ssl.SSLContext:
    """A server context that serves *leaf* only; *client_ca* as in :func:`server_context`."""
    made = server_context(client_ca)
    descriptor = os.memfd_create("kavip-leaf", os.MFD_CLOEXEC)
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
