"""
``python -m tests.app.longtimeouts ...`` runs ``python -m kavip ...`` with the longest timeouts that an API server has.

Otherwise a review fails on a machine that stalls for some seconds, and with it an unrelated test.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from kavip import app
from kavip.admission import registration
from kavip.cli.main import main
from kavip.http import ports
from kavip.http.connection import Limits
from kavip.http.listener import Listener
from kavip.kube.delegatedauth import DelegatedAuth
from kavip.webhook import body, server

LONGEST = 30  # seconds: the API server accepts no more


def lengthen(put: Callable[[Any, str, Any], None]) -> None:
    """Lengthen each timeout of a review, and of the connection on which it comes, by *put*, which is a ``setattr``."""
    put(body, "DEADLINE", LONGEST - 5.0)
    put(registration, "MUTATE_TIMEOUT", LONGEST)
    put(registration, "VALIDATE_TIMEOUT", LONGEST)
    put(server, "Listener", partial(Listener, limits=Limits(handshake=LONGEST, exchange=LONGEST)))
    put(ports, "LIMITS", replace(ports.LIMITS, handshake=LONGEST, exchange=LONGEST))
    put(app, "DelegatedAuth", partial(DelegatedAuth, timeout=LONGEST))


if __name__ == "__main__":
    lengthen(setattr)
    main()
