"""Bandits over the parts of a mixture: probabilities by hand, values by hand, empty arms, one order of observations."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from palaestra.abilities import draw_numbers
from palaestra.curriculum.arms import Bandit, Learnability, arms_of
from palaestra.errors import UserError
from palaestra.recipes.data import dump, sec
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Group, Task

from tests.fake import episode

near = lambda x: pytest.approx(x, abs=1e-6)
TWO = "knights(d=1)+knights(d=2)"


def group(domain, *totals):
    return Group(
        task=Task(id=f"{domain}/0", domain=domain),
        episodes=tuple(episode((0,), (1,), float(r)) for r in totals),
    )


def test_dump_of_the_catalogue():
    state = {"arms": {n: {"value": v, "count": c} for n, v, c in (("a", 0.8, 100), ("b", 0.3, 100), ("c", 0.0, 10))}}
    assert dump.build().draw.probabilities("abc", state) == near([0.796456, 0.005366, 0.198177])
    alone = replace(dump.build().draw, rule="proportional")  # the scores themselves
    scores = np.array([1.125542, 0.625542, 0.986441])
    assert alone.probabilities("abc", state) == near(scores / scores.sum())


def test_sec_of_the_catalogue():
    """r = .9, .2, none and then .6 for the second arm alone; ddof 0 gives these from groups of two."""
    paper, released = (sec.build(variant=v).observe for v in ("paper", "released"))
    first = {"arms": {"a": {"value": 0.45, "count": 4}, "b": {"value": 0.1, "count": 4}}}
    assert sec.build().draw.probabilities("abc", first) == near([0.574213, 0.239368, 0.186420])
    values = lambda rule: {
        n: rule.update(first["arms"][n], new)["value"]
        for n, new in (("a", []), ("b", [0.6]))
        if new or rule is released
    }
    assert values(paper) == {"b": near(0.35)} and values(released) == {"a": near(0.225), "b": near(0.35)}


def test_an_absent_arm_keeps_its_value_or_fades():
    for absent, a in (("keep", 0.5), ("decay", 0.25)):
        learn = Learnability(ddof=0, absent=absent)
        state = learn([group("a", 1, 0)], {}, {})
        assert state["arms"]["a"] == {"value": near(0.5), "count": 2}
        state = learn([group("b", 1, 0)], {}, state)
        assert {n: x["value"] for n, x in state["arms"].items()} == {"a": near(a), "b": near(0.5)}
        assert state["arms"]["a"]["count"] == 2


@pytest.mark.parametrize(("totals", "wanted"), [((1, 0), 1.0), ((1, 0, 0, 0), 0.866025), ((1, 1), 0.0), ((0,), 0.0)])
def test_the_expected_advantage_is_largest_at_a_half(totals, wanted):
    found = Learnability(ddof=0).signal(np.array(totals, float))
    assert np.mean(found) == pytest.approx(wanted, abs=1e-5)


def test_other_signals():
    r = np.array([1.0, 0.0, 0.0, 0.0])
    assert list(Learnability(of="centred").signal(r)) == [0.75, 0.25, 0.25, 0.25]
    assert list(Learnability(of="reward").signal(r)) == list(r)
    learn, state = Learnability(of="progress", alpha=1.0), {}
    for totals, value in (((0, 0), 0.0), ((1, 0), 0.5), ((1, 0), 0.0), ((0, 0), 0.5)):
        state = learn([group("a", *totals)], {}, state)
        assert state["arms"]["a"]["value"] == near(value)


def test_a_window_holds_the_newest_samples_in_the_order_of_the_groups():
    learn = Learnability(of="reward", window=3)
    state = learn([group("a", 1, 1), group("b", 0), group("a", 0, 1)], {}, {})
    assert state["arms"]["a"] == {"value": near(2 / 3), "count": 4, "newest": [1.0, 0.0, 1.0]}
    state = learn([group("a", 0, 0)], {}, state)
    assert state["arms"]["a"]["newest"] == [1.0, 0.0, 0.0] and state["arms"]["a"]["count"] == 6
    assert decode(*encode(state)) == state


def test_gated_groups_count_and_errors_do_not():
    lost = Group(task=Task(id="c/0", domain="c"), episodes=(Episode(status="error:x"),))
    state = Learnability()([group("a", 1, 1), lost], {}, {})
    assert state["arms"] == {"a": {"value": 0.0, "count": 2}}


def test_an_arm_that_nobody_saw_has_the_largest_bonus():
    ucb = Bandit(tau=0.1, explore=1.0)
    assert ucb.probabilities("ab", {}) == near([0.5, 0.5]), "all alike at first"
    p_A = ucb.probabilities("ab", {"arms": {"a": {"value": 1.0, "count": 128}}})
    assert p_A[1] > 0.99
    greedy = Bandit(rule="proportional").probabilities("ab", {"arms": {"a": {"value": 0.99, "count": 1}}})
    assert greedy == near([0.99, 0.01])
    with pytest.raises(UserError, match=r"Bandit\.tau"):
        Bandit(tau=0.0)


def test_draws_follow_the_probabilities_and_go_on_in_each_arm(context):
    ctx, bandit = context(TWO), Bandit(tau=1.0)
    names = [arm.name for arm in arms_of(ctx.bench.tasks)]
    state = {"arms": {names[0]: {"value": np.log(3.0), "count": 1}, names[1]: {"value": 0.0, "count": 1}}}
    tasks, after = bandit(ctx, (0, "k"), 400, state)
    count = {n: sum(t.domain == n for t in tasks) for n in names}
    assert after["given"] == count and 260 < count[names[0]] < 340
    assert len({t.id for t in tasks}) == 400, "a task comes once"
    again, _ = bandit(ctx, (0, "l"), 10, after)
    assert not {t.id for t in again} & {t.id for t in tasks}
    assert [t.id for t in bandit(ctx, (0, "k"), 400, state)[0]] == [t.id for t in tasks]
    assert "given" not in state


def test_tasks_without_parts_are_one_arm(context, capsys):
    ctx = context("chain")
    ctx.talk = True
    tasks, state = Bandit()(ctx, (0,), 3, {})
    assert [t.domain for t in tasks] == ["chain"] * 3 and state["given"] == {"chain": 3}
    Bandit()(ctx, (1,), 3, state)
    said = capsys.readouterr()
    assert (said.out + said.err).count("nothing to choose among") == 1


def test_observations_do_not_depend_on_who_is_done_first(context, small):
    """Groups that end in another order, with a window that holds a part of a batch: the same arms."""
    found, ends = [], []
    for turned in (False, True):
        ctx, state, recipe = context(TWO), start(0), small(dump.build(window=5), **{"schedule.prompts": 3})

        async def collect(ctx, key, group, inner=recipe.collect, turned=turned):
            group = await inner(ctx, key, group)
            while (2 - key[-1] if turned else key[-1]) != len(ends) % 3:
                await asyncio.sleep(0)
            ends.append(key[-1])
            return group

        for _ in range(2):
            state, _ = asyncio.run(step(replace(recipe, collect=collect), ctx, state))
        found.append(state["draw"])
    assert ends == [0, 1, 2] * 2 + [2, 1, 0] * 2
    assert found[0] == found[1] and any(arm["newest"] for arm in found[0]["arms"].values())


def test_the_log_says_how_the_arms_are_drawn(context):
    """Q = .45 and .10 at tau .4: e^.875 to 1; all alike at an infinite tau, and where nobody drew."""
    ctx = context("knights(d=1)+knights(d=2)")
    names = [arm.name for arm in arms_of(ctx.bench.tasks)]
    arms = {name: {"value": value, "count": 1} for name, value in zip(names, (0.45, 0.10), strict=True)}
    for tau, likelier in ((0.4, 1 / (1 + np.exp(-0.875))), (float("inf"), 0.5)):
        bandit = Bandit(tau=tau)
        _, state = bandit(ctx, (0,), 2, {"arms": arms})
        found = draw_numbers(bandit, state)
        assert found[f"odds/{names[0]}"] == pytest.approx(likelier)
        assert found["odds_spread"] == pytest.approx(2 * likelier - 1)
    assert draw_numbers(bandit, {}) == {"odds_spread": 0.0}
