"""RL Tango: mixed advantages, class weights, and two players that learn in turns."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from palaestra.credit.links import chain
from palaestra.credit.table import Table, Values
from palaestra.errors import Fault
from palaestra.explanation.method import explain
from palaestra.ledger.measures import Balanced, Cell, Moving
from palaestra.recipes.base import grpo
from palaestra.recipes.rewards import rl_tango
from palaestra.rollout.queue import Schedule
from palaestra.run.driver import prepare
from palaestra.schedule import resolve
from palaestra.step import start, step
from palaestra.types import Episode, Group
from palaestra.values import override, vary

from tests.rewards.texts import asked, door, spoken


def trajectory(reward, *verdicts):
    """Steps of two tokens, each paid v / K at its end."""
    k = len(verdicts)
    return {"reward": reward, "turn_rewards": [v / k for v in verdicts], "turn_lengths": [2] * k}


def mixed(share, *trajectories, apart=True):
    recipe = vary(grpo.build(), credit=chain(rl_tango.StepMixture(share, apart)))
    return explain(recipe, [list(trajectories)])["advantages"][0]


def test_rl_tango_reference_values():
    a, b = trajectory(1, 1, 1), trajectory(0, 1, -1)
    assert mixed(1.0, a, b)[0] == pytest.approx([1.154701] * 2 + [0.577350] * 2, abs=1e-6)
    assert mixed(1.0, a, b)[1] == pytest.approx([-1.154701] * 2 + [-1.732051] * 2, abs=1e-6)
    assert 0.1 * mixed(1.0, a, b)[0][0] == pytest.approx(0.115470, abs=1e-6)
    assert mixed(0.1, a, b)[0][0] == pytest.approx(1.015470, abs=1e-6)
    assert mixed(0.1, a, b)[1][0] == pytest.approx(-1.015470, abs=1e-6)
    verdict = rl_tango.Reworked().read("a\nb\n= wrong", ["a", "b", "c"])
    assert verdict.steps == (1, 1, -1) and verdict.final is False


def test_rl_tango_merged_and_edges():
    a, b = trajectory(1, 1, 1), trajectory(0, 1, -1)
    by_token = lambda *credit, n=4: [pytest.approx([x] * n) for x in credit]
    assert mixed(0.5, a, b, apart=False) == by_token(1, -1)
    assert mixed(0.5, {"reward": 1}, {"reward": 0}) == by_token(0.5, -0.5)  # nobody judged
    assert mixed(0.5, trajectory(1, 1)) == by_token(0, n=2)
    assert mixed(0.5, trajectory(1, 1, 1), trajectory(1, 1, 1)) == by_token(0, 0)
    equal = mixed(0.5, trajectory(1, 1, 1), trajectory(1, 1, -1))  # equal outcomes, different verdicts
    assert equal[0][0] > 0 > equal[1][0]
    recipe = rl_tango.build()
    good, bad = explain(recipe, [[{"reward": 1}, {"reward": 0}]])["advantages"][0]
    assert good == pytest.approx([0.9] * 4, abs=0.1) and bad == pytest.approx([-0.9] * 4, abs=0.1)
    shares = [resolve(recipe, s).learners["policy"].credit.links[0].share for s in (0, 100, 200, 300)]
    assert shares == pytest.approx([0.1, 0.01, 0.001, 0.001])


def weights_of(*right, state=None):
    episodes = tuple(replace(spoken("x", 0.0), facts={"right": r}) for r in right)
    table = Table([Group(task=asked(), episodes=episodes)], [], state or {})
    found = rl_tango.ClassWeight()(Values(level="episode", x_N=np.ones(len(right))), table)
    return found.x_N, table.state


def test_rl_tango_class_weights():
    found, state = weights_of(*[True] * 4, *[False] * 16)
    assert found.tolist() == [0.5] * 4 + [0.25] * 16
    smoothed, after = weights_of(True, *[False] * 4, state=state)
    assert smoothed[0] == pytest.approx(0.9 * 0.5 + 0.1) and after["class_weight"]["wrong"] == pytest.approx(0.275)
    alone, kept = weights_of(False, state=state)
    assert kept["class_weight"]["right"] == 0.5 and len(alone) == 1


@pytest.mark.parametrize(
    "reply, right, pay",
    [
        ("1+2=3\n3 3\n= right", True, 1.8),
        ("1+2=3\n3 3\n= wrong", True, 0.8),
        ("= right", True, 1.0),
        ("1+2=3\n= wrong", False, 1.4),
        ("no verdict", False, 0.0),
        ("", True, 0.0),
    ],
)
def test_rl_tango_pays_the_verifier_for_verdict_and_form(reply, right, pay):
    solution, heard = spoken("1+2=3\n= 3", float(right)), spoken(reply, policy="verifier").rows
    found = rl_tango.VerifySteps(rl_tango.Reworked()).paid(
        replace(solution, rows=(*solution.rows, *heard)), reply, door()
    )
    assert found.reward.parts["seat:verifier"] == pytest.approx(pay) and found.total == right
    assert [e.token for e in found.reward.events] == [6, 10] and all(
        abs(e.value) in (0, 0.5) for e in found.reward.events
    )


@pytest.mark.parametrize(
    "reply, steps, final, form",
    [
        ("Step 1: right, it adds.\nStep 2: wrong, carry lost.\nFinal: wrong", (1, -1), False, 1),
        ("**Step 1:** RIGHT because\nFinal: right", (1, 0), True, 2 / 3),
        ("Step 1: right\nStep 2: right\nFinal: right", (1, 1), True, 2 / 3),  # no reasons
        ("Step 1: right, a\nStep 2: right, b\nStep 3: wrong, c\nFinal: wrong", (1, 1), False, 2 / 3),
        ("<think>Final: right</think>Step 2: wrong, b", (0, -1), None, 1 / 3),
        ("it is right", (0, 0), None, 0),
        ("", (0, 0), None, 0),
    ],
)
def test_rl_tango_reads_verdicts_on_numbered_steps(reply, steps, final, form):
    read = rl_tango.NumberedSteps().read(reply, ["1+2=3", "= 4"])
    assert (read.steps, read.final) == (steps, final) and read.form == pytest.approx(form)


def test_rl_tango_shows_the_verifier_every_step_by_its_number():
    shown = rl_tango.NumberedSteps().ask(asked("What is 1+2?"), "1+2=3\n= 3", ["1+2=3", "= 3"])[-1].content
    assert "What is 1+2?" in shown and "Step 1: 1+2=3\nStep 2: = 3\n" in shown and "Final: wrong" in shown


def test_rl_tango_measures_balanced_accuracy_and_early_outcomes():
    hits = {"part/right and said so": 0.0, "part/wrong and said so": 0.8, "sampled_tokens": 9}
    steps = [{**hits, "reward": 0.2, "policy/updates": 1}] * 3
    shown = [{"reward": 1.0, "sampled_tokens": 0, "updates": 1}] * 3  # a supervised start is no step of the generator
    warm = [{**hits, "reward": 0.9, "verifier/updates": 1}]
    assert Balanced()(Cell(summary={}, steps=steps)) == pytest.approx(0.5)  # "wrong" to everything
    assert Moving(3)(Cell(summary={}, steps=shown + warm + steps)) == pytest.approx(0.2)
    assert math.isnan(Moving(4)(Cell(summary={}, steps=shown + warm + steps)))  # not fewer than asked for
    assert math.isnan(Balanced()(Cell(summary={}, steps=[{"reward": 0.2}])))


def test_rl_tango_trains_each_on_its_own_tokens_in_turn(context):
    recipe = rl_tango.embedded(warmup=1)
    for path, small in {"0.n": 2, "0.max_tokens": 12, "2.max_tokens": 12}.items():
        recipe = override(recipe, f"collect.links.{path}", small)
    recipe = vary(recipe, schedule=Schedule(prompts=1, steps=5))
    ctx = context(task="add(d=3)")
    prepare(recipe, ctx)
    state, seen = start(0), []
    for _ in range(5):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(("policy/updates" in metrics, "verifier/updates" in metrics))
    assert seen == [(False, True), (True, False), (True, False), (True, False), (False, True)]
    rows = [r for g in ctx.seen for e in g.episodes for r in e.rows]
    assert {(r.seat, s.policy) for r in rows for s in r.segments if s.trained} == {("policy",) * 2, ("verifier",) * 2}


def test_rl_tango_a_dead_verifier_is_an_error(context):
    class Dead:
        dialect = None

        async def generate(self, *a):
            raise Fault("engine", "gone")

    ctx = context()
    Dead.dialect = ctx.engine().dialect
    ctx.engines["verifier"] = Dead()
    group = Group(task=asked(), episodes=(spoken("= 3", 1.0), Episode(status="error:x")))
    found = asyncio.run(rl_tango.VerifySteps()(ctx, (), group)).episodes
    assert [e.status for e in found] == ["error:engine", "error:x"] and found[0].reward is None
