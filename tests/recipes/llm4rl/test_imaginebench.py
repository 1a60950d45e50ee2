"""ImagineBench: the grid, files of rollouts, what a model may imagine, and the arms."""

import asyncio
import json
import re
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.q import pessimism
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import imaginebench
from palaestra.recipes.llm4rl.imaginebench.grid import (
    ColourGrid,
    ColourGridState,
    goals_of,
    instructions,
    written_rollout,
)
from palaestra.recipes.llm4rl.imaginebench.imagine import (
    DynamicsCheck,
    ImaginationLimits,
    draw_question,
    imagine_rollouts,
    reply_form,
    steps_of,
    training_rows,
)
from palaestra.recipes.llm4rl.imaginebench.program import play_expert, successes, why_no_success
from palaestra.recipes.llm4rl.imaginebench.rollouts import (
    InstructionEncoder,
    TaskRollout,
    check_fits,
    embed_words,
    exchange_instructions,
    paths_of,
    read_tasks,
    repeat_smaller,
)

KEY = ("test",)


def state(at, red, blue=(5, 5), steps=0, reached=(0, 0, 0, 0)):
    marks = [red, (5, 0), blue, (4, 0)]
    return ColourGridState(
        at_n2=np.array([at]), mark_nM2=np.array([marks]), reached_nM=np.array([reached], bool), steps=steps
    )


def rollout(T=2, text="go", over=True, source="real", O=2, paid=1.0, start=0.0):
    obs = start + np.arange(T * O, dtype=float).reshape(T, O)
    return TaskRollout(
        instruction=text,
        obs=obs,
        act=np.zeros(T, int),
        next_obs=obs + 1,
        reward=np.full(T, paid),
        over=over,
        source=source,
    )


def test_a_step_of_the_grid_by_hand():
    """Success at step 20 of 100 pays 1 - 0.9 * 0.2 = 0.82; at a wall the agent stays."""
    grid = ColourGrid("go to the red mark", horizon=100)
    after, paid, over = grid.step(state((2, 3), (3, 3), steps=19), np.array([[1]]), None)
    assert paid == pytest.approx(0.82) and over.all() and after.reached_nM[0].tolist() == [True, False, False, False]
    assert grid.observe(after)[0, 0, :5].tolist() == [3, 3, 0, 0, 1]
    after, paid, over = grid.step(state((0, 3), (3, 3)), np.array([[0]]), None)
    assert after.at_n2.tolist() == [[0, 3]] and not paid.any() and not over.any()


def test_a_composition_wants_its_marks_in_order():
    grid = ColourGrid("go to the red mark then to the blue mark")
    assert goals_of(grid.instruction) == ((0, 2), False)
    early, _, over = grid.step(state((1, 1), (3, 3), blue=(2, 1)), np.array([[1]]), None)
    assert not over.any() and early.reached_nM[0, 2]
    _, _, over = grid.step(state((1, 1), (3, 3), blue=(2, 1), reached=(1, 0, 0, 0)), np.array([[1]]), None)
    assert over.all()
    left = ColourGrid("stop just left of the red mark")
    assert left.step(state((1, 1), (3, 1)), np.array([[1]]), None)[2].all()
    assert not left.step(state((2, 1), (3, 1)), np.array([[1]]), None)[2].any()


@pytest.mark.parametrize("text", list(instructions()))
def test_the_expert_succeeds_in_possible_steps(text):
    sim = ColourGrid(text)
    rollouts = play_expert(sim, 20, KEY)
    assert all(r.over and r.reward[-1] > 0 and not r.reward[:-1].any() for r in rollouts)
    assert sim.follows(*steps_of(rollouts)).all()
    obs, act, after = steps_of(rollouts)
    assert not sim.follows(obs, act, after + np.eye(14)[0]).any()


def test_the_pessimistic_term_by_hand():
    """log(e + e^2 + 1) - 2 for Q = (1, 2, 0) and action 1."""
    q = torch.tensor([[1.0, 2.0, 0.0]])
    assert float(pessimism(q, q[:, 1])) == pytest.approx(0.407606, abs=1e-6)


