"""OpenAGI: which candidate is taken, what multiplies its log-probability, and runs on files of one's own."""

import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import openagi
from palaestra.types import Row, Segment, rng_of

from tests.recipes.objectives.helpers import advantages, near, scored

EXPERTS = """
def up(text: str) -> str:
    return text.upper()

def twice(text: str) -> str:
    return text + text

def count(text: str) -> int:
    return len(text)
"""


def three(**options):
    """The credit of rewards .6, -1, .3, a task each."""
    return [x for (x,) in advantages(openagi.build(**options), *[scored(r) for r in (0.6, -1, 0.3)])]


def test_the_multipliers_of_the_catalogue():
    """By hand: the running means of .6, -1, .3 are .6, -.4 / 2 and -.1 / 3."""
    assert three() == near([0.6, -1, 0.3])
    assert three(baseline="released") == near([0.6, -0.2, -1 / 30])
    assert three(baseline="released", epoch=2) == near([0.6, -0.2, 0.3])


def test_a_moving_baseline_belongs_to_a_description():
    """By hand: b = 0, .06, -.046 where all tasks have one description."""
    assert three(baseline="moving") == near([0.6, -1.06, 0.346])


def test_a_baseline_that_is_none_is_refused():
    with pytest.raises(UserError, match="baseline is none, moving, released, not 'ema'"):
        openagi.build(baseline="ema")
    with pytest.raises(UserError, match="learn=False trains nothing"):
        openagi.build(learn=False)
    with pytest.raises(UserError, match="epsilon"):
        openagi.build(epsilon=1.5)


def test_the_likeliest_is_taken_and_with_epsilon_another_by_its_share():
    """Of logs of .6, .3 and .1 (halved: shares do not change) the draws of 4,000 keys have these shares."""
    logp = np.log([0.3, 0.6, 0.1]) - np.log(2)
    drawn = lambda epsilon: [openagi.chosen_of(logp, epsilon, rng_of(("draw", i))) for i in range(4000)]
    assert set(drawn(0.0)) == {1}
    assert np.bincount(drawn(1.0)) / 4000 == pytest.approx([0.3, 0.6, 0.1], abs=0.03)
    assert np.bincount(drawn(0.5)) / 4000 == pytest.approx([0.15, 0.8, 0.05], abs=0.03)


def test_the_log_probability_of_a_plan_is_that_of_what_was_said():
    said = Segment(ids=(1, 2), trained=True, policy="policy", logp=(-0.5, -0.25))
    shown = Segment(ids=(3,), logp=(-9.0,))
    more = Segment(ids=(4,), trained=True, policy="policy", logp=(-1.0,))
    assert openagi.plan_logp(pl.Episode(rows=(Row(segments=(shown, said, shown, more)),))) == near(-1.75)


@pytest.fixture
def own(tmp_path):
    (tmp_path / "experts.py").write_text(EXPERTS)
    rows = [
        {"prompt": f"shout it, {i}", "inputs": ["a", f"b{i}"], "targets": ["A", f"B{i}"], "plan": ["up"]}
        for i in range(20)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    files = {"tools": [str(tmp_path / "experts.py")], "data": str(tmp_path / "rows.jsonl")}
    small = {"env": "experts(turns=2,told=0)", "evaluate": 0, "steps": 2}
    return {"model": "tiny-agent", "quiet": True, "out": tmp_path / "run", **small, **files}


def episodes(run):
    return run.episodes().to_pylist()


def test_one_candidate_is_run_and_learned_from(own):
    run = pl.train("openagi", set={"candidates": 4, "epsilon": 1.0, "schedule.prompts": 4}, **own)
    rows = episodes(run)
    assert len(rows) == 8  # a plan of each task
    facts = [json.loads(r["facts"]) for r in rows]
    assert all(1 <= f["candidates"] <= 4 and f["plan_fits"] for f in facts)
    for row, f in zip(rows, facts, strict=True):
        twice, up = f["plan"].count("twice"), "up" in f["plan"]
        # the edit similarity to A and B7 (or B17): all letters right and once, or some of them
        assert row["reward"] == near(1.0) if (up and not twice) else row["reward"] < 1
        assert f["correct"] == (row["reward"] == 1)


def test_without_legal_choices_plans_may_not_fit(own):
    run = pl.train("openagi", set={"candidates": 2, "legal": False, "temperature": 4.0, "schedule.prompts": 8}, **own)
    rows = episodes(run)
    unfit = [r for r in rows if not json.loads(r["facts"])["plan_fits"]]
    assert unfit and all(r["reward"] == -1 for r in unfit)


def test_the_column_plan_is_imitated_and_one_that_does_not_fit_is_refused(own, tmp_path):
    given = {"start": "finetuned", "shown": 2, "learn": False, "finetuned.schedule.prompts": 2}
    run = pl.train("openagi", set=given, **own)
    assert run.folder.joinpath("finetuned").is_dir() and not run.folder.joinpath("rltf").exists()
    bad = own["data"].replace("rows", "bad")
    row = {"prompt": "x", "inputs": ["a"], "targets": ["A"], "plan": ["count"]}
    with open(bad, "w") as f:
        f.writelines(json.dumps({**row, "prompt": f"x{i}"}) + "\n" for i in range(12))
    with pytest.raises(UserError, match="its plan has 'count' behind"):
        pl.train("openagi", set=given, **own | {"data": bad, "out": tmp_path / "bad"})


def test_it_is_refused_where_there_are_no_experts(tmp_path):
    with pytest.raises(UserError, match="openagi needs tools"):
        pl.train("openagi", task="add", out=tmp_path / "run", quiet=True)
