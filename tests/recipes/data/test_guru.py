"""Guru: the filter by two models, the matrix of transfer, and what is drawn of which domain."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import guru
from palaestra.tasks.files import FileTasks

from tests.recipes.objectives.helpers import near

TASK = "add(d=2)+bool(d=2)"


@pytest.mark.parametrize(
    ("weak", "strong", "reason"),
    [(0.95, 1.0, "easy"), (0.0, 0.0625, "hard"), (0.2, 0.8, ""), (0.0, 0.5, ""), (0.9, 1, "easy"), (0.5, 0.1, "hard")],
)
def test_who_is_dropped(weak, strong, reason):
    """Items A to D of the catalogue, and the two bounds."""
    assert guru.drop_reason(weak, strong) == reason


def test_the_thresholds_of_the_readme_are_the_other_way_round():
    assert [guru.drop_reason(w, s, released=True) for w, s in [(0.05, 0.5), (0.5, 0.95), (0.95, 0.5)]] == [
        "hard",
        "easy",
        "",
    ]


def test_buckets():
    rates = [0.0, 0.1, 0.2, 0.39, 0.4, 0.6, 0.8, 0.99, 1.0]
    assert [guru.bucket(r) for r in rates] == [
        "impossible", "very hard", "hard", "hard", "medium", "easy", "very easy", "very easy", "perfect",
    ]  # fmt: skip


def test_specialisation_is_the_diagonal_less_the_rest():
    before = {"a": 0.5, "b": 0.2}
    moved = guru.transfer(before, {"a": {"a": 0.9, "b": 0.3}, "b": {"a": 0.6, "b": 0.8}, "all": before})
    assert moved["a"] == pytest.approx({"a": 0.4, "b": 0.1}) and moved["all"] == {"a": 0.0, "b": 0.0}
    assert guru.specialisation(moved, ["a", "b"]) == near((0.4 + 0.6) / 2 - (0.1 + 0.1) / 2, 1e-9)
    assert np.isnan(guru.specialisation(moved, ["a"]))


def draw(ctx, stage, n=6, state=None):
    return asyncio.run(stage(ctx, ("k",), n, state or {}))


def test_a_domain_is_drawn_alone_or_all_are(context):
    ctx = context(TASK)
    one, state = draw(ctx, guru.FilteredDomain("bool(d=2)"))
    assert {t.domain for t in one} == {"bool(d=2)"} and len({t.id for t in one}) == 6
    more, _ = draw(ctx, guru.FilteredDomain("bool(d=2)"), state=state)
    assert not {t.id for t in more} & {t.id for t in one}
    assert {t.domain for t in draw(ctx, guru.FilteredDomain(), 40)[0]} == {"add(d=2)", "bool(d=2)"}
    assert draw(context("chain"), guru.FilteredDomain())[0][0].id == "chain/train/0"
    with pytest.raises(pl.UserError, match=r"no domain 'sort' in .*; there are add\(d=2\), bool\(d=2\)"):
        draw(ctx, guru.FilteredDomain("sort"))


@pytest.fixture
def rated(monkeypatch):
    """Pass rates of the weak and of the strong model, the same for every domain."""

    def rate(weak, strong):
        async def rates(ctx, key, tasks, sample):
            return np.array((weak if sample.model == "weak" else strong)[: len(tasks)], float)

        monkeypatch.setattr(pl, "pass_rates", rates)

    return rate


def test_the_filter_keeps_what_can_be_learned(context, rated):
    ctx = context(TASK)
    rated([0.95, 0.0, 0.2, 0.0], [0.8, 0.0625, 0.95, 0.5])
    found, state = draw(ctx, guru.FilteredDomain(candidates=4))
    assert state["kept"] == {"add(d=2)": [2, 3], "bool(d=2)": [2, 3]}
    assert state["dropped"]["add(d=2)"] == {"easy": 1, "hard": 1, "repeated": 0}
    assert {t.meta["pass_rate"] for t in found} == {0.95, 0.5}
    assert len({t.id for t in found}) == 4  # they start over
    rated([0.95] * 4, [1.0] * 4)
    with pytest.raises(pl.Fault, match="keeps nothing"):
        draw(ctx, guru.FilteredDomain(candidates=4))


def test_both_models_attempt_each_candidate(context, small):
    """The start against itself, at a small size."""
    study = guru.build(candidates=2)
    recipe = pl.override(study.recipe, "draw.sample.n", 2)
    ctx = context(TASK)
    from palaestra.run.driver import prepare

    prepare(recipe, ctx)
    _, state = draw(ctx, replace(recipe.draw, hard=-1.0, easy=2.0))
    assert state["kept"] == {"add(d=2)": [0, 1], "bool(d=2)": [0, 1]} and ctx.sampled_tokens > 0


def test_a_study_examines_every_domain_after_training_on_each(tmp_path):
    study = guru.build(n=4, samples=2, candidates=0)
    study = replace(study, recipe=pl.override(pl.override(study.recipe, "schedule.prompts", 2), "collect.links.0.n", 4))
    run = pl.train(study, task=TASK, steps=2, evaluate=4, out=tmp_path / "run", quiet=True)
    domains = {"add(d=2)", "bool(d=2)"}
    assert set(run.summary["transfer"]) == domains | {"all"}
    assert all(set(row) == domains for row in run.summary["transfer"].values())
    assert set(run.summary["start"]) == domains and set(run.summary["of_samples"]["start"]) == domains
    trained = {e["task_id"].split("/")[0] for e in pl.open(tmp_path / "run" / "domain-0").episodes().to_pylist()}
    assert trained == {"add(d=2)"}


def of_file(ctx, tmp_path, rows):
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return ctx.with_bench(replace(ctx.bench, tasks=FileTasks(str(file))))


def test_repeated_and_held_out_problems_of_a_file_are_dropped(context, rated, tmp_path):
    """Of six training problems of a domain two are one but for a word in twenty."""
    long = " ".join(f"w{i}" for i in range(60))
    rows = [{"prompt": f"question {i} {i} {i} of {d}", "answer": "1", "domain": d} for i in range(6) for d in "ab"]
    rows += [{"prompt": f"{long} {x}", "answer": "1", "domain": "a"} for x in ("one", "two")]
    rows += [{"prompt": f"1 {sign} 2", "answer": "1", "domain": "b"} for sign in "+-"]  # no words of theirs differ
    rows = [{**r, "split": "train"} for r in rows] + [{**r, "split": "test"} for r in (rows[0], rows[1])]
    rated([0.5] * 16, [0.5] * 16)
    _, state = draw(of_file(context("chain"), tmp_path, rows), guru.FilteredDomain(candidates=64))
    assert state["dropped"] == {"a": {"easy": 0, "hard": 0, "repeated": 2}, "b": {"easy": 0, "hard": 0, "repeated": 1}}
    assert {d: len(k) for d, k in state["kept"].items()} == {"a": 6, "b": 7}


def test_an_exam_is_of_a_domain_of_the_users_file(context, tmp_path):
    rows = [{"prompt": f"{i} of {d}", "answer": "1", "domain": d, "split": s} for i in range(3) for d, s in
            (("a", "train"), ("a", "test"), ("b", "train"))]  # fmt: skip
    ctx = of_file(context("chain"), tmp_path, [{**r, "prompt": f"{r['prompt']} {r['split']}"} for r in rows])
    asyncio.run(pl.run.Exam("a", 8)(ctx))
    with pytest.raises(pl.UserError, match="no problem of the domain 'b' is held out; give --test-data"):
        asyncio.run(pl.run.Exam("b", 8)(ctx))


def test_one_model_attempts_the_candidates_once_and_two_do_it_each():
    one, two = guru.build().recipe, guru.build(strong="other").recipe
    assert one.references == {"weak": "policy"} and one.draw.strong == "weak" and one.draw.candidates != 0
    assert two.references == {"weak": "policy", "strong": "other"} and two.draw.strong == "strong"


def test_difficulties_are_counted():
    assert guru.difficulties(np.array([0.5, 0.0, 1.0, 0.5])) == "1 impossible, 2 medium, 1 perfect"
