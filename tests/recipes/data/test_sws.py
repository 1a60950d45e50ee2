"""SwS: who is weak, how many problems each domain gets, what is drawn when, and the catalogue's values."""

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import sws
from palaestra.tasks.files import FileTasks

from tests.recipes.helpers import played
from tests.recipes.objectives.helpers import near

TASK = "add(d=2)+knights(d=3)"


@pytest.mark.parametrize(
    ("rates", "weak"),
    [
        ([0.25, 0.375, 0.25, 0.125], True),
        ([0.25, 0.375, 0.25, 0.5], False),
        ([0.49, 0.1], True),
        ([0.5, 0.1], False),
        ([0.1, 0.2], False),  # it learns
        ([0.25, 0.25, 0.25], False),  # neither more nor less
        ([0, 0, 0], False),
        ([0.1], False),
        ([], False),
    ],
)
def test_a_problem_is_weak_that_is_never_solved_half_of_the_time_and_ever_less(rates, weak):
    """The first has the slope -0.05."""
    assert sws.is_weak(rates) is weak


def test_budgets_follow_the_ratios():
    """Ratios .1 and .3 of 1000 are 250 and 750."""
    assert sws.budgets({"A": 0.1, "B": 0.3}, 1000) == {"A": 250, "B": 750}
    assert sws.budgets({"A": 0.0, "B": 0.3}, 10) == {"A": 0, "B": 10}
    assert sws.budgets({"A": 0.0, "B": 0.0}, 10) == {"A": 0, "B": 0}
    assert sws.budgets({"A": 1, "B": 1, "C": 1}, 10) == {"A": 4, "B": 3, "C": 3}
    rates = {"a": [0.3, 0.1], "b": [0.9, 0.1], "c": [0.2, 0.0]}
    assert sws.fail_ratios(rates, {"a": "A", "b": "A", "c": "C"}) == {"A": 0.5, "C": 1.0}


def test_odds_of_the_next_concept():
    """Beside `ab` stand xy once and zz never, and neither shares a letter: e^(1/.2) to 1."""
    odds = sws.next_concept_odds(["ab", "xy", "zz"], [["ab", "xy"], ["zz"]], ["ab"], 0.2)
    assert odds.tolist() == near([0, 1 / (1 + math.exp(-5)), 1 / (1 + math.exp(5))], 1e-9)
    alike = sws.next_concept_odds(["ab", "abc", "zz"], [], ["ab"], 0.2)  # a, b, ab of a, b, c, ab, bc, abc
    s = 3 / math.sqrt(3 * 6)
    assert alike.tolist() == near([0, *(np.exp([s / 0.2, 0]) / np.exp([s / 0.2, 0]).sum())], 1e-9)


def test_concepts_are_sampled_once_each_the_first_by_its_frequency():
    lists, rng = [["a", "b"], ["a", "c"], ["a"]], np.random.default_rng(0)
    found = [sws.sample_concepts(lists, rng) for _ in range(300)]
    assert all(sorted(f) == ["a", "b", "c"] for f in found)  # five are asked for, there are three
    assert Counter(f[0] for f in found)["a"] / 300 == pytest.approx(0.6, abs=0.08)
    assert sws.sample_concepts([], rng) == () and len(sws.sample_concepts(lists, rng, size=2)) == 2


def draw(ctx, recipe, state, n=4, key=("k",)):
    return asyncio.run(recipe.draw(ctx, key, n, state))


def rated(ctx, n, weak):
    """State of a run whose seeds of the domain `weak` were solved ever less."""
    seeds = [ctx.bench.tasks.task("train", i) for i in range(n)]
    return {t.id: [0.3, 0.2, 0.1] if t.domain == weak else [0.2, 0.6, 0.9] for t in seeds}, {t.id for t in seeds}


