"""What a study writes: numbers as they are told, a page without scripts, and pictures."""

import json
import math

import palaestra as pl
from palaestra.stats import Interval
from palaestra.studies.page import write_study

LINE = pl.studies.StudyLine("start", [1, 2, 4], [0.1, 0.2, 0.4], [0.0, 0.1, math.nan], [0.2, 0.3, 0.5])


def test_numbers_for_people():
    half = Interval(mean=0.5, low=0.25, high=0.75, n=9)
    assert pl.studies.tell_interval(half) == "50.0% (25.0 to 75.0)"
    assert pl.studies.tell_interval(half, signed=True) == "+50.0 points (+25.0 to +75.0)"
    less = Interval(mean=-0.5, low=-1, high=0, n=9)
    assert pl.studies.tell_interval(less, share=False, signed=True) == "−0.500 (−1.000 to +0.000)"
    assert pl.studies.tell_interval(Interval(mean=math.nan, low=0, high=1, n=0)) == "?"
    assert pl.studies.tell_interval(Interval(mean=0.1, low=-math.inf, high=math.inf, n=1)) == "10.0%"


def test_the_files(tmp_path):
    report = pl.studies.StudyReport(
        study="s",
        question="Is <b> safe?",
        findings=["<script>alert(1)</script>"],
        numbers={"x": 1.0, "y": Interval(mean=0.5, low=0.25, high=0.75, n=9)},
        protocol={"how": "so"},
        tables=[pl.studies.StudyTable("t", ("a",), [("<i>",)])],
        charts=[pl.studies.StudyChart("c", "k", "share", [LINE], share=True, log_x=True)],
        items=[{"id": 1}, {"id": "ä"}],
        pages={"other": "other/study.html"},
    )
    write_study(tmp_path, report)
    page = (tmp_path / "study.html").read_text()
    assert "&lt;script&gt;" in page and "<script" not in page and "&lt;i&gt;" in page and "<svg" in page
    assert '<a href="other/study.html">other</a>' in page and "2 items stand in items.jsonl" in page
    assert [json.loads(x) for x in (tmp_path / "items.jsonl").read_text().splitlines()] == [{"id": 1}, {"id": "ä"}]
    kept = json.loads((tmp_path / "study.json").read_text())
    assert (
        kept["numbers"]["y"]["low"] == 0.25 and "items" not in kept and kept["charts"][0]["lines"][0]["low"][2] is None
    )
    assert (tmp_path / "chart-1.png").read_bytes()[:4] == b"\x89PNG"
