"""The page "which curriculum, when": what its tables and pictures say of a result, and that it knows every arm."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.claims.curricula import CEILING, TWICE, Later, helpers, samplers, study
from palaestra.claims.starts import warm_chain
from palaestra.errors import UserError
from palaestra.stats import Interval, mean_interval
from tools.pages import studies
from tools.pages.studies import curricula_files, gains, kind_of, verdict_of


def result(**values):
    arms = {a: {"values": v, "interval": mean_interval(v).json()} for a, v in values.items()}
    return {"arms": arms, "metric": "accuracy"}


MEASURED = result(
    uniform=[0.5, 0.52, 0.48],
    dump=[0.6, 0.62, 0.58],
    ghpo=[0.501, 0.52, 0.479],
    sec=[0.4, 0.42, 0.38],
    start=[0.3, 0.3, 0.3],
)
DOSES = {f"{place} {share}": [x, x + 0.02] for place in ("begun", "in the prompt", "another task's")
         for share, x in ((0.25, 0.4), (0.5, 0.5), (0.75, 0.6))}  # fmt: skip


def folder_with(tmp_path, **results):
    (tmp_path / "results").mkdir()
    for name, found in results.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(found))
    return tmp_path


def test_each_arm_is_compared_with_uniform_draws_over_paired_seeds():
    found = gains(MEASURED)
    assert list(found) == ["dump", "ghpo", "sec", "start"]
    assert found["dump"].mean == pytest.approx(0.1) and found["dump"].low > 0
    failed = {**MEASURED, "arms": {**MEASURED["arms"], "sec": {"values": [0.4, None, 0.4], "interval": {}}}}
    assert "sec" not in gains(failed)
    assert "| sec | what is drawn | failed: 1 of 3 |" in studies.study_section(failed)
    assert "| sec | what is drawn | failed | not run |" in studies.across(
        {"half_taught": failed, "difficulties": result(uniform=[0.5] * 3)}
    )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.001, 0.2, "better"),
        (0.001, 0.029, "no difference that matters"),
        (-0.2, -0.001, "worse"),
        (-0.029, 0.029, "no difference that matters"),
        (-0.031, 0.02, "not decided"),
        (-0.02, 0.031, "not decided"),
    ],
)
def test_what_an_interval_says(low, high, said):
    assert verdict_of(Interval(mean=(low + high) / 2, low=low, high=high, n=10)) == said


def test_the_page_says_what_is_measured_and_what_is_not(tmp_path):
    both = result(bare=[0.3, 0.32], **{"first line": [0.35, 0.35]}, **DOSES)
    shares = {"arms": ["a", "b"], "shares": {"grpo": [[0.5, 0.5], [0.4, 0.6]]}, "seeds": 3, "command": "python x.py"}
    folder = folder_with(tmp_path, difficulties=MEASURED, dose=both)
    (folder / "bandit.json").write_text(json.dumps(shares))
    files = {p.name: text for p, text in curricula_files(folder).items()}
    assert set(files) == {"curricula.md", "curricula-difficulties.svg", "curricula-dose.svg", "curricula-bandit.svg"}
    page = files["curricula.md"]
    assert "| dump | what is drawn | 0.6 [" in page and "| ghpo | help | 0.5 [" in page
    missing = page.partition("Not measured yet:")[2].partition("##")[0]
    assert "half_taught.py --out" in missing and "difficulties.py" not in missing
    assert "difficulties.py --out" in page and page.count("half_taught.py --out") == 1
    assert "Nothing here is measured yet" not in page
    for picture in (text for name, text in files.items() if name.endswith(".svg")):
        assert picture.startswith("<svg") and picture.endswith("</svg>\n") and "nan" not in picture


def test_nothing_measured_is_a_page_too(tmp_path):
    ((path, page),) = curricula_files(folder_with(tmp_path)).items()
    assert path == Path("docs/curricula.md") and page.count("Not measured yet") == 3
    assert "**Nothing here is measured yet.**" in page


def test_the_page_knows_every_arm_of_the_studies():
    oracle = {"what can be learned": samplers(len, 100)["uniform"]}  # of the third start
    arms = samplers(len, 100) | helpers() | oracle
    asked = study(None, arms, what="x", task="chain", tokens=1000, demonstrations=2)
    kinds = {a: kind_of(a) for a in asked.every_arm}
    assert {a for a, k in kinds.items() if k == "help"} == set(helpers())
    assert {a for a, k in kinds.items() if k == "what is drawn"} == set(samplers(len, 100))
    assert {a for a, k in kinds.items() if k == "scale"} == set(studies.SCALES) and {TWICE, CEILING} < set(
        studies.SCALES
    )


def test_every_arm_begins_where_the_start_is_and_moves_once_a_step_at_one_rate():
    """What makes the start is the same part in all of them; a second part goes on from the first, with other tasks."""
    asked = study(warm_chain(), samplers(len, 100) | helpers(), what="x", task="chain", tokens=1000, demonstrations=2)
    assert all(
        arm.parts["sft"] == warm_chain() and arm.parts["rl"].model.part == "sft" for arm in asked.every_arm.values()
    )
    longer = asked.arms[CEILING].parts
    assert list(longer) == ["sft", "rl", "more"] and longer["more"].model.part == "rl"
    assert longer["more"].runnable.draw == Later() and longer["rl"].runnable.draw != Later()
    assert not asked.sweep(asked.every_arm)
    updates = [arm.parts["rl"].runnable.learners["policy"].update for arm in asked.arms.values()]
    assert {(u.epochs, u.minibatches) for u in updates if isinstance(u, pl.Plain)} == {(1, 1)}


def test_a_later_part_draws_other_tasks():
    bench = SimpleNamespace(tasks=SimpleNamespace(size=None, task=lambda split, i: i), first_drawn=10)
    ctx = SimpleNamespace(bench=bench)
    some, state = Later(first=5)(ctx, (0,), 2, {})
    assert some == [15, 16] and Later(first=5)(ctx, (1,), 2, state)[0] == [17, 18]


def test_a_sentence_of_the_page_holds_as_long_as_its_verdict_does():
    results = {"difficulties": result(uniform=[0.3, 0.32, 0.31], dump=[0.6, 0.62, 0.62]), "half_taught": None}
    assert studies.lesson(results, "difficulties", "dump", "better") == "+0.303"
    for where, arm, said in (
        ("difficulties", "dump", "worse"),
        ("difficulties", "sec", "worse"),
        ("half_taught", "dump", "x"),
    ):
        with pytest.raises(UserError, match="write it anew"):
            studies.lesson(results, where, arm, said)


def test_the_greedy_accuracy_of_an_arm_is_the_mean_of_its_runs():
    asked = {"controls": {"greedy": {"values": {"dump": [0.5, None, 0.7]}}}}
    assert studies.greedy_of(asked, "dump") == pytest.approx(0.6)
    assert math.isnan(studies.greedy_of(asked, "sec")) and math.isnan(studies.greedy_of(None, "sec"))
