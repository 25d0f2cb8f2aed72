"""
Which requests the server of ``kavip ui`` answers.

* ``Host`` must be this server on loopback: another name that a stranger's DNS points to loopback is refused (DNS
  rebinding). ``Origin`` and ``Sec-Fetch-Site`` must not be those of another page.
* The link that the command prints ends with a token, behind ``#``: browsers send that part to no server, and write it
  into no ``Referer``. The page exchanges it, once, for a session of two secrets. A cookie, which no script can read,
  and a key, which only pages of this origin have. A cookie alone is not enough: browsers send it to every port of
  127.0.0.1, and so to servers of other users.

Secrets are compared in constant time. They are in no argument, file or log.
"""

import secrets
from collections import OrderedDict
from collections.abc import Collection
from typing import Final, NamedTuple

from aiohttp import hdrs, web

LOOPBACK: Final = "127.0.0.1"
_HOSTS: Final = (LOOPBACK, "localhost")  # the latter for ssh -L
_OWN_SITE: Final = ("same-origin", "none")  # a request of the page, or of the user
_BYTES: Final = 32  # of a secret
MOST_SESSIONS: Final = 16


class Session(NamedTuple):
    """The two secrets of one reader."""

    cookie: str
    key: str


class Access:
    """The token that is valid now, and the sessions that were opened with earlier ones."""

    def __init__(self, port: int) -> None:
        """Make the first token for the server on *port*."""
        self._hosts = tuple(f"{host}:{port}" for host in _HOSTS)
        self.cookie_name: Final = f"kavip-ui-{port}"  # browsers keep one set of cookies for all ports
        self._token = secrets.token_urlsafe(_BYTES)
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    @property
    def link(self) -> str:
        """The link that opens the page once."""
        return f"http://{self._hosts[0]}/#{self._token}"

    def why_foreign(self, request: web.BaseRequest) -> str:
        """Why *request* does not come from the page or the user; "" if it may."""
        hosts, origins = request.headers.getall(hdrs.HOST, ()), request.headers.getall(hdrs.ORIGIN, ())
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return f"the host is not {self._hosts[0]}: open the link that kavip ui printed"
        own = f"http://{hosts[0]}"
        if any(origin != own for origin in origins) or (request.method != hdrs.METH_GET and not origins):
            return "the origin is not this page"
        if any(site not in _OWN_SITE for site in request.headers.getall("Sec-Fetch-Site", ())):
            return "the request comes from another site"
        return ""

    def open_session(self, token: str) -> Session | None:
        """A new session for the *token*, which is replaced; None if it is not the valid one."""
        if not _equal(token, self._token):
            return None
        self._token = secrets.token_urlsafe(_BYTES)
        session = Session(secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES))
        self._sessions[session.cookie] = session
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def has_session(self, request: web.BaseRequest) -> bool:
        """Whether *request* has both secrets of one session."""
        cookie, keys = request.cookies.get(self.cookie_name, ""), request.query.getall("key", ())
        return len(keys) == 1 and _is_any(Session(cookie, keys[0]), self._sessions.values())


def _is_any(given: Session, sessions: Collection[Session]) -> bool:
    return any(_equal(given.cookie, each.cookie) & _equal(given.key, each.key) for each in sessions)


def _equal(given: str, known: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), known.encode())
