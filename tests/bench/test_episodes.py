"""What was measured of many episodes with a failing tool, and what the page says of it."""

import json
from pathlib import Path

from benchmarks import episodes, page

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "benchmarks/episodes.json").read_text())


def test_a_thousand_episodes_came_back_with_three_in_ten_calls_failed():
    runs = {r["at_once"]: r for r in RESULT["runs"]}
    assert tuple(runs) == episodes.AT_ONCE and RESULT["machine"]["cores"] == 2
    assert all(r["episodes"] == n and r["faults"] == 0 for n, r in runs.items())
    assert runs[1000]["failed"] > 0.25 and runs[1000]["calls"] > 500
    assert "1000" in episodes.show(RESULT)


def test_the_page_has_the_numbers():
    text = (ROOT / "docs/speed.md").read_text()
    part = text.split("<!-- episodes: ")[1].split("-->\n")[1].split("<!-- end of episodes")[0]
    assert part.strip() == page.episodes_table([RESULT]).strip()
    assert f"{RESULT['machine']['load'][0]:.1f} processes" in text
