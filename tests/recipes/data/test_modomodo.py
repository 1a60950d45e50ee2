"""MoDoMoDo: the surrogate and its maximum in closed form, the shares of a draw, and the runs."""

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.data.modomodo import EXPERIMENT
from palaestra.recipes.data import modomodo
from palaestra.recipes.data.modomodo import (
    Shares,
    TrainBest,
    best_mixture,
    fit_surrogate,
    left_out_r2,
    onto_simplex,
    pilot_mixtures,
)
from palaestra.tasks.files import FileTasks

from tests.vision import noise, pillow, save_tiny

TWO = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
THREE = np.array(pilot_mixtures(3))
MIXED = "chain(modulo=7)+chain(modulo=9)+chain(modulo=11)"


def bent(w):
    """A quadratic of three shares with its maximum inside, at (.5, .3, .2)."""
    return 0.6 - ((np.atleast_2d(w) - [0.5, 0.3, 0.2]) ** 2).sum(1)


def test_two_domains_of_the_catalogue():
    """S(0) = .40, S(1) = .50, S(.5) = .55: .40 + .50 x - .40 x^2, at most .55625 at .625."""
    found = fit_surrogate(TWO, np.array([0.40, 0.50, 0.55]), ridge=0.0)
    x = np.linspace(0, 1, 11)
    assert found(np.column_stack([x, 1 - x])) == pytest.approx(0.40 + 0.50 * x - 0.40 * x**2)
    best = best_mixture(found, np.eye(2))
    assert best == pytest.approx([0.625, 0.375], abs=1e-4)
    assert found(best)[0] == pytest.approx(0.55625)


def test_a_quadratic_of_three_domains_is_found_exactly_and_a_linear_one_ends_at_a_vertex():
    found = fit_surrogate(THREE, bent(THREE), ridge=0.0)
    for w in ([0.1, 0.2, 0.7], [0.5, 0.3, 0.2]):
        assert found(np.array(w))[0] == pytest.approx(bent(np.array(w))[0])
    assert best_mixture(found, np.eye(3)) == pytest.approx([0.5, 0.3, 0.2], abs=1e-4)
    line = fit_surrogate(THREE, bent(THREE), quadratic=False, ridge=0.0)
    assert sorted(best_mixture(line, np.eye(3)).tolist()) == pytest.approx([0, 0, 1], abs=1e-6)


def test_the_hull_of_pilots_forbids_extrapolation():
    """Pilots between .4 and .6 of a score that rises with the first share."""
    pilots = np.array([[0.4, 0.6], [0.5, 0.5], [0.6, 0.4]])
    rising = fit_surrogate(pilots, pilots[:, 0], ridge=0.0)
    assert best_mixture(rising, np.eye(2)) == pytest.approx([1, 0], abs=1e-6)
    assert best_mixture(rising, pilots) == pytest.approx([0.6, 0.4], abs=1e-6)


def test_pilots():
    assert len(THREE) == 7 and THREE.sum(1) == pytest.approx(np.ones(7))
    assert pilot_mixtures(3)[3] == (0.0, 0.5, 0.5) and len(pilot_mixtures(2)) == 3 and len(pilot_mixtures(5)) == 11


def test_projection():
    assert onto_simplex(np.array([0.2, 0.3, 0.5])) == pytest.approx([0.2, 0.3, 0.5])
    assert onto_simplex(np.array([2.0, 0.0])).tolist() == [1, 0]
    assert onto_simplex(np.array([0.5, 0.5, -1.0])) == pytest.approx([0.5, 0.5, 0])


def test_left_out_r2_leaves_out_every_repeat_and_tells_a_curve_from_a_line():
    w = np.repeat(np.vstack([THREE, [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]]), 2, 0)
    s = bent(w)
    assert left_out_r2(w, s, True, 0.0) == pytest.approx(1.0)
    assert left_out_r2(w, s, False, 0.0) < 0.9
    assert left_out_r2(w, pl.rng_of(("noise",)).random(len(w)), True, 1e-3) < 0
    assert math.isnan(left_out_r2(TWO[:2], np.array([0.1, 0.2]), True, 0.0))
    assert modomodo.noise(w, s) == pytest.approx(0.0) and math.isnan(modomodo.noise(THREE, bent(THREE)))
    assert modomodo.noise(TWO[[0, 0]], np.array([0.1, 0.3])) == pytest.approx(math.sqrt(0.02))


