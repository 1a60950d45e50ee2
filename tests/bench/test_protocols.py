"""The table of docs/runs.md about protocols on a real model is that of its numbers."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_was_measured():
    found = json.loads((ROOT / "benchmarks/protocols.json").read_text())["found"]
    script = runpy.run_path(str(ROOT / "benchmarks/protocols.py"))
    assert list(found) == list(script["PARTS"]) == list(script["METHODS"])
    page = (ROOT / "docs/runs.md").read_text()
    assert (
        page.split("<!-- protocols: ")[1].split("-->\n")[1].split("<!--")[0].strip() == script["shown"](found).strip()
    )
