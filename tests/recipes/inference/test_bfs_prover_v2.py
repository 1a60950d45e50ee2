"""BFS-Prover-V2: order of openings, merged states, the band of perplexities, plans, the cache, and bad input."""

import asyncio
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.credit.table import Table
from palaestra.errors import UserError
from palaestra.recipes.inference import bfs_prover_v2 as row
from palaestra.recipes.inference.bfs_prover_v2 import planning, training
from palaestra.recipes.inference.bfs_prover_v2.examples import PROOFS, THEOREMS
from palaestra.recipes.inference.bfs_prover_v2.search import (
    TacticSearch,
    TriedTactic,
    open_kernel,
    read_tactic,
    tactic_length,
)
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.proof.coq import Coq
from palaestra.services.proof.natural import NaturalDeduction
from palaestra.services.sandbox import sandbox_kind
from palaestra.toys.theorems import Theorems
from palaestra.types import TRACK_PREFIX, Group, Message, Task

from tests.chat_server import serving
from tests.fake import episode

KERNEL = NaturalDeduction()
SWAP = "p & q -> q & p"


def asked(text, **meta):
    return Task(id=text, prompt=(Message(role="user", content=text),), answer=meta.pop("answer", None), meta=meta)


@pytest.fixture
def scripted(monkeypatch):
    """A search whose model says the tactics of a table by goal, with their nats; opened goals are written down."""

    def make(said, kernel=KERNEL, **settings):
        opened = []

        async def say(self, ctx, key, state):
            opened.append(state.goals[0].rpartition("|- ")[2])
            listed = said(state) if callable(said) else said.get(state.goals[0].replace("\n", " "), ())
            return [TriedTactic(prompt=(), tactic=t, logp=logp, tokens=2) for t, logp in listed]

        monkeypatch.setattr(TacticSearch, "_say", say)
        return TacticSearch(kernel, **settings), opened

    return make


def search_from(search, theorem, openings=9):
    return asyncio.run(search(None, ("k",), search.kernel.start(theorem), openings))


FORK = {
    "|- p -> p | q": [("intro", -3.0), ("contra", -0.5)],
    "h1: p |- p | q": [("left", -0.1)],
    "h1: p |- p": [("assumption", 0.0)],
    "h1: ~(p -> p | q) |- false": [("have q -> q", -1.0)],
    "h1: ~(p -> p | q) |- q -> q": [("intro", -2.0)],
    "h1: ~(p -> p | q) h2: q |- q": [("have r -> r", -9.0)],
}


def test_the_best_score_is_opened_next(scripted):
    """By hand with alpha 0: contra (-0.5), have (-1.5), then intro (-3.0) before what have led to (-3.5). With
    alpha 1 intro has -3.0, and the state behind have and intro -3.5 / 3 = -1.17, so it is opened first."""
    search, opened = scripted(FORK, alpha=0.0)
    found = search_from(search, "p -> p | q")
    assert (
        found.script == ("intro", "left", "assumption")
        and found.left == 0
        and KERNEL.accepts("p -> p | q", found.script)
    )
    assert opened == ["p -> p | q", "false", "q -> q", "p | q", "p"] and found.openings == 5
    search, opened = scripted(FORK, alpha=1.0)
    assert search_from(search, "p -> p | q").script == found.script
    assert opened[:4] == ["p -> p | q", "false", "q -> q", "q"]
    assert search_from(search, "p -> p | q", openings=2).script is None


def test_tactics_on_the_proof_are_marked(scripted):
    search, _ = scripted(FORK, alpha=0.0)
    tried = search_from(search, "p -> p | q").tried
    assert [t.tactic for t in tried if t.on_path] == ["intro", "left", "assumption"]
    assert {t.tactic for t in tried if not t.on_path} == {"contra", "have q -> q", "intro"}
    assert next(t for t in tried if t.tactic == "left").perplexity == pytest.approx(math.exp(0.05))


def test_equal_states_are_opened_once(scripted):
    """Both sides of p | p are the same goal, and a second spelling of a tactic is no second state."""
    search, opened = scripted({"|- p | p": [("left", -1.0), ("right", -2.0)], "|- p": [("contra", -1.0)]})
    assert search_from(search, "p | p").script is None and opened == ["p | p", "p", "false"]
    search, opened = scripted(lambda s: [("intro", -1.0), ("  intro ", -1.0)])
    search_from(search, "p -> q -> r")
    assert opened == ["p -> q -> r", "q -> r", "r"]
    circle = {"|- p": ["contra"], "h1: ~p |- false": ["apply h1"], "h1: ~p |- p": ["contra"]}
    search, opened = scripted({goal: [(t, -1.0) for t in said] for goal, said in circle.items()})
    search_from(search, "p")
    assert opened == ["p", "false", "p"], "what it leads back to is no state more"