def test_ridge_shrinks_to_the_mean_and_decides_where_runs_are_few():
    flat = fit_surrogate(THREE, bent(THREE), ridge=1e6)
    assert flat(np.array([1.0, 0, 0]))[0] == pytest.approx(bent(THREE).mean(), abs=1e-4)
    few = fit_surrogate(THREE[:2], np.array([0.2, 0.4]))
    assert few(THREE[:2]) == pytest.approx([0.2, 0.4], abs=0.01)


def test_shares_of_a_draw(context):
    ctx, weights = context(MIXED), (0.5, 0.0, 0.5)
    found, state = Shares(weights)(ctx, ("k",), 400, {})
    count = Counter(t.domain for t in found)
    names = [p.name for p, _ in ctx.bench.tasks.parts]
    assert count[names[1]] == 0 and abs(count[names[0]] - 200) < 40
    assert len({t.id for t in found}) == 400  # each domain in its own order, nothing twice
    more, _ = Shares(weights)(ctx, ("k", 2), 10, state)
    assert not {t.id for t in more} & {t.id for t in found}
    even, _ = Shares()(ctx, ("k",), 300, {})
    assert all(abs(n - 100) < 35 for n in Counter(t.domain for t in even).values())
    with pytest.raises(pl.UserError, match="2 shares for 3 domains"):
        Shares((0.5, 0.5))(ctx, ("k",), 4, {})


def test_shares_of_the_domains_of_a_users_file(context, tmp_path):
    """In the order of their names, whatever their size."""
    domains = ["b"] * 20 + ["a"] * 10 + ["c"] * 10
    rows = [{"prompt": f"question {i}", "answer": "1", "domain": d} for i, d in enumerate(domains)]
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    ctx = context("chain")
    of_file = ctx.with_bench(replace(ctx.bench, name="rows", tasks=FileTasks(str(file))))
    found, _ = Shares((0.25, 0.0, 0.75))(of_file, ("k",), 400, {})
    count = Counter(t.domain for t in found)
    assert set(count) == {"a", "c"} and abs(count["a"] - 100) < 35
    with pytest.raises(pl.UserError, match="2 shares for 3 domains of 'rows'; give domains=3"):
        Shares((0.5, 0.5))(of_file, ("k",), 4, {})
    with pytest.raises(pl.UserError, match=r"3 shares for 1 domains of 'chain'; give a mixture, .* column `domain`"):
        Shares((0.2, 0.3, 0.5))(ctx, ("k",), 4, {})


@pytest.mark.parametrize("choose", ["quadratic", "linear", "best pilot", "uniform", "shuffled"])
def test_what_is_chosen(context, choose):
    program = TrainBest(pl.recipe("grpo"), tuple(pilot_mixtures(3)), choose, ridge=1e-9)
    weights, predicted = program.weights(context(MIXED), THREE, bent(THREE))
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    expected = {"quadratic": (0.5, 0.3, 0.2), "uniform": (1 / 3,) * 3, "best pilot": (1 / 3,) * 3}
    if choose in expected:
        assert weights == pytest.approx(expected[choose], abs=1e-3)
    if choose == "quadratic":
        assert predicted == pytest.approx(0.6, abs=1e-6)
    if choose == "shuffled":
        assert max(abs(np.subtract(weights, (0.5, 0.3, 0.2)))) > 0.05


