"""The version of this distribution: that of the ``ndpp`` of the same checkout, which it needs, since it uses private names of it."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class VersionOfNdpp(MetadataHookInterface):
    """Reads the version where ``ndpp`` states it. In a source distribution, hatchling takes both fields from PKG-INFO."""

    def update(self, metadata: dict[str, object]) -> None:
        """Set version and dependencies."""
        text = (Path(self.root).parent / "src" / "ndpp" / "__init__.py").read_text(encoding="utf-8")
        found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
        if found is None:
            raise ValueError("src/ndpp/__init__.py states no __version__")
        metadata["version"] = found[1]
        metadata["dependencies"] = [f"ndpp[cli]=={found[1]}"]