def test_only_the_first_goal_is_closed(scripted):
    """A search from a state of two goals ends where one is left, and its script is a proof of the first alone."""
    state = KERNEL.step(KERNEL.step(KERNEL.start("p -> p & p"), ["intro"])[0], ["split"])[0]
    search, _ = scripted(lambda s: [("assumption", 0.0)])
    found = asyncio.run(search(None, ("k",), state, 9))
    assert found.script == ("assumption",) and found.left == 1
    after = planning.run_script(KERNEL, state, found.script)
    assert after is not None and len(after.goals) == 1
    assert planning.run_script(KERNEL, state, ("intro",)) is None and planning.run_script(KERNEL, state, ()) is None


def test_a_proof_that_the_kernel_does_not_take_counts_nothing(scripted, monkeypatch):
    search, _ = scripted(FORK, alpha=0.0)
    monkeypatch.setattr(NaturalDeduction, "accepts", lambda self, theorem, script: False)
    found = asyncio.run(training.prove(None, ("k",), search, asked("p -> p | q"), 9))
    assert found.script is None and not any(t.on_path for t in found.tried)


def test_the_band_of_perplexities():
    """Of 10 the ranks 3 to 8 remain (catalogue); of 4 at 20% none is cut; of equal ones the first and the last."""
    assert training.kept_ranks(range(10), 0.2, 0.8) == [2, 3, 4, 5, 6, 7]
    assert training.kept_ranks([9, 1, 8, 2, 7, 3, 6, 4, 5, 0], 0.1, 0.7) == [1, 3, 5, 6, 7, 8]
    assert training.kept_ranks([5.0, 1.0, 3.0, 2.0], 0.2, 0.8) == [0, 1, 2, 3]
    assert training.kept_ranks([1.0] * 5, 0.2, 0.8) == [1, 2, 3] and training.kept_ranks([], 0.2, 0.8) == []
    assert training.kept_ranks([3.0, 1.0], 0.0, 1.0) == [0, 1]
    for band in ((0.8, 0.2), (-0.1, 0.5), (0.5, 1.1), (0.3, 0.3)):
        with pytest.raises(UserError, match="no range of quantiles"):
            row.build(band=band)


def test_what_is_outside_the_band_trains_nothing():
    """Five tactics of proofs and one that failed: the surest and the least sure are muted, so 2 of 5 are filtered."""
    numbers = (3.0, 1.0, 2.0, 9.0, 4.0, 7.0)
    said = [
        replace(episode((0,), (1, 2), 1.0), facts={"perplexity": x, "proved": x < 9, "on_path": x < 9}, muted=x == 9)
        for x in numbers
    ]
    groups = [Group(task=asked("a"), episodes=tuple(said[:3])), Group(task=asked("b"), episodes=(said[3],))]
    table = Table([*groups, Group(task=asked("c"), episodes=tuple(said[4:]))], [], {})
    values = pl.Values(level="episode", x_N=np.ones(6))
    assert training.PerplexityBand(0.2, 0.8)(values, table) is values
    assert [e.muted for e in table.episodes] == [False, True, False, True, False, True]
    tracked = {name.removeprefix(TRACK_PREFIX): column.x_N for name, column in table.columns.items()}
    assert tracked["filtered"] == pytest.approx([0.4] * 6) and tracked["proved"] == pytest.approx([2 / 3] * 6)


def test_replies_are_read():
    assert read_tactic("\n1. `intro`\nthen more") == "intro" and read_tactic("- cases h1") == "cases h1"
    assert read_tactic("```\nsplit\n```") == "split" and read_tactic(" \n") == ""
    assert read_tactic("```coq\nintros.\n```") == "intros."
    assert read_tactic("<think>\nsplit?\n</think>\nintro") == "intro"


@pytest.mark.parametrize(
    ("text", "n"),  # a letter is a token, and the end token one more
    [("intro", 6), ("intro\n", 7), ("intro\nwhich moves p", 5), ("```\nintro\n```", 14), ("- intro\nso", 7)],
)
def test_what_is_written_behind_a_tactic_is_no_part_of_it(text, n):
    assert tactic_length("intro", text, lambda i: text[:i], len(text) + 1) == n
    reply = "Plan:\n- have: `p -> q`\n2) Have: q\nhave: q\nhave:\nso p"
    assert planning.read_subgoals(reply) == ["p -> q", "q"]
    assert len(planning.read_subgoals("\n".join(f"have: p{i}" for i in range(9)))) == 6


