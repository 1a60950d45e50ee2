"""ScalingInter-RL: the horizon by updates and by actions, what is cut, and equal actions of runs."""

import asyncio
import json
from types import SimpleNamespace

import palaestra
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.recipes.agents import agentgym_rl as row
from palaestra.run.benches import from_env
from palaestra.toys.craftgoal import CraftGoal, CraftGoalTasks, actions_to_goal
from palaestra.toys.craftmini import craft
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.worlds.world_server import WorldServer


def test_the_horizon_by_updates_is_the_released_scheduler():
    """h = 10, 20, 30 and D = 100 of the released TextCraft run."""
    draw = row.build().draw
    assert [draw.horizon(n) for n in (0, 1, 99, 100, 199, 200, 500)] == [10, 10, 10, 20, 20, 30, 30]
    assert row.DrawByHorizon().horizon(7) == 0


def episode(n, status="finished", facts=None, total=0.0):
    said = tuple(Segment(ids=(1,), policy="policy", trained=True, logp=(0.0,), turn=i) for i in range(n))
    reward = None if status.startswith("error") else Reward(total=total)
    return Episode(rows=(Row(segments=said),), status=status, reward=reward, facts=facts or {})


def drawn(draw, state, step=0):
    """The horizon of a draw in some step, and its state."""
    bench = SimpleNamespace(name="b", tasks=CraftGoalTasks(), first_drawn=0, max_turns=30, world=None)
    ctx = SimpleNamespace(step=step, seed=0, bench=bench, say=print)
    tasks, state = draw(ctx, ("k",), 2, state)
    return {t.meta["horizon"] for t in tasks}, state


def test_the_horizon_by_actions_counts_those_of_all_episodes():
    draw, count = row.DrawByHorizon((2, 4), every=10, unit="env_steps", budget=16), row.CountSteps()
    horizon, state = drawn(draw, {}, step=99)
    assert horizon == {2} and draw.draw_numbers(state) == {"horizon": 2.0, "env_steps": 0.0}
    # 3 replies, 4 of which the environment counts one as an action, 5 before a fault
    seen = [Group(task=Task(id="t"), episodes=(episode(3), episode(4, facts={"actions": 1}), episode(5, "error:e")))]
    state = count(seen, {}, state)
    assert state["steps"] == 9 and drawn(draw, state)[0] == {2} and not draw.is_finished(state)
    state = json.loads(json.dumps(count(seen, {}, state)))  # as a checkpoint keeps it
    assert state["steps"] == 18 and drawn(draw, state)[0] == {4} and draw.is_finished(state)


def test_horizons_behind_the_environments_own_limit_are_said(capsys):
    drawn(row.DrawByHorizon((30, 40)), {})
    assert "ends after 30 turns, so no horizon of [30, 40] cuts one" in capsys.readouterr().out
    drawn(row.DrawByHorizon((29, 40)), {})
    drawn(row.DrawByHorizon(), {})
    assert not capsys.readouterr().out


@pytest.mark.parametrize("cut, muted", [("failure", False), ("unknown", True)])
def test_what_the_horizon_cuts_is_told_and_a_failure_unless_unknown(cut, muted):
    ctx = SimpleNamespace(bench=SimpleNamespace(max_turns=8))
    tell = row.TellHorizon(cut)

    def parts(horizon, e):
        group = Group(task=Task(id="t", meta={"horizon": horizon}), episodes=(e,))
        (after,) = asyncio.run(tell(ctx, ("k",), group)).episodes
        return after.reward and after.reward.parts, after.muted

    assert parts(3, episode(3, "truncated:turns")) == ({"cut": 1.0, "actions": 3.0}, muted)
    assert parts(3, episode(2)) == ({"cut": 0.0, "actions": 2.0}, False)
    # the environment's own limit is no cut, nor is a long horizon
    assert parts(8, episode(8, "truncated:turns")) == ({"cut": 0.0, "actions": 8.0}, False)
    assert parts(3, episode(2, "truncated:turns")) == ({"cut": 0.0, "actions": 2.0}, False)
    assert parts(0, episode(8, "truncated:turns")) == ({"cut": 0.0, "actions": 8.0}, False)
    assert parts(3, episode(2, "error:environment")) == (None, False)


@pytest.mark.parametrize("name", ["grpo", "ppo", "rloo", "reinforce-plus-plus"])
def test_each_algorithm_takes_horizons(name):
    made = row.build(algorithm=name)
    assert isinstance(made, Recipe) and made.references and made.draw.horizons == (10, 20, 30)
    assert made.learners["policy"].credit == pl.recipe(name, kl=1e-3).learners["policy"].credit


