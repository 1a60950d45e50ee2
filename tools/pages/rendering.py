"""The templates and texts of the generated pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palaestra.markdown import environment

HERE = Path(__file__).parent
TEXTS = HERE / "texts"  # of the surveys, and the questions of the page about choosing


def render(template: str, **given: Any) -> str:
    """A page from its template. Raises UndefinedError for a name that is not given."""
    return environment(HERE / "templates").get_template(template).render(given)