def test_a_rule_splits_what_holds_where_the_parts_do():
    parts = lambda text: [pl.services.formula_text(f) for f in planning.split_formula(pl.services.read_formula(text))]
    assert parts("p -> q & r") == ["p -> q", "p -> r"] and parts("p | q -> r") == ["p -> r", "q -> r"]
    assert parts("p -> q -> r & p") == ["p -> q -> r", "p -> q -> p"] and parts("p | q") == parts("p") == []


def test_the_cache_is_run_by_the_kernel_and_knows_hypotheses():
    cache, state = planning.ProofCache(), KERNEL.step(KERNEL.start("p -> p | q"), ["intro"])[0]
    assert cache.close(KERNEL, state) is None
    cache.scripts[state.goals[0]] = ("left", "assumption")
    assert cache.close(KERNEL, state).whole
    other = KERNEL.step(KERNEL.start("q -> p | q"), ["intro"])[0]
    assert cache.close(KERNEL, other) is None, "the same goal under another hypothesis"
    for lie in (("right", "assumption"), ("left",), ("admit",), ()):
        cache.scripts[state.goals[0]] = lie
        assert cache.close(KERNEL, state) is None, lie


def planned(ctx, search, planner, theorem, cache=None, **settings):
    exam = planning.PlannedProofs(search, planner, **settings)
    return asyncio.run(planning.PlannedProof(ctx, exam, asked(theorem), cache or planning.ProofCache()).prove())


def legal(state):
    """All that is legal, what ends a goal first."""
    order = ("assumption", "intro", "split", "cases", "mp", "left", "right")
    return [(t, -float(order.index(t.split()[0]))) for t in KERNEL.tactics(state) if t.split()[0] in order]


def test_a_plan_proves_subgoals_and_the_cache_remembers(scripted, context):
    """p & q -> q & p becomes two subgoals and, with both, a rest; a second time all goals are in the cache."""
    search, opened = scripted(legal)
    ctx, cache = context("theorems"), planning.ProofCache()
    first = planned(ctx, search, planning.PlanByRule(), SWAP, cache, openings=200)
    assert first.subgoals == 2 and first.cached == 0 and KERNEL.accepts(SWAP, first.script)
    assert first.script[0] == "have p & q -> q" and 0 < first.openings <= 200 and first.openings == len(opened)
    again = planned(ctx, search, planning.PlanByRule(), SWAP, cache, openings=200)
    assert again.script == first.script and again.cached == 3 and again.openings == 0


def test_a_subgoal_without_a_proof_is_planned_again(scripted, context):
    """The planner's first subgoal does not hold, so it is named to it; the second plan is empty, the whole is searched."""
    heard = []

    class Two:
        async def __call__(self, ctx, kernel, state, failed):
            heard.append(tuple(failed))
            return ["q", "no formula &"] if not failed else []

    search, opened = scripted(legal)
    report = planned(context("theorems"), search, Two(), SWAP, openings=40)
    assert heard == [(), ("q",)] and report.failed == ("q",) and report.replans == 1 and report.subgoals == 0
    assert KERNEL.accepts(SWAP, report.script) and report.openings == len(opened) <= 40
    none = planned(context("theorems"), search, Two(), "p -> q", openings=12)
    assert none.script is None and none.openings <= 12
    capped = planned(context("theorems"), search, planning.Undivided(), "p -> q", openings=5, provers=3)
    assert capped.openings <= 5


def test_a_planner_may_be_an_endpoint(scripted, context):
    search, _ = scripted(legal)
    with serving(lambda body: "have: p & q -> q\nhave: p & q -> p") as (_, url):
        planner = planning.PlanByModel(Endpoint(url=url, model="m"))
        report = planned(context("theorems"), search, planner, SWAP, openings=200)
    assert report.subgoals == 2 and KERNEL.accepts(SWAP, report.script)