def test_rollouts_as_paths():
    """Masks (1, 1, 1, 0): the return has three rewards; only what ended is over."""
    rollouts = [rollout(4), rollout(3, over=False)]
    encoder = InstructionEncoder(rollouts, lambda text: np.array([7.0]))
    paths = paths_of(rollouts, encoder)
    assert paths["alive"].tolist() == [[True] * 4, [True] * 3 + [False]]
    assert paths["over"].tolist() == [[False] * 3 + [True], [False] * 4]
    assert pl.control.returns_of(paths).tolist() == [4.0, 3.0] and (paths["obs"][0, 0, :, 2] == 7).all()
    seen = np.concatenate([r.obs for r in rollouts])
    assert paths["obs"][0, 0, 1, :2] == pytest.approx((rollouts[0].obs[1] - seen.mean(0)) / seen.std(0))
    assert paths["next_obs"][0, 0, 0, :2] == pytest.approx((rollouts[0].obs[0] + 1 - seen.mean(0)) / seen.std(0))
    kept = paths_of([rollouts[0], replace(rollouts[1], source="imagined")], encoder, lambda r: np.arange(len(r)) != 1)
    assert kept["alive"].tolist() == [[True] * 4, [True, False, True, False]]


def test_half_of_the_steps_are_imagined():
    real, other = [rollout(2)], [rollout(3, source="imagined"), rollout(3, source="imagined")]
    mixed = repeat_smaller(real, other)
    assert sum(len(r) for r in mixed if r.source == "real") == sum(len(r) for r in mixed if r.source == "imagined") == 6
    assert repeat_smaller(real, []) == real and len(repeat_smaller(other, real)) == 5


def test_exchanged_instructions_are_those_of_others():
    rollouts = [rollout(text=t) for t in "abcab"]
    for seed in range(5):
        mixed = exchange_instructions(rollouts, pl.rng_of((seed,)))
        assert all(m.instruction != r.instruction for m, r in zip(mixed, rollouts, strict=True))
        assert mixed[0].instruction == mixed[3].instruction and {m.instruction for m in mixed} == set("abc")
    with pytest.raises(UserError, match="no other"):
        exchange_instructions([rollout()], pl.rng_of(KEY))


def test_words_have_a_place():
    one, other = embed_words("red then blue"), embed_words("blue then red")
    assert one[:32] == pytest.approx(other[:32]) and np.linalg.norm(one - other) > 1
    assert (embed_words("Red, then blue!") == one).all() and np.isfinite(embed_words("")).all()


ROWS = [
    {"instruction": "a", "observations": [[0, 1], [1, 1], [2, 1]], "actions": [1, 1], "rewards": [0, 3], "over": True},
    {"instruction": "a", "observations": [[0, 1], [1, 1]], "actions": [[1], [0]], "rewards": [0, 1]},
    {"instruction": "b", "level": "hard"},
    {"instruction": "b", "imagined": True, "observations": [[0, 1], [1, 1]], "actions": [1, 0]},
    {"instruction": "b", "level": "hard", "observations": [[0, 2]], "actions": [0], "rewards": [5], "over": True},
]


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_a_file_of_rollouts(tmp_path):
    rows = [{**r, "actions": np.ravel(r["actions"]).tolist()} if "actions" in r else r for r in ROWS]
    tasks, cut = read_tasks(write(tmp_path / "own.jsonl", rows))
    assert tasks.levels == {"a": "train", "b": "hard"} and tasks.unseen == ["b"] and cut == 1
    first, second = tasks.real
    assert first.next_obs.tolist() == [[1, 1], [2, 1]] and first.over and len(second) == 1 and not second.over
    (imagined,) = tasks.imagined
    assert imagined.reward.tolist() == [0, 1.5] and imagined.over  # returns of 3 and 0 in what is left
    (other,) = tasks.other
    assert other.instruction == "b" and other.reward.tolist() == [5]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{"instruction": " "}], 'row 1: it has no "instruction"'),
        ([{"instruction": "a"}], 'row without "observations"'),
        ([{"instruction": "a", "imagined": True}], 'row without "observations"'),
        ([ROWS[2]], 'no recorded rollout of the level "train"'),
        ([{**ROWS[0], "over": "false"}], """row 1: "over" is 'false'"""),
        ([ROWS[0], {**ROWS[0], "over": [False, True]}], 'row 2: "over" is .False, True.'),
        ([{**ROWS[0], "over": 2}], 'row 1: "over" is 2'),
        ([{**ROWS[0], "imagined": "false"}], """row 1: "imagined" is 'false'; it is true or false"""),
        ([{**ROWS[0], "rewards": [1]}], "2 actions need as many rewards"),
        ([{k: v for k, v in ROWS[0].items() if k != "rewards"}], "rewards"),
        ([{**ROWS[0], "observations": [[0], [float("nan")], [1]]}], "not finite"),
        ([{**ROWS[0], "observations": [["x"], [1], [1]]}], "not a rollout of numbers"),
        ([ROWS[0], {**ROWS[0], "level": "hard"}], "the level hard and train"),
        ([ROWS[0], {**ROWS[0], "observations": [[0], [1], [2]]}], "several widths"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, rows, why):
    with pytest.raises(UserError, match=why):
        read_tasks(write(tmp_path / "own.jsonl", rows))


