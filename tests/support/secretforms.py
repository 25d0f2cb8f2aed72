"""A secret that tests plant, in the forms in which text holds secrets."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Final

NEEDLE: Final = "hunter2zq"
_BODY: Final = b64encode(f"DER {NEEDLE} key".encode() * 9).decode()
PEM: Final = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        *(_BODY[at : at + 64] for at in range(0, len(_BODY), 64)),
        "-----END RSA PRIVATE KEY-----",
    ]
)
IN_TEXT: Final = (
    f"        auth_pass {NEEDLE}",
    f'{{"event": "line", "text": "auth_pass {NEEDLE}\\n"}}',
    f"auth_pass: {NEEDLE}",
    f"Authorization: Bearer {NEEDLE}",
    f'"authorization": "Basic {NEEDLE}"',
    f"sends bearer {NEEDLE} to it",
    f"password={NEEDLE}",
    f'{{"password": "{NEEDLE} and more"}}',
    f'{{\\"dbPassword\\": \\"{NEEDLE}\\"}}',
    f"--api-key={NEEDLE} --verbose",
    f"client_secret='{NEEDLE}'",
    f'{{"password": "with a \\"{NEEDLE}"}}',
    f'{{\\"password\\": \\"with a \\\\\\"{NEEDLE}\\"}}',
    f"password=with,{NEEDLE}",
    f'"tokens": ["one", "{NEEDLE}"]',
    f"db_pass: {NEEDLE}",
    f"credentials={NEEDLE}",
    f"--password {NEEDLE} --verbose",
    f"['curl', '--token', '{NEEDLE}']",
    f"Authorization: token {NEEDLE}",
    f'Authorization: Digest username="x", response="{NEEDLE}"',
    f"Cookie: theme=dark; session={NEEDLE}",
    f"https://user:with@{NEEDLE}@host.example/path",
    f"wss://host.example/path?key={NEEDLE}",
    f"https://user:{NEEDLE}@host.example/path",
    f"https://host.example/path?key={NEEDLE}&x=1",
    f"eyJhbGciOiJIUzI1NiJ9.{NEEDLE}.{NEEDLE}",
    f"key AAAAB3NzaC1yc2EAAAADAQABAAABgQ{NEEDLE} of somebody",
    PEM,
    PEM.replace("\n", "\\n"),
    PEM.partition("\n")[2],
    PEM.rpartition("\n")[0],
)


def forms() -> Iterator[bytes]:
    """The bytes by which :data:`NEEDLE` shows: as it is, in hexadecimal, and in Base64 at each offset."""
    raw = NEEDLE.encode()  # nine bytes, so whole groups of Base64 at each offset, without the first and the last
    yield from (raw, raw.hex().encode())
    yield from (b64encode(b"\0" * offset + raw + b"\0" * (3 - offset))[4 * bool(offset) : -4] for offset in range(3))
