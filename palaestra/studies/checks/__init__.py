"""Studies of the check-up that are no rows of the literature, by name."""

from __future__ import annotations

from collections.abc import Mapping

CHECKS: Mapping[str, str] = {
    name: f"palaestra.studies.checks.{name}" for name in ("calibration", "forgetting")
}
