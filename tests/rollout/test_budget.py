"""Where attempts go: more, instead, few. What is dropped stays in the statistics and in the count of tokens."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.scopes import Stratum
from palaestra.curriculum.pool import Mixed, is_mixed
from palaestra.errors import UserError
from palaestra.recipes.data import dars, eframe, reinforce_ada
from palaestra.rollout.budget import Enough, Extra, Few, Instead, Pick, Regroup, TopUp
from palaestra.rollout.collect import Sample, Score, Until, When, links, none_right, rewards
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Episode, Group, Origin, Reward, Task

from tests.fake import episode

near = lambda x: pytest.approx(x, abs=1e-5)


def played(*totals, status="finished"):
    episodes = (episode((0,), (1, 2), float(r)) for r in totals)
    return Group(task=Task(id="t"), episodes=tuple(replace(e, status=status) for e in episodes))


class Gives:
    """A link that adds episodes of these rewards, round by round."""

    def __init__(self, *rounds):
        self.rounds, self.calls = rounds, 0

    async def __call__(self, ctx, key, group):
        totals = self.rounds[self.calls]
        self.calls += 1
        return replace(group, episodes=(*group.episodes, *played(*totals).episodes))


def run(link, group=played()):
    return asyncio.run(link(None, ("k",), group))


def advantages(credit, group):
    found, _ = credit([group], [], {})
    return [float(e.columns["advantage"][-1]) for e in found]


def test_dars_of_the_catalogue():
    """Rows a = 0, .125, .25, .375, .5 of the closed forms."""
    right = lambda k: np.array([1.0] * k + [0.0] * (8 - k))
    assert [TopUp("equal", 32)(right(k)) for k in range(9)] == [24, 11, 3, 1, 0, 0, 0, 0, 0]
    assert [TopUp("hard", 64)(right(k)) for k in range(9)] == [56, 24, 8, 3, 0, 0, 0, 0, 0]
    assert TopUp()(np.zeros(0)) == 0 and TopUp("hard", 8)(right(0)) == 0
    with pytest.raises(UserError, match="equal"):
        TopUp("more")


def test_reinforce_ada_of_the_catalogue():
    """1 of 8, then 3 of 8: 4 of 16, and two of each kind train with the mean of all 16."""
    recipe = reinforce_ada.build()
    until, pick = recipe.collect.links
    rounds = Gives([1] + [0] * 7, [1, 1, 1] + [0] * 5, [0] * 8)
    group = run(links(replace(until, link=rounds), pick))
    assert rounds.calls == 2 and len(group.episodes) == 16 and rewards(group).mean() == 0.25
    (learner,) = recipe.learners.values()
    assert advantages(learner.credit, group) == near([0.75, -0.25, -0.25, 0.75])


def test_the_exit_after_one_round_has_the_chance_of_the_catalogue():
    """P(2 or more of 8 right, and of wrong) at p = .1: 0.186895."""
    from math import comb

    p = sum(
        comb(8, k) * 0.1**k * 0.9 ** (8 - k) for k in range(9) if Enough(2, 2)(np.array([1.0] * k + [0.0] * (8 - k)))
    )
    assert p == near(0.186895)
    assert Enough(1)(np.array([0.0, 0.8])) and not Enough(1)(np.array([0.5]))


@pytest.mark.parametrize(
    ("totals", "kept"),
    [
        ((0, 1, 0, 1, 1, 0), [0, 1, 2, 3]),
        ((1, 1, 1, 1, 1, 0), [0, 1, 2, 5]),
        ((0, 0, 0, 1, 0, 0), [0, 1, 2, 3]),
        ((1, 1, 1, 1, 1), [0, 1, 2, 3]),
        ((0, 1), [0, 1]),
        ((), []),
    ],
)
def test_few_of_many(totals, kept):
    assert Few(2, 2)(np.array(totals, float)) == kept
    group = run(Pick(Few(2, 2)), played(*totals))
    assert [i for i, e in enumerate(group.episodes) if not e.muted] == kept
    assert rewards(group).tolist() == list(totals), "the others stay in the statistics"


def test_pick_leaves_out_what_is_muted_or_failed():
    group = played(1, 0, 1, 0)
    first, second, *rest = group.episodes
    failed = replace(second, status="error:x", reward=None)
    group = replace(group, episodes=(replace(first, muted=True), failed, *rest))
    assert [e.muted for e in run(Pick(Few(1, 1)), group).episodes] == [True, True, False, False]


def test_eframe_without_further_answers_is_one_group():
    assert len(eframe.build(further=0).collect.links) == 2 < len(eframe.build().collect.links)


def test_eframe_of_the_catalogue():
    """Five failures, then one success among twenty: it alone trains, with the statistics of the twenty."""
    recipe = eframe.build(replay=False)
    (learner,) = recipe.learners.values()
    when = recipe.collect.links[2]
    group = run(replace(when, link=Instead(Gives([1] + [0] * 19))), played(0, 0, 0, 0, 0))
    assert len(group.episodes) == 25 and [e.muted for e in group.episodes] == [True] * 5 + [False] * 20
    all_of_them = chain(Center(eframe.attempt), Scale(eframe.attempt))
    assert advantages(all_of_them, group) == near([4.24851] + [-0.223606] * 19)
    assert advantages(learner.credit, group) == near([4.24851])
    assert advantages(learner.credit, run(when, played(1, 0, 0, 0, 0))) == near([1.78885] + [-0.447213] * 4)
    assert advantages(learner.credit, played(1, 1, 1)) == []
    lucky = played(1, 0, 0, 0, 0, status="truncated:length")
    assert advantages(learner.credit, lucky) == near([-0.447213] * 4)


def test_instead_counts_strata_and_places():
    group = run(Instead(Gives([0])), run(Instead(Gives([0, 0])), played(0)))
    assert [e.facts["stratum"] for e in group.episodes] == [0, 1, 1, 2]
    assert [e.muted for e in group.episodes] == [True, True, True, False]

    async def forked(ctx, key, group):
        assert not group.episodes
        child = Episode(status="finished", reward=Reward(total=1.0), origin=Origin(parent=0, turn=1))
        return replace(group, episodes=(Episode(status="finished", reward=Reward(total=0.0)), child))

    assert run(Instead(forked), played(0, 0)).episodes[3].origin == Origin(parent=2, turn=1)
    first = run(Instead(Gives([1])))
    assert [e.facts["stratum"] for e in first.episodes] == [0] and not first.episodes[0].muted


def test_when_and_until_read_a_part():
    def parts(total, accuracy):
        return Episode(status="finished", reward=Reward(total=total, parts={"accuracy": accuracy}))

    group = Group(task=Task(id="t"), episodes=(parts(0.1, 0.0), parts(1.1, 1.0)))
    assert rewards(group).tolist() == [0.1, 1.1] and rewards(group, "accuracy").tolist() == [0.0, 1.0]
    assert rewards(played(1), "accuracy").tolist() == [1.0]  # a reward without parts is its total
    more = Gives([0])
    assert none_right(np.array([0.1, 0.0])) and not none_right(np.array([1.0]))
    form_only = Group(task=Task(id="t"), episodes=(parts(1.0, 0.0),))
    assert run(When(none_right, more), form_only) is form_only
    assert len(run(When(none_right, more, part="accuracy"), form_only).episodes) == 2
    solved = Until(lambda r: r.max() >= 1, Gives([0], [0]), rounds=2, part="accuracy")
    assert len(run(solved, form_only).episodes) == 3


def test_extra_attempts_are_as_many_as_asked_for(context):
    ctx = context("chain")
    group = Group(task=ctx.bench.tasks.task("train", 0))
    asked = []

    def count(r):
        asked.append(r.tolist())
        return 3 if len(asked) == 1 else 0

    link = links(Sample(2), Score(), Extra(count), Score(), Extra(count, Sample(99)))
    found = asyncio.run(link(ctx, ("k",), group))
    assert len(found.episodes) == 5 and [len(a) for a in asked] == [2, 5]
    assert len({e.rows[0].context() for e in found.episodes}) > 1 and all(e.reward for e in found.episodes)


@pytest.mark.parametrize(
    "recipe", [reinforce_ada.build(n=2, rounds=2, each=3), dars.build(n=2), eframe.build(n=2, further=2)]
)
def test_sampled_tokens_of_what_is_dropped_are_counted(recipe, context):
    ctx = context("knights(d=6)")
    recipe = replace(recipe, schedule=replace(recipe.schedule, prompts=2))
    prepare(recipe, ctx)
    state, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert ctx.sampled_tokens == pytest.approx(metrics["length"] * metrics["episodes"])
    assert metrics["episodes"] > 4 and state["step"] == 1


def test_turns_bound_an_episode(context):
    ctx = context("grid")
    group = Group(task=ctx.bench.tasks.task("train", 0))
    short = asyncio.run(Sample(2, turns=1)(ctx, ("k",), group)).episodes
    assert {e.status for e in short} <= {"truncated:turns", "finished"}
    assert all(max(s.turn for r in e.rows for s in r.segments) == 0 for e in short)
    assert Sample().turns == 0


def test_what_is_regrouped_is_compared_with_itself_alone():
    """1 and 0 are kept of [1, 0, 1, 1]: A = +-.5, where Pick leaves the mean at .75; places that failed are not kept."""
    stratum = chain(Center(Stratum(fact="")))
    kept = run(Regroup(lambda group: (0, 1)), played(1, 0, 1, 1))
    assert [e.muted for e in kept.episodes] == [False, False, True, True]
    assert advantages(stratum, kept) == [0.5, -0.5]
    picked = run(Pick(lambda rewards: (0, 1)), played(1, 0, 1, 1))
    assert advantages(stratum, picked) == advantages(chain(Center("group")), picked) == [0.25, -0.75]
    again = run(Regroup(lambda group: (0, 2)), kept)  # what was muted stays so, and is compared
    assert [e.muted for e in again.episodes] == [False, True, True, True]
    failed = replace(played(1, 0), episodes=(*played(1).episodes, *played(0, status="error:reward").episodes))
    assert [e.muted for e in run(Regroup(lambda group: (0, 1)), failed).episodes] == [False, True]


def test_a_stratum_without_a_key_of_its_own_is_the_group():
    """`fact=""`: turns do not part a group, second attempts do."""
    kept = run(Instead(Gives((1, 1, 0))), played(0, 0))
    assert advantages(chain(Center(Stratum(fact=""))), kept) == near([1 / 3, 1 / 3, -2 / 3])
    assert advantages(chain(Center(Stratum(fact=""))), played(1, 0)) == [0.5, -0.5]


def test_a_gate_that_looks_at_what_is_trained():
    """First answers that stay muted differ from the second ones, which are all right."""
    kept = run(Instead(Gives((1, 1))), played(0, 0))
    assert is_mixed(kept) and not is_mixed(kept, trained=True) and is_mixed(played(1, 0), trained=True)
    gate = lambda **more: asyncio.run(Mixed(1, **more)(None, [kept], {}))[0]
    assert gate() == [kept] and gate(trained=True) is None