def test_flags_are_booleans_or_numbers(tmp_path):
    given = [{**ROWS[0], "over": x} for x in (1, 0, True, False, 1.0, None)]
    tasks, _ = read_tasks(write(tmp_path / "own.jsonl", [{**r, "imagined": 0} for r in given]))
    assert [r.over for r in tasks.real] == [True, False, True, False, True, False]


def test_rollouts_have_to_fit_the_simulator(tmp_path):
    tasks, _ = read_tasks(write(tmp_path / "own.jsonl", [ROWS[0], ROWS[2]]))
    with pytest.raises(UserError, match="2 numbers in an observation, and the simulator 14"):
        check_fits(tasks, ColourGrid())
    tasks = replace(tasks, real=[replace(r, act=r.act + 0.5) for r in tasks.real])
    with pytest.raises(UserError, match="actions are 0 to 1"):
        check_fits(tasks, Line("a"))


def test_a_question_tells_no_more_than_recorded_rollouts():
    real = play_expert(ColourGrid(), 4, KEY)
    start, text = draw_question(ColourGrid("go to the blue mark"), "go to the blue mark", real, KEY)
    assert any((start == r.obs[0]).all() for r in real) and text.count("A recorded rollout") == 2
    assert (
        "Instruction: go to the blue mark" in text
        and "from 0 to 3" in text
        and f"at most {2 * max(map(len, real))} steps" in text
    )
    _, alone = draw_question(ColourGrid(), "x", real[:1], KEY)
    assert "A recorded rollout" not in alone


def test_what_does_not_fit_is_left_out(context):
    """Three starts, of which the model breaks the second twice; another fault ends the run."""
    sim, real, replies = ColourGrid(), play_expert(ColourGrid(), 4, KEY), [0]

    def answer(request):
        replies[0] += 1
        if request.seed == 1:
            return {"steps": [{"action": 4, "observation": [0] * 14}]}
        return {"steps": [{"action": 3, "observation": [1] * 14}, {"action": 0, "observation": [2] * 14}]}

    ask = lambda source: asyncio.run(imagine_rollouts(context(), source, {"new": sim}, real, 3, KEY))
    rollouts, refused = ask(pl.Scripted(answer))
    assert refused == 1 and len(rollouts) == 2 and replies[0] == 4
    first = rollouts[0]
    assert first.act.tolist() == [3, 0] and (first.obs[1] == 1).all() and first.source == "imagined" and first.over
    assert first.reward == pytest.approx([0, np.mean([r.reward.sum() for r in real])])

    def fail(request):
        raise Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        ask(pl.Scripted(fail))


class LongLine:
    """100 steps of 39 numbers."""

    agents, horizon, observation, actions, about = 1, 1000, 39, 4, "A line."


