"""``make docs``: builds the site into a folder of its version below build/site, and checks what was built."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from hack.site import built, pages

SITE: Final = pages.ROOT / "build" / "site"
SPHINX: Final = (sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--fresh-env", "--quiet")


def main() -> None:
    """Build, check, and print where the first page is."""
    folder = SITE / pages.version()
    shutil.rmtree(folder, ignore_errors=True)
    trees = pages.ROOT / "build" / "doctrees"
    subprocess.run([*SPHINX, "-c", "hack/site", "-d", trees, ".", folder], cwd=pages.ROOT, check=True)
    (folder / "index.html").write_text(built.redirect("README.html", f"kavip {pages.version()}"))
    versions = [each.name for each in SITE.iterdir() if each.is_dir()]
    (SITE / "index.html").write_text(built.versions(versions))
    if faults := built.faults(folder):
        sys.exit("\n".join([f"kavip: {len(faults)} faults in {folder.relative_to(pages.ROOT)}", *faults]))
    print(f"{_count(folder)} pages without a fault: {(SITE / 'index.html').as_uri()}")


def _count(folder: Path) -> int:
    return len(list(folder.rglob("*.html")))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
