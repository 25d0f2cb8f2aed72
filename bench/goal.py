"""A row of a benchmark's table that has a goal."""


def row(what: str, figure: str, *, goal: str, met: bool) -> None:
    """Print *figure*, its *goal*, and whether it is *met*."""
    print(f"  {what:<52} {figure:>10}   goal {goal}: {'met' if met else 'NOT MET'}")