def test_a_reply_has_room_for_a_rollout_and_what_is_too_long_is_refused_before_it_is_asked(context):
    """A step spells {"action": 0, "observation": [39 times 0.1234]}, and ", " between two: 344 characters."""
    obs = np.full((100, 39), 0.1234)
    real = [replace(rollout(100), obs=obs, next_obs=obs)] * 3
    requests, said = [], []

    def answer(request):
        requests.append(request)
        return {"steps": [{"action": 0, "observation": [0.1] * 39}] * 100}

    ctx = context()
    ctx.say = said.append
    ask = lambda **limits: asyncio.run(
        imagine_rollouts(ctx, pl.Scripted(answer), {"new": LongLine()}, real, 1, KEY, ImaginationLimits(**limits))
    )
    with pytest.raises(UserError, match=r"nothing was asked.*context=1[0-9]{5} if.*examples=0 longest=9[0-9],"):
        ask()
    assert not requests
    rollouts, refused = ask(context=200_000)
    assert len(rollouts) == 1 and not refused and requests[0].max_tokens == pytest.approx(174 * 344, rel=0.01)
    question = requests[0].messages[0].content
    assert question.count("A recorded rollout") == 2 and "at most 174 steps" in question  # 60000 / 344
    assert len(question) <= int(re.findall(r"up to (\d+) tokens", said[0])[0]) < len(question) + 200
    ask(examples=0, longest=20)
    assert requests[1].max_tokens == pytest.approx(20 * 344, rel=0.01)
    assert "A recorded" not in requests[1].messages[0].content and "at most 20 st" in requests[1].messages[0].content


def test_the_form_of_a_reply():
    form = reply_form(ColourGrid())
    good = {"action": 3, "observation": [0.0] * 14}
    assert len(form.model_validate({"steps": [good] * 30}).steps) == 30
    for bad in ([], [good] * 31, [{**good, "action": -1}], [{**good, "observation": [0.0] * 13}]):
        with pytest.raises(ValueError, match="steps"):
            form.model_validate({"steps": bad})
    box = reply_form(replace_actions(ColourGrid(), pl.control.Box(low=(-1.0, -1.0), high=(1.0, 1.0))))
    assert box.model_validate({"steps": [{**good, "action": [0.5, 2]}]})
    with pytest.raises(ValueError, match="action"):
        box.model_validate({"steps": [{**good, "action": [0.5]}]})


def replace_actions(sim, actions):
    class Other:
        observation, horizon = sim.observation, sim.horizon

    Other.actions = actions
    return Other()


def test_rows_to_fine_tune_on():
    real = play_expert(ColourGrid(), 3, KEY)
    rows = training_rows({r.instruction: ColourGrid() for r in real}, real, KEY)
    assert len(rows) == 9 and rows[1]["demonstration"] == "go to the red mark"
    steps = json.loads(rows[2]["demonstration"])["steps"]
    assert [s["action"] for s in steps] == real[0].act.tolist() and steps[-1]["observation"] == real[0].next_obs[
        -1
    ].tolist()
    assert json.loads(rows[0]["demonstration"]) in [o.tolist() for o in real[0].next_obs]
    assert "Instruction: go to the red mark" in rows[2]["prompt"]


def test_the_check_keeps_possible_steps():
    tasks = [text for text, level in instructions().items() if level == "train"]
    real = [r for text in tasks for r in play_expert(ColourGrid(text), 50, KEY)]
    check, new = DynamicsCheck(real, 4, KEY), play_expert(ColourGrid("stop just left of the blue mark"), 20, KEY)
    jumps = [replace(r, next_obs=r.next_obs + 2 * np.eye(14)[0]) for r in new]
    share = lambda rollouts: np.concatenate([check.keeps(r) for r in rollouts]).mean()
    assert share(real) > 0.9 and share(new) > 0.7 and share(jumps) < 0.1
    assert np.isfinite(DynamicsCheck(real[:1], 4, KEY).limit_O).all()


