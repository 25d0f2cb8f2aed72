"""
``python -m tests.app.patient ...`` is ``python -m kavip ...``, whose reviews may take as long as an API server waits.

A machine that stalls for some seconds would else cost a call, and with it a test that is about something else.
"""

from kavip.admission import registration
from kavip.cli.main import main
from kavip.webhook import body

LONGEST = 30  # seconds: the API server takes no more

if __name__ == "__main__":
    body.DEADLINE = LONGEST - 5.0  # type: ignore[misc]  # on purpose
    registration.MUTATE_TIMEOUT = registration.VALIDATE_TIMEOUT = LONGEST  # type: ignore[misc]  # on purpose
    main()
