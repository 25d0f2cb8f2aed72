"""``python -m kavip``."""

from kavip.cli.main import main

main()