def test_a_rule_errs_in_its_shares():
    real = play_expert(ColourGrid(), 10, KEY)
    text, form = "go to the green mark then to the blue mark", reply_form(ColourGrid())
    grid, wrong, broken = ColourGrid(text), 0, 0
    for i in range(100):
        _, question = draw_question(grid, text, real, (i,))
        request = pl.ChatRequest(messages=pl.services.question_messages(question), seed=i)
        steps = form.model_validate(written_rollout(request)).steps
        wrong += steps[-1].observation[2 + 3 * 2 + 2] == 0  # blue was not reached
        obs = np.array([s.observation for s in steps])
        act = np.array([s.action for s in steps])
        broken += not grid.follows(obs[:-1], act[1:], obs[1:]).all()
    assert 10 < wrong < 40 and 10 < broken < 40


def test_successes():
    paths = {
        "reward": np.array([[[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 2.0]]]),
        "over": np.array([[False, True], [False, True], [False, False]]),
        "alive": np.ones((3, 2), bool),
    }
    assert successes(paths, None).tolist() == [True, False, False]
    assert successes(paths, 1.5).tolist() == [False, False, True]
    assert successes({**paths, "success": np.array([[[0, 0]], [[1, 0]], [[0, 0]]])}, None).tolist() == [
        False,
        True,
        False,
    ]


def test_that_no_recorded_rollout_is_a_success_is_said(context, tmp_path):
    """A simulator that pays -1 a step: 2 and 3 steps pay -2 and -3."""
    costs = [rollout(2, paid=-1.0), rollout(3, paid=-1.0)]
    said = why_no_success(costs, ColourGrid(), None)
    assert "no recorded rollout" in said and "pay -3 to -2" in said and "threshold=RETURN" in said
    assert not why_no_success(costs, ColourGrid(), -2.5)
    assert "pays threshold=-1.5" in why_no_success(costs, ColourGrid(), -1.5)
    assert not why_no_success([*costs, rollout(paid=1.0)], ColourGrid(), None)
    assert why_no_success([*costs, rollout(paid=1.0, over=False)], ColourGrid(), None)
    telling = ColourGrid()
    object.__setattr__(telling, "facts", lambda state: {"success": np.zeros((1, 1))})
    assert not why_no_success(costs, telling, None)
    (tmp_path / "line.py").write_text("from tests.recipes.llm4rl.test_imaginebench import Line\n")
    rows = [walk("a", 1, rewards=[-1] * 3), {"instruction": "b", "level": "hard"}, walk("b", -1, imagined=True)]
    made = imaginebench.build(
        sim=f"{tmp_path}/line.py:Line", rollouts=write(tmp_path / "own.jsonl", rows), steps=1, games=2
    )
    ctx, lines = context(), []
    ctx.say = lines.append
    asyncio.run(replace(made, updates=1).run(ctx))
    assert any("they pay -3 to -3" in line for line in lines)


class Line:
    """A user's simulator: three cells to the right or to the left, as an instruction says."""

    agents, horizon, observation, actions = 1, 6, 2, 2

    def __init__(self, instruction):
        self.way = -1 if "b" in instruction else 1

    def reset(self, rng, n):
        return np.zeros(n)

    def observe(self, state):
        return np.stack([state, np.ones_like(state)], -1)[:, None]

    def legal(self, state):
        return None

    def step(self, state, act_nA, rng):
        after = state + act_nA[:, 0] * 2 - 1
        over = after == 3 * self.way
        return after, over[:, None].astype(float), over


