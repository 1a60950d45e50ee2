"""The models that come with the package, by name: the folders that they lie in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS: Mapping[str, Path] = {"tiny": HERE / "tiny", "tiny-agent": HERE / "tiny_agent"}
