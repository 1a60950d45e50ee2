"""Examples trained on more often, or again: by hand, and never beyond the age that the schedule allows."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from palaestra.credit.again import Rehearse, Resampled
from palaestra.credit.links import Center, chain
from palaestra.credit.preferences import Compare
from palaestra.errors import UserError
from palaestra.recipes.data import pf_ppo
from palaestra.recipes.data.pf_ppo import ByReward
from palaestra.rollout.queue import Schedule
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Group

from tests.fake import episode, task
from tests.test_step_shapes import RECIPES, Cycle, world

SCORES = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
plain = chain(Center("group"))


def group(*totals):
    return Group(task=task("t", (0,), ()), episodes=tuple(episode((0,), (1, 2), float(r)) for r in totals))


def test_pf_ppo_of_the_catalogue():
    of = lambda form: Resampled(plain, ByReward(form)).probabilities(SCORES).tolist()
    assert of("pow") == pytest.approx([0.4, 0.1, 0.0, 0.1, 0.4])
    assert of("max_min") == pytest.approx([0.5, 0, 0, 0, 0.5])
    assert of("max_random") == pytest.approx([0.125] * 4 + [0.5])
    assert Resampled(plain, ByReward()).probabilities(np.zeros(4)).tolist() == [0.25] * 4


def test_a_batch_is_drawn_from_itself_after_its_advantages_are_known():
    credit = Resampled(plain, ByReward())
    found, _ = credit([group(*SCORES)] * 200, [], {})
    share = {r: np.mean([e.columns["reward"] == r for e in found]) for r in SCORES}
    assert len(found) == 1000 and share[0.0] == 0 and abs(share[2.0] - 0.4) < 0.06
    assert all(e.columns["advantage"][-1] == e.columns["reward"] for e in found), "the mean of each group is 0"
    again, _ = credit([group(*SCORES)] * 200, [], {})
    assert [e.columns["reward"] for e in again] == [e.columns["reward"] for e in found]
    assert credit([], [], {}) == ([], {})
    with pytest.raises(UserError, match="units"):
        Resampled(Compare(), ByReward())([group(1, 0)], [], {})
    (learner,) = pf_ppo.build().learners.values()
    assert learner.credit.credit.weight == ByReward("pow", 2.0)


def test_what_was_unexpected_is_rehearsed():
    """Every second step; the newest two above 1 with the advantage of then."""
    credit, state, given = Rehearse(plain, least=1.0, capacity=2, every=2), {}, []
    for totals in ((4, 0), (6, 0), (0.5, 0), (0.5, 0)):
        found, state = credit([group(*totals)], [], state)
        given.append([float(e.columns["advantage"][-1]) for e in found])
    assert given == [[2, -2], [3, -3, 2, -2], [0.25, -0.25], [0.25, -0.25, 3, -3]]
    assert encode(decode(*encode(state)))[0] == encode(state)[0] and state["steps"] == 4


@pytest.mark.parametrize(("sign", "kept"), [("both", [2, -2]), ("positive", [2]), ("negative", [-2])])
def test_the_sign_of_what_is_rehearsed(sign, kept):
    _, state = Rehearse(plain, sign=sign)([group(4, 0)], [], {})
    assert [float(e.columns["advantage"][-1]) for e in state["buffer"]] == kept


def test_a_buffer_that_is_not_full_gives_nothing():
    credit = Rehearse(plain, every=1, fill=3)
    found, state = credit([group(4, 0)], [], {})
    assert len(found) == 2 and len(credit([group(4, 0)], [], state)[0]) == 2
    with pytest.raises(UserError, match="every"):
        Rehearse(plain, every=0)


@pytest.mark.parametrize("max_age", [0, 2, 5])
def test_law_07_holds_for_what_credit_keeps(max_age):
    """Also where it hides its examples: the buffer is emptied, and what comes out anyway is dropped."""
    ctx, trained, kept = world(), [], []

    class Hides(Rehearse):
        def __call__(self, groups, signals, state):
            found, state = super().__call__(groups, signals, state)
            kept.append([e.row.oldest() for e in state["buffer"]])
            hidden = [*state.get("hidden", {}).get("in", []), *found[: len(groups)]]
            return [*found, *hidden], {**state, "hidden": {"in": hidden}}

    def watch(ctx, name, learner, batch, state):
        trained.append((ctx.step_number, batch.n_rows))
        return {"skipped": 0.0}, state

    seen = []
    base = RECIPES["dr_grpo"]
    policy = base.learners["policy"]
    credit = Hides(policy.credit, least=-0.0, capacity=10_000, every=1)

    def listen(seen_groups, examples, state):
        seen.extend(ctx.step_number - e.row.oldest() for e in examples["policy"])
        return state

    recipe = replace(
        base,
        draw=Cycle(),
        observe=listen,
        schedule=Schedule(prompts=4, max_age=max_age),
        learners={"policy": replace(policy, credit=credit, update=watch)},
    )
    state = start(0)
    for _ in range(10):
        state, _ = asyncio.run(step(recipe, ctx, state))
    assert max(seen) == max_age and set(seen) == set(range(max_age + 1))
    assert all(s - min(v) <= max_age for s, v in enumerate(kept) if v)
    assert len(trained) == 10
