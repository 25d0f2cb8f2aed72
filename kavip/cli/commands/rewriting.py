"""
What the commands share that rewrite Services in manifests.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kavip.cli.printing import echo

if TYPE_CHECKING:
    from kavip.cli.sources.rewrite import Manifest
    from kavip.errors import BadFile


def rewrite(
    manifests: "Sequence[Manifest]",
    patches: Mapping[str, Mapping[str, Any]],
    *,
    unread: "Sequence[BadFile]",
    refused: int,
    dry_run: bool,
) -> int:
    """
    Apply *patches* to the files, or print the difference; return the exit status.

    *refused*: the number of Services that cannot be changed. A file that cannot be read or edited hides no other.
    """
    from kavip.cli.sources.rewrite import rewritten_all
    from kavip.cli.views.conversionoutput import unified
    from kavip.errors import BadFile

    changed, failed = rewritten_all(manifests, patches)
    for manifest, text in changed:
        if dry_run:
            echo(unified(manifest.text, text, manifest.where))
            continue
        try:
            manifest.write(text)
        except BadFile as unwritten:
            failed.append(unwritten)
        else:
            keys = [each.service.key for each in manifest.services if each.service.key in patches]
            echo(f"{manifest.where}: rewritten: {', '.join(keys)}", err=str(manifest.file) == "-")
    for error in (*unread, *failed):
        echo(f"kavip: {error}", err=True)
    if unread or failed:
        return 2
    if dry_run:
        return 2 if refused else 1 if changed else 0
    return 1 if refused else 0
