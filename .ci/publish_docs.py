"""Put the pages of one version beside those of the others: ``python .ci/publish_docs.py docs/_build/html SITE URL``.

SITE is a checkout of the branch that is published, and URL where this version will be read, such as
``https://host/project/0.2.0`` or ``…/dev``. ``stable`` is a copy of the newest release; the front page leads to it, or to
``dev`` before the first release. ``versions.json`` is what the switcher of versions reads.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path


def order(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to sort by."""
    return tuple(map(int, version.split(".")))


def publish(built: Path, site: Path, url: str) -> None:
    """Add a version to the site, or replace it."""
    base, _, folder = url.rstrip("/").rpartition("/")
    shutil.rmtree(site / folder, ignore_errors=True)
    shutil.copytree(built, site / folder, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    names = [path.name for path in site.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]  # no release candidates
    releases = sorted(names, key=order, reverse=True)
    if releases and folder == releases[0]:
        shutil.rmtree(site / "stable", ignore_errors=True)
        shutil.copytree(site / folder, site / "stable")
    versions = [{"name": name, "version": name, "url": f"{base}/{name}/"} for name in releases]
    if versions:
        versions[0] |= {"name": f"{releases[0]} (stable)", "url": f"{base}/stable/", "preferred": True}
    if (site / "dev").is_dir():
        versions.insert(0, {"name": "dev", "version": "dev", "url": f"{base}/dev/"})
    (site / "versions.json").write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
    front = "stable" if releases else "dev"
    (site / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={front}/">\n', encoding="utf-8")
    (site / ".nojekyll").touch()  # folders whose names start with an underscore are pages as well


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
