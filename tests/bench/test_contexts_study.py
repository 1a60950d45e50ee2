"""The study of contexts: its arms, and what its page says of numbers."""

import asyncio
import json
from types import SimpleNamespace

import palaestra as pl
from benchmarks.contexts import page, study
from palaestra.markdown import fill_marks
from palaestra.values import walk

SEEDS = study.DECLARED["seeds"]


def results_with(right, seeds=SEEDS):
    cell = lambda x, s: {
        "start": 0.2 + 0.01 * s, "right": x + 0.02 * s, "late": 0.5, "truncated": 0.1, "beyond": 0.3, "steps": 20,
    }  # fmt: skip
    return {"cells": {f"{a}/{s}": cell(right.get(a, 0.5), s) for a in page.ARMS for s in seeds}}


def test_arms_differ_in_their_context_alone():
    made = {arm: study.recipe_of(arm) for arm in page.ARMS}
    (summed, cut, wide) = (x.collect.links[0] for x in made.values())
    assert (summed.limit, summed.summaries) == (120, 3) and (cut.limit, cut.summaries) == (120, 0)
    assert (wide.limit, wide.summaries) == (None, 0)
    first, *others = made.values()
    assert all(x.learners == first.learners and x.schedule == first.schedule for x in others)
    for arm, x in made.items():
        assert list(x.evaluate) == [f"up to {study.CONTEXTS[arm][1]} summaries"]
        (sample,) = [p for _, p in walk(x.collect) if isinstance(p, pl.Sample)]
        assert sample.n == study.DECLARED["samples"]


def test_half_of_the_shown_episodes_have_summaries(monkeypatch):
    async def summed(ctx, key, group):
        return "summed"

    async def plain(self, ctx, key, group):
        return "plain"

    monkeypatch.setattr(pl.Demonstrate, "__call__", plain)
    shows = study.ShowEither(summed)
    told = [asyncio.run(shows(None, ("k", i), None)) for i in range(400)]
    assert set(told) == {"summed", "plain"} and 150 < told.count("summed") < 250


def test_the_exam_is_that_of_the_own_context():
    ends = lambda x: {end: {"greedy": {"mean": x + (end == "after")}} for end in ("before", "after")}
    run = SimpleNamespace(summary={"evaluations": {"up to 3 summaries": ends(0.25), "up to 0 summaries": ends(0.5)}})
    assert study.exam_of(run, "summaries", "before") == 0.25
    assert study.exam_of(run, "truncation", "after") == 1.5 == study.exam_of(run, "longer window", "after")


def test_verdicts_are_over_truncation_and_the_start():
    results = results_with({"summaries": 0.9, "longer window": 0.501})
    said = page.judged(page.over_base(results))
    assert said == {"summaries": "better", "longer window": "better"}  # the latter by 0.001 on each seed
    assert page.arms_table(results).count("better") == 5 and "Not complete" not in page.conclusions(results)
    del results["cells"][f"truncation/{SEEDS[3]}"]
    assert "trial: 4 of 5 seeds" in page.arms_table(results) and "better" not in page.arms_table(results)
    assert page.conclusions(results).startswith("- **Not complete: 14 of 15 declared cells")
    assert list(page.column(results_with({}, seeds=[SEEDS[1], 8000]), "truncation", "right")) == [SEEDS[1]]


def test_the_page_has_what_the_results_say():
    results = json.loads((page.HERE / "results.json").read_text())
    text = page.PAGE.read_text()
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.contexts.page"
    assert page.PICTURE.read_text() == page.picture(results)