def test_parts_of_a_run_and_where_each_starts():
    """Retraining begins from the run's own model, not from the expert before it."""
    parts = row.build(rounds=3, proofs=True).parts
    starts = {name: part.model.part if part.model else None for name, part in parts.items()}
    assert starts == {
        "written": None, "start": None, "expert1": "start", "proofs1": "expert1", "retrained1": None,
        "expert2": "retrained1", "proofs2": "expert2", "retrained2": None, "expert3": "retrained2", "exam": "expert3",
    }  # fmt: skip
    assert list(row.build(rounds=1).parts) == ["expert1", "exam"]
    assert isinstance(row.build(kernel="coq").parts["exam"].runnable.planner, planning.Undivided)


@pytest.mark.parametrize(
    ("words", "message"),
    [({"kernel": "agda"}, "no kernel 'agda'"), ({"imports": "Arith"}, "add kernel=coq"), ({"rounds": 0}, "1 or more"),
     ({"axioms": ("classic",)}, "add kernel=coq"), ({"kernel": "coq", "imports": "../x"}, "no module")],
)  # fmt: skip
def test_arguments_that_are_refused(words, message):
    with pytest.raises(UserError, match=message):
        row.build(**words)


def collected(ctx, **settings):
    program = training.CollectProofs(TacticSearch(KERNEL, rules=False), **settings)
    return asyncio.run(program.run(ctx)), ctx.folder / "tactics.jsonl"


def test_written_proofs_become_tactics(context, tmp_path):
    result, file = collected(context("theorems", out=tmp_path), searches=0, tasks=3, written=True)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert result.artifacts == {"tactics": str(file)} and result.metrics["steps"] == len(rows) > 6
    for theorem in {r["theorem"] for r in rows}:
        first = next(r for r in rows if r["theorem"] == theorem and r["step"] == 0)
        assert first["prompt"] == f"|- {theorem}"
        assert all(Theorems().check(r["theorem"], asked(r["theorem"])) == 0 for r in rows)
    with pytest.raises(UserError, match="too little to learn from"):
        collected(context("theorems", out=tmp_path / "none"), searches=0, tasks=3)


def test_a_wrong_written_proof_names_its_tactic(context, tmp_path):
    program = training.CollectProofs(TacticSearch(KERNEL), written=True)
    ctx = context("theorems")
    with pytest.raises(UserError, match="tactic 2 of its demonstration, 'qed'"):
        program._written(ctx, asked(SWAP, demonstration="intro\nqed"))
    with pytest.raises(UserError, match="no whole proof"):
        program._written(ctx, asked(SWAP, demonstration="intro"))
    assert program._written(ctx, asked(SWAP)) == []


def test_the_model_draws_different_legal_tactics(context):
    """Without `free` all are legal and none comes twice; their log-probs are the model's own, of the whole text."""
    ctx, state = context("theorems"), KERNEL.start(SWAP)
    said = asyncio.run(TacticSearch(KERNEL, tactics=3, rules=False)._say(ctx, ("k",), state))
    assert sorted(t.tactic for t in said) == ["contra", "exfalso", "intro"] and all(t.logp < 0 for t in said)
    again = asyncio.run(TacticSearch(KERNEL, tactics=3, rules=False)._say(ctx, ("k",), state))
    assert [t.logp for t in said] == [t.logp for t in again]
    free = asyncio.run(TacticSearch(KERNEL, tactics=2, rules=False, free=True)._say(ctx, ("k",), state))
    assert all(t.tokens <= ctx.bench.max_tokens for t in free)


def test_the_embedded_problem():
    tasks = Theorems()
    for i in range(5):
        task = tasks.task("train", i)
        assert tasks.check(str(task.answer), task) == 1 and 3 <= len(str(task.answer).splitlines()) <= 12
        lines = str(task.answer).splitlines()
        assert tasks.check("\n".join(lines[:-1]), task) == tasks.check("", task) == tasks.check("admit", task) == 0
    assert len(set(THEOREMS)) == 240 and all(
        KERNEL.accepts(t, p.splitlines()) for t, p in zip(THEOREMS, PROOFS, strict=True)
    )


@pytest.mark.skipif(shutil.which("coqtop") is None, reason="Debian's package coq is not installed")
def test_a_search_in_coq(scripted):
    if sandbox_kind().refusal():
        pytest.skip("nothing can be isolated here")
    search, _ = scripted(lambda s: [("intuition.", -1.0), ("admit.", 0.0), ("intros p q.", -0.5)], kernel=Coq())
    found = search_from(search, "forall p q : Prop, p /\\ q -> q /\\ p", openings=2)
    assert found.script == ("intuition.",) and Coq().accepts("forall p q : Prop, p /\\ q -> q /\\ p", found.script)
    assert open_kernel("coq", "Arith").imports == "Arith"