def walk(text, way, **more):
    cells = [[float(way * i), 1.0] for i in range(4)]
    return {"instruction": text, "observations": cells, "actions": [(way + 1) // 2] * 3, "rewards": [0, 0, 1],
            "over": True, **more}  # fmt: skip


@pytest.mark.parametrize("learner", ["cql", "bc"])
def test_imagined_rollouts_teach_a_new_instruction(context, tmp_path, learner):
    """Recorded is the way to the right alone; the file's imagined rollouts say what "b" is."""
    (tmp_path / "line.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom tests.recipes.llm4rl.test_imaginebench import Line\n"
    )
    rows = [walk("a", 1)] * 3 + [{"instruction": "b", "level": "hard"}, *[walk("b", -1, imagined=True)] * 2]
    made = imaginebench.build(
        sim=f"{tmp_path}/line.py:Line", rollouts=write(tmp_path / "own.jsonl", rows), learner=learner,
        steps=3, games=4,
    )  # fmt: skip
    ctx = context(out=tmp_path / "run", seed=1)
    (tmp_path / "run").mkdir(exist_ok=True)
    found = asyncio.run(made.run(ctx)).metrics
    assert list(found["arms"]) == ["none", "guide", "filtered"]  # one new instruction, and no real rollouts of it
    assert found["success_train"] == 1 == found["success_hard"] and found["success_hard_none"] == 0
    assert found["moved"] == 1 and found["valid"] == 1 and found["gain"] == pytest.approx(0.5)
    assert "gap_hard" not in found
    # the saved policy acts as the measured one
    policy, encoder = (
        pl.control.load_policy(tmp_path / "run/policy"),
        imaginebench.load_encoder(tmp_path / "run/policy"),
    )
    seen = torch.from_numpy(encoder(np.array([[0.0, 1.0]]), "b")).float()
    assert int((policy.actor(seen) if learner == "bc" else policy(seen)).argmax()) == 0


def test_a_killed_run_ends_with_the_same(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(1)
        return written_rollout(request)

    made = replace(imaginebench.embedded(each=1, games=2, steps=1), asked=pl.Scripted(answer), updates=10)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and calls == len(asked) == 20
    arms = first["arms"]
    assert (
        list(arms) == ["none", "guide", "filtered", "shuffled", "oracle"]
        and arms["none"]["moved"] == 0 < first["moved"]
    )
    assert first["gap_hard"] == pytest.approx(arms["oracle"]["success_hard"] - first["success_hard"])
    assert len((tmp_path / "sft.jsonl").read_text().splitlines()) == 900
    off = asyncio.run(replace(made, imagination="none").run(context(seed=2))).metrics
    assert off["moved"] == 0 == off["gain"] and list(off["arms"]) == ["none", "guide", "oracle"]


def test_a_gymnasium_environment_of_ones_own(context, tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "own.py").write_text(
        "import gymnasium\ndef make(instruction):\n    return gymnasium.make('Pendulum-v1', max_episode_steps=5)\n"
        "def plain():\n    return make('')\n"
    )
    row = {
        "instruction": "a",
        "observations": [[1, 0, 0], [1, 0, 1], [1, 0, 2]],
        "actions": [0.5, -1],
        "rewards": [-1, -2],
    }
    file = write(tmp_path / "own.jsonl", [row, {"instruction": "b", "level": "hard"}])
    reply = {"steps": [{"action": [2.0], "observation": [0, 1, 0]}]}
    made = imaginebench.build(
        pl.Scripted(lambda request: reply), f"{tmp_path}/own.py:make", file, learner="bc", each=2, steps=1, games=2,
        threshold=-1e9,
    )  # fmt: skip
    found = asyncio.run(made.run(context())).metrics
    assert found["moved"] > 0 and found["success_hard"] == 1
    asked = []
    with pytest.raises(UserError, match=r"actions that can be counted.*take learner=bc"):
        asyncio.run(replace(made, learner="cql", asked=pl.Scripted(asked.append)).run(context()))
    assert not asked  # said before a call is paid
    with pytest.raises(UserError, match="is called with the instruction"):
        asyncio.run(replace(made, sim=f"{tmp_path}/own.py:plain").run(context()))


def test_what_cannot_be_is_said(context, tmp_path):
    for wrong, why in (
        ({"each": 0}, "each is 1"),
        ({"games": 1}, "games is 2"),
        ({"sim": "x.py:y"}, "belong together"),
    ):
        with pytest.raises(UserError, match=why):
            imaginebench.build(**wrong)
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(imaginebench.build().run(context()))
    bad = replace(imaginebench.embedded(each=1), asked=pl.Scripted(lambda request: "no"))
    with pytest.raises(UserError, match="no reply of the model is a rollout"):
        asyncio.run(bad.run(context()))
    with pytest.raises(UserError, match="no policy of imaginebench"):
        imaginebench.load_encoder(tmp_path)
