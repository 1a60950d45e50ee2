"""The picture of who works when."""

from xml.etree import ElementTree

from palaestra.planning.trace import Span
from palaestra.view.timeline import LEFT, RIGHT, WIDTH, spacing, timeline_svg

SPANS = (
    Span("learner", 0, "learn 0", 4.0, 8.0, 0),
    Span("rollout", 1, "0.1", 0.0, 2.0, 0),
    Span("rollout", 0, "0.0", 0.0, 4.0, 0),
    Span("rollout", 0, "1.0", 8.0, 9.0, 1),
    Span("judge", 0, "call", 8.5, 10.0),
)


def parts(svg, tag):
    return [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith(tag)]


def test_lanes_bars_and_colours():
    svg = timeline_svg({"lag 0": SPANS})
    texts = [e.text for e in parts(svg, "text")]
    assert [t for t in texts if t and t[-1].isdigit() and t.split()[0] in ("judge", "rollout", "learner")] == [
        "judge 0", "rollout 0", "rollout 1", "learner 0",
    ]  # fmt: skip
    bars = [e for e in parts(svg, "rect") if e.get("stroke")]
    assert len(bars) == len(SPANS)
    inside = WIDTH - LEFT - RIGHT
    learn = next(b for b in bars if abs(float(b.get("x")) - (LEFT + 0.4 * inside)) < 0.1)
    assert abs(float(learn.get("width")) - 0.4 * inside) < 0.1  # 4 of 10 s
    assert len({b.get("fill") for b in bars}) == 3  # two versions, and work without weights
    assert "lag 0, 10 s" in texts


def test_panels_share_an_axis_and_end_where_asked():
    svg = timeline_svg({"a": SPANS[:3], "b": SPANS}, until=8.0)
    bars = [e for e in parts(svg, "rect") if e.get("stroke")]
    assert len(bars) == 3 + 3  # what begins later is left out
    edges = {round(float(b.get("x")) + float(b.get("width"))) for b in bars}
    assert max(edges) == WIDTH - RIGHT
    assert len({b.get("y") for b in bars}) == 3 + 3


def test_lines_are_at_round_seconds():
    assert [spacing(t) for t in (0.011, 5.0, 37.2, 120.0, 3_000.0)] == [0.001, 0.5, 5.0, 10.0, 500.0]