def test_written_problems_are_of_the_weak_domain_and_join_the_seeds(context):
    ctx = context(TASK)
    recipe = sws.build(seeds=8, epochs=3, written=6, gate=False)
    rates, seeds = rated(ctx, 8, "knights(d=3)")
    state = {"cursor": 24, "rates": rates}
    first, state = draw(ctx, recipe, state, 8 + 6)
    assert state["found"]["weak"] == 4 and state["found"]["asked"] == {"add(d=2)": 0, "knights(d=3)": 6}
    assert seeds < {t.id for t in first} and len({t.id for t in first}) == 14
    assert {t.domain for t in first if t.id not in seeds} == {"knights(d=3)"}
    again, after = draw(ctx, recipe, state, 14)
    assert {t.id for t in again} == {t.id for t in first} and [t.id for t in again] != [t.id for t in first]
    assert after["written"] == state["written"]


def test_each_seed_is_drawn_once_an_epoch_before_anything_is_written(context):
    ctx, recipe, state, seen = context(TASK), sws.build(seeds=8, epochs=2), {}, []
    for _ in range(4):
        found, state = draw(ctx, recipe, state)
        seen += [t.id for t in found]
        assert "written" not in state
    assert len(set(seen)) == 8 and set(Counter(seen).values()) == {2} and seen[:8] != seen[8:]


@pytest.mark.parametrize(("weigh", "asked"), [("even", {3}), ("none", {0})])
def test_controls_write_of_all_domains_or_nothing(context, weigh, asked):
    ctx = context(TASK)
    rates, _ = rated(ctx, 8, "knights(d=3)")
    recipe = sws.build(seeds=8, written=6, weigh=weigh, gate=False)
    _, state = draw(ctx, recipe, {"cursor": 24, "rates": rates})
    assert set(state["found"]["asked"].values()) == asked


def test_where_nothing_is_weak_the_seeds_go_on(context):
    ctx, recipe = context(TASK), sws.build(seeds=8, gate=False)
    found, state = draw(ctx, recipe, {"cursor": 24, "rates": {}}, 8)
    assert state["written"] == [] and len({t.id for t in found}) == 8


def test_only_what_lies_in_the_band_is_kept(context, monkeypatch):
    async def rates(ctx, key, tasks, sample):
        return np.array([0.0, 0.125, 0.5, 0.875, 1.0, float("nan")])[: len(tasks)]

    monkeypatch.setattr(pl, "pass_rates", rates)
    ctx = context(TASK)
    known, _ = rated(ctx, 8, "knights(d=3)")
    _, state = draw(ctx, sws.build(seeds=8, written=6), {"cursor": 24, "rates": known})
    assert state["found"]["made"] == 6 and state["found"]["kept"] == 3


def test_a_model_writes_of_concepts_that_a_model_names(context):
    asked = []

    def book(request):
        text = request.messages[-1].content
        asked.append(text)
        if "Name the concepts" in text:
            return {"concepts": ["liars", "truth"]}
        return {"problem": f"problem {len(asked)}"} if text.startswith("Write") else "\\boxed{KN}"

    client = pl.Scripted(book)
    ctx = context(TASK)
    known, _ = rated(ctx, 8, "knights(d=3)")
    recipe = sws.build(seeds=8, written=3, gate=False)
    recipe = pl.override(recipe, "draw.writer", pl.curriculum.ProblemsByModel(client, votes=2))
    recipe = pl.override(recipe, "draw.concepts", sws.ConceptsByModel(client))
    _, state = draw(ctx, recipe, {"cursor": 24, "rates": known})
    assert [t.answer for t in state["written"]] == ["KN"] * 3
    assert {frozenset(t.meta["concepts"]) for t in state["written"]} == {frozenset(("liars", "truth"))}
    assert any("liars" in text and "truth" in text for text in asked if text.startswith("Write"))


class Copies:
    """A writer that hands in a seed and notes what it was asked for."""

    def __init__(self):
        self.orders = []

    async def __call__(self, ctx, key, order):
        self.orders.append(order)
        return [ctx.bench.tasks.task("train", 0)]