def test_the_program_scores_pilots_by_domain_and_trains_with_what_it_chose(tmp_path):
    """Two pilots at their smallest."""
    small = pl.vary(
        pl.recipe("grpo"), collect=pl.links(pl.Sample(n=4), pl.Score()), schedule=pl.Schedule(prompts=4, steps=1)
    )
    pipeline = modomodo.build(domains=2, recipe=small, repeats=2)
    pipeline = pl.override(pl.override(pipeline, "rl.tasks", 4), "rl.samples", 2)
    run = pl.train(pipeline, task="chain(modulo=7)+chain(modulo=9)", out=tmp_path / "run", evaluate=4, quiet=True)
    found = run.summary
    ends = [found["parts"][f"pilot {i}"]["weights_sha256"] for i in range(6)]
    assert len(set(ends)) == 6, "a repeat is a run of its own"
    assert len(found["pilots"]) == 6 and all(0 <= p["score"] <= 1 for p in found["pilots"])
    assert sum(found["weights"]) == pytest.approx(1) and 0 <= found["accuracy_after"]["mean"] <= 1


def test_a_run_with_the_best_mixture_joins_the_pilots(context, monkeypatch):
    """Scores of a parabola whose maximum is .7 of the first domain, where three pilots put it already: so do
    all that join them. The last fit has five scores.
    """
    true = lambda w: 0.5 - (w[0] - 0.7) ** 2
    pilots = tuple(pilot_mixtures(2))
    chosen = {}

    async def score(self, ctx, model):
        kind, number = model.split()
        return true(pilots[int(number)] if kind == "pilot" else chosen[int(number)])

    async def train(recipe):
        return pl.Result(metrics={}, artifacts={})

    monkeypatch.setattr(TrainBest, "score", score)
    ctx = context("chain(modulo=7)+chain(modulo=9)")
    ctx.train = train
    parts = modomodo.build(domains=2, refits=2, ridge=1e-9).parts
    assert list(parts) == ["pilot 0", "pilot 1", "pilot 2", "round 0", "round 1", "rl"]
    assert set(parts["rl"].models) - set(parts["round 1"].models) == {"round 1"}
    for i, name in enumerate(("round 0", "round 1", "rl")):
        metrics = asyncio.run(parts[name].runnable.run(ctx)).metrics
        assert len(metrics["pilots"]) == 3 + i
        chosen[i] = tuple(metrics["weights"])
        assert [tuple(p["weights"]) for p in metrics["pilots"][3:]] == [chosen[k] for k in range(i)]
        assert chosen[i] == pytest.approx((0.7, 0.3), abs=1e-3) and metrics["predicted"] == pytest.approx(0.5)
        assert metrics["pilots"][-1]["score"] == pytest.approx(0.5 if i else true(pilots[-1]))
    with pytest.raises(pl.UserError, match="refits is -1"):
        modomodo.build(refits=-1)


@pytest.mark.slow
def test_pictures_of_two_domains_and_other_problems_to_be_best_on(tmp_path):
    """Two domains of pictures; pilots are scored on the records of --test-data, which have no domain."""
    folder, rows = save_tiny("idefics3", tmp_path / "seeing"), []
    for i in range(8):
        pillow(noise(i)).save(tmp_path / f"{i}.png")
        rows.append({"image": f"{i}.png", "prompt": "What is it?", "answer": "a", "domain": "ab"[i % 2]})
    write = lambda name, some: (tmp_path / name).write_text("".join(json.dumps(r) + "\n" for r in some))
    write("train.jsonl", rows)
    write("other.jsonl", [{"image": f"{i}.png", "prompt": "And here?", "answer": "b"} for i in (0, 3)])
    small = pl.vary(
        pl.recipe("grpo"), collect=pl.links(pl.Sample(n=2), pl.Score()), schedule=pl.Schedule(prompts=2, steps=1)
    )
    pipeline = pl.override(modomodo.build(domains=2, recipe=small), "rl.samples", 1)
    run = pl.train(
        pipeline,
        model=folder,
        data=str(tmp_path / "train.jsonl"),
        test_data=str(tmp_path / "other.jsonl"),
        max_tokens=4,
        out=tmp_path / "run",
        quiet=True,
    )
    assert len(run.summary["pilots"]) == 3 and run.summary["accuracy_after"]["n"] == 2


def test_the_claim():
    assert not EXPERIMENT.lacks() and EXPERIMENT.not_testable
    assert all(len(EXPERIMENT.settings_of(a)) >= 2 for a in EXPERIMENT.arms)
    with pytest.raises(pl.UserError, match="choose"):
        modomodo.build("cubic")