@pytest.mark.parametrize("wrong", [{"horizons": (4, 4)}, {"horizons": (0, 4)}, {"every": 0}, {"budget": -1}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(UserError, match=r"agentgym-rl: (horizons=.* must be|every|budget)"):
        row.build(**wrong)


def test_plans_reach_goals_of_each_depth_and_nothing_else_is_paid():
    tasks, world = CraftGoalTasks(), CraftGoal()
    depths = {}
    for task in (tasks.task(split, i) for split in ("train", "test") for i in range(40)):
        state = task.meta["start"]
        actions = list(actions_to_goal(state, 12))
        frame = world.reset(task, ("k",))
        for action in actions:
            assert frame.pay == {}
            frame = world.step(frame.state, (SimpleNamespace(text=action),), ("k",))
        assert frame.pay == {("policy", ""): 1.0} and len(actions) == task.meta["plan_length"] <= 12
        depths.setdefault(task.domain, set()).add(task.meta["goal"])
    assert depths["depth 1"] == {"drink water", "collect wood"} and depths["depth 4"] == {"collect stone"}
    frame = CraftGoal(turns=1).reset(task, ("k",))
    late = CraftGoal(turns=1).step(frame.state, (SimpleNamespace(text="pickaxe"),), ("k",))
    assert late.pay == {("policy", ""): 0.0} and late.facts["invalid"] == int(craft(state.board, "pickaxe") is None)


WORLD = '''"""Three words to say."""
import palaestra as pl


class Words:
    seats = ("policy",)
    solved = 1.0

    def reset(self, task, key):
        return pl.Frame(state=0, asks=(pl.Ask(seat="policy", say=(pl.Message(role="user", content="1 + 1"),)),))

    def step(self, state, acts, key):
        if state == 5:
            return pl.Frame(state=6, pay={("policy", ""): 1.0})
        return pl.Frame(state=state + 1, asks=(pl.Ask(seat="policy", say=(pl.Message(role="tool", content="go on"),)),))
'''
CRAFT = """from palaestra.toys.craftgoal import CraftGoal, CraftGoalTasks


class Craft(CraftGoal):
    def task(self, split, index):
        return CraftGoalTasks().task(split, index)
"""


def metrics_of(run):
    return [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_runs_end_after_equal_actions_also_where_they_were_interrupted(tmp_path):
    """2 episodes a step: of 1, 1, 2, 2, ... actions, at a budget of 14; a horizon of 6 reaches it in two steps."""
    (tmp_path / "words.py").write_text(WORLD)
    base = {"samples": 2, "schedule.prompts": 1, "budget": 14, "every": 2}
    settings = {"env": f"{tmp_path / 'words.py'}:Words", "evaluate": 0, "quiet": True, "max_tokens": 4}
    grown = {**base, "horizons": (1, 2, 6)}
    whole = palaestra.train("agentgym-rl", out=tmp_path / "a", steps=30, set=grown, **settings)
    steps = [m for m in metrics_of(whole) if "horizon" in m]
    assert [m["horizon"] for m in steps] == [1, 1, 2, 2, 6]
    assert [m["env_steps"] for m in steps] == [0, 2, 4, 8, 12]
    assert [m["part/cut"] for m in steps] == [1, 1, 1, 1, 0]
    palaestra.train("agentgym-rl", out=tmp_path / "b", steps=3, set=grown, **settings)
    again = palaestra.train(resume=tmp_path / "b", steps=30, quiet=True)
    assert [m["env_steps"] for m in metrics_of(again) if "horizon" in m] == [0, 2, 4, 8, 12]
    long = palaestra.train("agentgym-rl", out=tmp_path / "c", steps=30, set={**base, "horizons": (6,)}, **settings)
    assert [m["env_steps"] for m in metrics_of(long) if "horizon" in m] == [0, 12]


@pytest.mark.slow
def test_a_world_behind_a_server_trains_as_in_process(tmp_path):
    """The same rewards step by step; the horizon cuts there too."""
    (tmp_path / "craft.py").write_text(CRAFT)
    env = f"{tmp_path / 'craft.py'}:Craft"
    server = WorldServer(from_env(env)[0])
    server.start()
    words = {"samples": 2, "schedule.prompts": 2, "horizons": (2, 12), "every": 1}
    settings = {"steps": 2, "evaluate": 0, "quiet": True, "model": "tiny-agent", "set": words}
    try:
        here = palaestra.train("agentgym-rl", env=env, out=tmp_path / "in", **settings)
        there = palaestra.train("agentgym-rl", task=f"agentgym:{server.url}", out=tmp_path / "out", **settings)
    finally:
        server.stop()
    for a, b in zip(metrics_of(here), metrics_of(there), strict=True):
        assert all(a.get(k) == b.get(k) for k in ("reward", "part/cut", "part/actions", "sampled_tokens", "loss"))


def test_questions_are_refused(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i} + 1", "answer": str(i + 1)}) + "\n" for i in range(8)))
    with pytest.raises(UserError, match="agentgym-rl"):
        palaestra.train("agentgym-rl", data=rows, out=tmp_path / "run", steps=1, evaluate=0, quiet=True)
