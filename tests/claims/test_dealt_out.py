"""What is taken from its place in an arm without the reason, and is as much as before."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra as pl
from palaestra.claims.objectives.apo import MixedStcr
from palaestra.claims.objectives.stratified_grpo import OtherStrata
from palaestra.claims.rewards.cec_zero import EXPERIMENT, Answered, MixedConsensus
from palaestra.claims.rewards.clip_delta import MeanOfScores
from palaestra.credit.table import Table
from palaestra.recipes.objectives.apo import Stcr
from palaestra.recipes.rewards.cec_zero import correction
from palaestra.run.benches import bench_by_name
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Event, Group, Reward, Task

from tests.fake import episode

TASK = Task(id="a/0", domain="a", answer="1")


def said(*texts):
    return Group(task=TASK, episodes=tuple(episode_saying(t) for t in texts))


def test_factors_of_wrong_answers_are_dealt_out_among_them():
    lengths, rewards = ((3, 9, 14, 5), (4, 20, 6, 8), (7, 30, 9, 2)), ((1, 0, 0, 0), (1, 0, 0, 1), (0, 0, 0, 0))
    groups = [
        Group(task=replace(TASK, id=f"a/{g}"), episodes=tuple(
            episode((0,), tuple(range(n)), float(r)) for n, r in zip(ns, rs, strict=True)))
        for g, (ns, rs) in enumerate(zip(lengths, rewards, strict=True))
    ]  # fmt: skip
    table = Table(groups, [], {})
    x = pl.Values(level="episode", x_N=np.linspace(-1, 1, 12))
    own, other = (s(x, table).x_N / x.x_N for s in (Stcr(1.1), MixedStcr(1.1)))
    wrong = [1, 2, 3, 5, 6]
    assert Counter(own[wrong].round(6)) == Counter(other[wrong].round(6)) and not np.allclose(own, other)
    assert np.allclose(np.delete(other, wrong), 1)


def test_strata_at_random_have_the_same_sizes():
    searches = [0, 1, 1, 2, 2, 2, 3, 0]
    made = tuple(
        replace(e, facts={"searches": n}) for e, n in zip(said(*map(str, range(8))).episodes, searches, strict=True)
    )
    found = asyncio.run(OtherStrata()(None, (0, 1), Group(task=TASK, episodes=made)))
    strata = [e.facts["stratum"] for e in found.episodes]
    assert Counter(strata) == Counter(searches) and strata != searches
    assert [e.facts["searches"] for e in found.episodes] == searches


def test_the_mean_of_scores_is_bounded():
    events = tuple(Event(row=0, token=i, value=0.2, part="steps") for i in range(5))
    paid = Reward(total=2.0, parts={"right": 1.0, "steps": 1.0}, events=events)
    (e,) = asyncio.run(MeanOfScores()(None, (0,), Group(task=TASK, episodes=(
        replace(said("= 1").episodes[0], reward=paid),)))).episodes  # fmt: skip
    assert np.isclose(e.reward.total, 1.2) and np.isclose(sum(v.value for v in e.reward.events), 0.2)


def test_mixed_consensus_pays_as_many():
    ctx, group = SimpleNamespace(seed=0, step=1), said("= 1", "= 1", "= 1", "= 1", "= 1", "= 0", "= 0", "x")
    own, mixed = ([r.total for r in asyncio.run(f(ctx, group))] for f in (MixedConsensus().consensus, MixedConsensus()))
    assert sorted(own) == sorted(mixed) and own == [1] * 5 + [0] * 3 and own != mixed


def test_an_answer_to_a_formula_is_paid_for_being_one():
    """Of the claim's own problem: its right answer and any other, and nothing else."""
    task = bench_by_name(EXPERIMENT.task)[0].tasks.task("train", 0)
    texts = [f"= {task.answer}", "T&F=F\n= TTT", "= FFF", "= TT", "= TTTT", "= 1", "x", ""]
    group = Group(task=task, episodes=tuple(map(episode_saying, texts)))
    paid = asyncio.run(Answered()(None, group))
    assert [r.total for r in paid] == [1.0] * 3 + [0.0] * 5 and correction(texts[0]) == task.answer
