"""
``python -m tests.app.longtimeouts ...`` runs ``python -m kavip ...`` with the longest timeouts that an API server has.

Otherwise a review fails on a machine that stalls for some seconds, and with it an unrelated test.
"""

from kavip.admission import registration
from kavip.cli.main import main
from kavip.webhook import body

LONGEST = 30  # seconds: the API server accepts no more

if __name__ == "__main__":
    body.DEADLINE = LONGEST - 5.0  # type: ignore[misc]  # on purpose
    registration.MUTATE_TIMEOUT = registration.VALIDATE_TIMEOUT = LONGEST  # type: ignore[misc]  # on purpose
    main()
