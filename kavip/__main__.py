"""``python -m kavip``."""

from kavip.cli import main

main()