def test_a_seed_is_no_written_problem_and_concepts_are_those_of_the_domain(context):
    ctx, writer = context(TASK), Copies()
    known, _ = rated(ctx, 8, "knights(d=3)")
    known |= {k: [0.3, 0.1] for k in known if k.startswith("add")}
    recipe = pl.override(sws.build(seeds=8, written=6, gate=False), "draw.writer", writer)
    _, state = draw(ctx, recipe, {"cursor": 24, "rates": known})
    assert state["written"] == [] and state["found"]["cleaned"] == 2
    assert {o.domain: o.concepts for o in writer.orders} == {d: (d,) for d in ("add(d=2)", "knights(d=3)")}
    assert all(o.examples[0].domain == o.domain and o.n == 3 for o in writer.orders)


def test_pass_rates_are_kept_by_task():
    solved = lambda *each: replace(
        g := played(*each),
        episodes=tuple(replace(e, reward=pl.Reward(total=e.total, solved=e.total == 1)) for e in g.episodes),
    )
    state = sws.PassRates()([solved(1, 0, 0.5, 0)], {}, {})
    state = sws.PassRates()([solved(1, 1, 0, 0)], {}, state)
    assert list(state["rates"].values()) == [[0.25, 0.5]] and json.loads(json.dumps(state)) == state


def test_a_run_writes_and_goes_on_alike_after_a_stop(context, small, tmp_path):
    recipe = small(sws.build(seeds=4, epochs=2, written=4, weigh="even"), **{"schedule.prompts": 2})
    found = []
    for stops in ([6], [3, 6]):
        out = tmp_path / str(len(stops))
        for last in stops:
            out.mkdir(exist_ok=True)
            found.append(asyncio.run(recipe.run(context(TASK, out=out, steps=last))).metrics["weights_sha256"])
    assert found[0] == found[2] != found[1]


def of_file(ctx, tmp_path, rows):
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return ctx.with_bench(replace(ctx.bench, tasks=FileTasks(str(file))))


@pytest.mark.parametrize(
    ("column", "concepts"),
    [(["a", "b"], {"a", "b"}), ("a; b", {"a", "b"}), (None, {"x"}), ([], {"x"}), ("", {"x"})],
)
def test_concepts_and_problems_come_from_a_users_file(context, tmp_path, column, concepts):
    """Of 8 seeds those of a domain are weak; other records of it join them."""
    own = {} if column is None else {"concepts": column}
    rows = [{"prompt": f"question {i}", "answer": "1", "domain": "x", **own} for i in range(12)]
    rows += [{"prompt": f"other {i}", "answer": "1", "domain": "y", **own} for i in range(12)]
    ctx, seen = of_file(context("chain"), tmp_path, rows), []

    class Notes(pl.curriculum.ProblemsFromSource):
        async def __call__(self, ctx, key, order):
            seen.append(order)
            return await super().__call__(ctx, key, order)

    seeds = [ctx.bench.tasks.task("train", i) for i in range(8)]
    rates = {t.id: [0.3, 0.1] if t.domain == "x" else [0.9, 0.9] for t in seeds}
    recipe = pl.override(sws.build(seeds=8, written=40, gate=False), "draw.writer", Notes())
    _, state = draw(ctx, recipe, {"cursor": 24, "rates": rates})
    assert {o.domain for o in seen} == {"x"} and {c for o in seen for c in o.concepts} == concepts
    assert state["written"] and all(t.domain == "x" and t.meta["written"] for t in state["written"])
    assert not {pl.curriculum.prompt_text(t) for t in state["written"]} & {pl.curriculum.prompt_text(t) for t in seeds}


def test_models_are_taken_by_their_arguments():
    writer, solver, judge, namer = (pl.Scripted(lambda r: "x") for _ in range(4))
    made = sws.build(writer=writer, solver=solver, judge=judge, namer=namer).draw
    assert (made.writer.client, made.writer.solver, made.writer.judges) == (writer, solver, (judge,))
    assert made.concepts.client is namer
    assert sws.build().draw == sws.in_phases().draw
