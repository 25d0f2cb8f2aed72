"""
Lines for a terminal: no text of a file, an object or a server reaches it with control or bidirectional characters.

Messages, and what commands print of other texts as they are, go through :func:`echo`. Output for programs does not: its
encoders escape these characters.
"""

import click

from kavip.api.text import printable


def echo(text: str, *, err: bool = False) -> None:
    """Print the lines of *text*, their unprintable characters escaped; on standard error if *err*."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)
