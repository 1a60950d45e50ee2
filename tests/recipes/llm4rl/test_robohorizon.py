"""RoboHorizon: stages and their rewards, the lint, keyframes, the world model, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import robohorizon
from palaestra.recipes.llm4rl.robohorizon.demos import (
    horizons_by_stage,
    key_horizons,
    keyframes,
    read_demonstrations,
    segments_of,
)
from palaestra.recipes.llm4rl.robohorizon.dream import Dream, DreamLearner
from palaestra.recipes.llm4rl.robohorizon.lid import LidState, LidTask
from palaestra.recipes.llm4rl.robohorizon.program import words_of
from palaestra.recipes.llm4rl.robohorizon.recorded import FIRST, PROGRESS, REWARDS, STAGES, TURN, near, op, recorded
from palaestra.recipes.llm4rl.robohorizon.stages import (
    StagedTask,
    StagePlan,
    StageRewards,
    draw_states,
    plan_form,
    reward_faults,
    rewards_form,
    staged_shaping,
    values,
)
from palaestra.recipes.llm4rl.robohorizon.views import (
    HasCameras,
    MaskedViews,
    ViewLearner,
    draw_spots,
    patches_of,
    visible_patches,
)
from palaestra.recipes.llm4rl.robohorizon.world import (
    LatentWorld,
    WorldPlayer,
    gaussian_kl,
    lambda_returns,
)

RNG = np.random.default_rng(0)
SIM = LidTask(horizon=12)
DECLARED = SIM.declared
STATES = draw_states(DECLARED, pl.rng_of(("t",)))
PLAN = StagePlan.model_validate({"stages": STAGES})
SMALL = {
    "sim": SIM,
    "learner": pl.control.PPO(games=4, bootstrap=True, epochs=1),
    "world": DreamLearner(games=2, sequences=4, length=4),
    "steps": 48,
    "games": 4,
    "demonstrations": 2,
    "imagine": 3,
    "views": ViewLearner(updates=4, clips=2),
}


def task_of(stages, rewards, declared=("x",)):
    quantities = {n: pl.control.Quantity(low=-9.0, high=9.0) for n in declared}
    words = pl.control.SimulatorWords(about="", declared=quantities, compute=lambda paths: dict(paths["columns"]))
    return StagedTask(
        plan=StagePlan.model_validate({"stages": [{"name": str(i), "done": d} for i, d in enumerate(stages)]}),
        rewards=StageRewards.model_validate({"rewards": [{"step": s, "bonus": b} for s, b in rewards]}),
        words=words,
    )


def read(expression):
    return StageRewards.model_validate({"rewards": [{"step": expression, "bonus": 1.0}]}).rewards[0].step


def test_terms_of_the_printed_example_by_hand():
    """2 exp(-pi/2), 2; 1 + (1 - exp(-d)) falls on the way to the box, 1 + exp(-d) rises."""
    at = {"lid_angle": np.array([0.0, 1.5708]), "box_distance": np.array([1.0, 0.5])}
    turn, progress = (read(x) for x in (TURN, PROGRESS))
    assert values(turn, at, DECLARED) == pytest.approx([0.415759, 2.0], abs=1e-4)
    away = {"box_distance": np.array([1.0, 0.5, 0.0])}
    assert values(progress, away, DECLARED) == pytest.approx([1.632, 1.393, 1.0], abs=1e-3)
    better = read(op("add", 1.0, near("box_distance", -1.0)))
    assert values(better, away, DECLARED) == pytest.approx([1.368, 1.607, 2.0], abs=1e-3)


def test_stages_are_done_in_order_and_stay_done():
    """Bonuses 2 and 6; x goes -1, 2 (both conditions: one a step), 2, -1 (which undoes nothing)."""
    above = lambda bound: op("less", bound, "x")
    task = task_of([above(0.0), above(1.0)], [("x", 2.0), (op("multiply", 0.5, "x"), 6.0)])
    paths = {"columns": {"x": np.array([[[-1.0, 2.0, 2.0, -1.0]]])}}
    assert task.reached(paths).ravel().tolist() == [0, 1, 2, 2]
    assert task.reward(paths).ravel() == pytest.approx([-1 / 8, (2 + 1) / 8, 1.0, 1.0])
    assert task.reward(paths, bonuses=False).ravel() == pytest.approx([-1 / 8, 1 / 8, 0.0, 0.0])


def test_what_is_paid_is_beside_and_an_early_end_stays():
    """gamma 0.5, a game of three steps at most that is over after two: 1 + 0.5 of its last reward."""
    task = task_of([op("less", 0.0, "x")], [("x", 2.0)])
    paths = {
        "columns": {"x": np.array([[[-2.0, 1.0, 1.0]]])},
        "reward": np.array([[[0.0, 0.25, 7.0]]]),
        "alive": np.array([[True, True, False]]),
        "over": np.array([[False, True, False]]),
    }
    assert staged_shaping(task, 3, 0.5, 2.0)(paths).ravel() == pytest.approx([-1.0, 0.5 + 1.5, 0.0])
    mixed = staged_shaping(task, 3, 0.5, 0.0, key=("k",))(paths | {"over": np.zeros((1, 3), bool)})
    # of the two steps that were played each has the other's; what lies behind the end is nobody's
    assert mixed.ravel() == pytest.approx([1.0, -1.0, 0.0])
    alone = paths | {"alive": np.array([[True, False, False]]), "over": np.zeros((1, 3), bool)}
    assert staged_shaping(task, 3, 0.5, 0.0, key=("k",))(alone).ravel() == pytest.approx([-1.0, 0.0, 0.0])


def test_the_lint_finds_a_wrong_sign_and_a_bonus_that_is_too_small():
    form = rewards_form(DECLARED, 4)
    good, printed = (form.model_validate({"rewards": r}) for r in (REWARDS, FIRST))
    assert not reward_faults(PLAN, good, DECLARED, STATES)
    (fault,) = reward_faults(PLAN, printed, DECLARED, STATES)
    assert "bring the item" in fault and "should grow" in fault
    small = form.model_validate({"rewards": [{**REWARDS[0], "bonus": 0.5}, *REWARDS[1:]]})
    (fault,) = reward_faults(PLAN, small, DECLARED, STATES)
    assert "bonus 0.5" in fault


def test_the_lint_does_not_refuse_by_the_noise_of_its_draw():
    """The quantity of a step reward that its stage does not name is drawn independently of the stage."""
    plan = StagePlan.model_validate({"stages": STAGES[1:2]})  # by the lid's angle alone
    form = rewards_form(DECLARED, 1)
    for seed in range(8):
        states = draw_states(DECLARED, pl.rng_of(("noise", seed)))
        for step, refused in (
            (op("neg", "handle_distance"), False),
            ("handle_distance", False),
            (0.1, False),
            (op("add", op("multiply", -0.1, "lid_angle"), "handle_distance"), True),
        ):
            rewards = form.model_validate({"rewards": [{"step": step, "bonus": 9.0}]})
            assert bool(reward_faults(plan, rewards, DECLARED, states)) == refused


def test_plans_and_rewards_that_cannot_be_are_refused_with_the_reason():
    stage = lambda done: {"stages": [{"name": "a", "done": done}]}
    for done, why in (
        ("the lid", "no quantity 'the lid'"),
        (op("less", 2.0, "lid_angle"), r"never holds with lid_angle from 0 to 1\.5708 .type"),
        (op("less", "lid_angle", 2.0), "always holds"),
        (1.0, r"always holds .type"),
    ):
        with pytest.raises(ValueError, match=why):
            plan_form(DECLARED, STATES).model_validate(stage(done))
    plan_form(DECLARED, STATES).model_validate({"stages": STAGES})
    for rewards, why in (
        ([REWARDS[0]], "1 rewards for 2 stages"),
        ([REWARDS[0], {"step": "nothing", "bonus": 1.0}], "stage 2: there is no quantity"),
        ([REWARDS[0], {"step": "gripping", "bonus": 0.0}], "greater than 0"),
    ):
        with pytest.raises(ValueError, match=why):
            rewards_form(DECLARED, 2).model_validate({"rewards": rewards})


def test_keyframes_are_rests_in_which_the_grip_stays():
    speed = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.05, 1.0, 1.0])
    assert keyframes(speed) == [0, 2, 5, 7]
    assert keyframes(speed, np.array([0, 0, 0, 0, 0, 1, 1, 1])) == [0, 2, 7]
    assert key_horizons([0, 2, 5, 7]).tolist() == [2, 2, 3, 3, 3, 2, 2, 2]
    assert keyframes(np.zeros(0)) == [] and key_horizons([0]).tolist() == [1] and keyframes(np.ones(1)) == [0]
    obs = np.concatenate([[0.0], np.cumsum(speed)])[None, None, :, None]
    paths = {"obs": obs[:, :, :-1], "next_obs": obs[:, :, 1:], "alive": np.ones((1, 8), bool)}
    stage = np.array([[0, 0, 0, 0, 1, 1, 1, 1]])  # key-horizons 2, 2, 3, 3 and 3, 2, 2, 2
    assert horizons_by_stage(paths, stage, 2, most=9).tolist() == [2, 2, 9]
    assert horizons_by_stage(paths, stage, 2, most=1).tolist() == [1, 1, 1]


def test_lambda_returns_by_hand():
    """r = (0, 0, 1), v_1 to v_3 = (0.1, 0.2, 0.3), gamma 1, lam 0.5; of a horizon of 2: 0 + 0.2, 0.05 + 0.1."""
    column = lambda *x: torch.tensor(x)[:, None].expand(3, 2)
    reward, value, one = column(0.0, 0.0, 1.0), column(0.1, 0.2, 0.3), torch.ones(3, 2)
    returns = lambda_returns(reward, value, one, 0.5, torch.tensor([3, 2]))
    assert returns[:, 0].tolist() == pytest.approx([0.425, 0.75, 1.3])
    assert returns[:2, 1].tolist() == pytest.approx([0.15, 0.2])


def test_a_divergence_against_torch():
    q, p = (torch.randn(3, 4), torch.rand(3, 4) + 0.2), (torch.randn(3, 4), torch.rand(3, 4) + 0.2)
    one, other = (torch.distributions.Normal(*x) for x in (q, p))
    expected = torch.distributions.kl_divergence(one, other).sum(-1)
    assert torch.allclose(gaussian_kl(*q, *p), expected, atol=1e-5)


def state(hand, item, angle=0.0):
    return LidState(hand_nd=np.array([hand]), item_nd=np.array([item]), angle_n=np.array([angle]), grip_n=np.zeros(1))


def test_the_lid_by_hand():
    """The handle of the closed lid is at (0.8, -0.3); from (0.8, -0.2) on the angle is atan(0.1 / 0.5)."""
    go = lambda *v: np.array([[v]])
    after, paid, _ = SIM.step(state([0.8, -0.3], [-0.5, -0.5]), go(0.0, 1.0, 1.0), RNG)
    assert after.angle_n[0] == pytest.approx(np.arctan(0.2)) and not paid.any()
    assert SIM.step(state([0.8, -0.3], [-0.5, -0.5]), go(0.0, 1.0, -1.0), RNG)[0].angle_n[0] == 0
    carried, paid, _ = SIM.step(state([0.5, -0.3], [0.45, -0.3], 1.3), go(1.0, 0.0, 1.0), RNG)
    assert carried.item_nd[0] == pytest.approx([0.55, -0.3]) and paid[0, 0] == 1
    assert SIM.step(state([0.5, -0.3], [0.45, -0.3], 1.0), go(1.0, 0.0, 1.0), RNG)[1][0, 0] == 0
    obs = SIM.observe(carried)
    columns = SIM.quantities({"obs": 0 * obs[:, :, None], "next_obs": obs[:, :, None]})
    assert columns["lid_angle"].ravel() == pytest.approx([1.3]) and columns["gripping"].ravel() == [1]
    assert columns["item_distance"].ravel() == pytest.approx([0.05])
    whole = LidTask()
    act = lambda obs, legal, rng: {"act": whole.demonstrate(obs)}
    played = pl.control.play_games(whole, act, 32, ("demo",))
    assert (played["reward"][:, 0, -1] == 1).all()  # every demonstration ends with the item in the box
    task = StagedTask(
        plan=PLAN, rewards=StageRewards.model_validate({"rewards": REWARDS}), words=words_of(whole, played)
    )
    assert (task.reached(played)[:, 0, -1] == 4).all() and task.reward(played).max() == pytest.approx(1.0)


def test_demonstrations_of_a_file(tmp_path):
    line = lambda T, **more: json.dumps({"obs": [[float(t)] * 8 for t in range(T + 1)], "act": [[0, 0, 1]] * T, **more})
    file = tmp_path / "demos.jsonl"
    file.write_text(line(2) + "\n\n" + line(3, reward=[0, 0, 1]) + "\n" + line(20) + "\n")
    paths = read_demonstrations(str(file), SIM)
    assert paths["alive"].sum(1).tolist() == [2, 3, 12] and paths["act"].shape == (3, 1, 12, 3)
    assert paths["next_obs"][0, 0, 1, 0] == 2.0 and paths["reward"].sum() == 1 and not paths["over"].any()
    for text, why in (
        ("", "no demonstration"),
        ("{}", "demos.jsonl:1"),
        ("[1]", "demos.jsonl:1"),
        (line(0), "actions have the shape"),
        (json.dumps({"obs": [[0] * 8] * 2, "act": [[0]]}), "actions have the shape"),
        (json.dumps({"obs": [[0] * 7] * 2, "act": [[0, 0, 0]]}), "observations have the shape"),
        (json.dumps({"obs": [[0] * 7 + [float("nan")]] * 2, "act": [[0, 0, 0]]}), "not finite"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=why):
            read_demonstrations(str(file), SIM)
    ended = line(3, over=True) + "\n" + line(12, over=True) + "\n" + line(13, over=True) + "\n" + line(2, over=False)
    file.write_text(ended)
    over = read_demonstrations(str(file), SIM)["over"]
    assert np.argwhere(over).tolist() == [[0, 2], [1, 11]]  # the third one's end is behind the horizon
    file.write_text(line(2, over=1))
    with pytest.raises(UserError, match='"over" is true or false'):
        read_demonstrations(str(file), SIM)
    walk = lambda *act: file.write_text(json.dumps({"obs": [[0.0]] * (len(act) + 1), "act": act}))
    walk(0, 1)
    assert read_demonstrations(str(file), Line())["act"].ravel().tolist() == [0, 1]
    for act, why in (
        (1.5, r"1\.5 is no action"),
        (2, "2 is no action; they are whole numbers from 0 to 1"),
        (-1, "-1 is"),
    ):
        walk(0, act)
        with pytest.raises(UserError, match=why):
            read_demonstrations(str(file), Line())
    with pytest.raises(UserError, match="several"):
        read_demonstrations(str(file), pl.control.Coverage())


def dreaming(actions, seen, act, reward, updates, **settings):
    """A dream of games of 6 steps with random actions, after some updates."""
    world = pl.control.draw_network(lambda: LatentWorld(seen.shape[-1], actions), ("w",))
    dream = Dream(replace(DreamLearner(length=6), **settings), world, np.array([3]), ("w",))
    n, T = reward.shape
    paths = {"obs": seen[:, None, :-1], "next_obs": seen[:, None, 1:], "act": act[:, None]}
    paths |= {"alive": np.ones((n, T), bool), "over": np.zeros((n, T), bool)}
    dream.store(paths, reward[:, None], np.zeros((n, T), int), settings.get("bc", 0) > 0)
    dream.fit_scale()
    return dream, [dream.update() for _ in range(updates)]


def test_a_world_learns_what_actions_do_and_its_actor_what_pays():
    """A walk of +-1 by two actions, paid where it goes up: after updates the actor goes up."""
    rng = np.random.default_rng(1)
    act = rng.integers(2, size=(64, 6))
    seen = np.concatenate([np.zeros((64, 1)), np.cumsum(2.0 * act - 1, 1)], 1)[..., None]
    dream, numbers = dreaming(2, seen, act, act.astype(float), 30, bc=0.0, lr=1e-2, sequences=8)
    assert numbers[-1]["model_loss"] < 0.5 * numbers[0]["model_loss"]
    player = WorldPlayer(dream.world, greedy=True)
    assert (player(np.zeros((4, 1, 1)), None, rng)["act"] == 1).all()
    assert (player(np.zeros((4, 1, 1)), np.array([[[True, False]]] * 4), rng)["act"] == 0).all()


def test_demonstrations_are_imitated():
    rng = np.random.default_rng(1)
    act = np.full((8, 6, 1), 0.5)
    seen = rng.normal(size=(8, 7, 2))
    box = pl.control.Box(low=(-1.0,), high=(1.0,))
    dream, _ = dreaming(box, seen, act, np.zeros((8, 6)), 25, bc=1.0, lr=2e-2, sequences=4)
    given = WorldPlayer(dream.world, greedy=True)(seen[:, :1], None, rng)["act"]
    assert np.abs(given - 0.5).mean() < 0.25


def test_a_run_that_was_killed_ends_with_the_same_and_asks_nothing_again(context, tmp_path):
    asked, made = [], replace(robohorizon.embedded(), **SMALL)

    def answer(request):
        asked.append(request.messages[0].content)
        return recorded(request)

    run = lambda: asyncio.run(replace(made, asked=pl.Scripted(answer)).run(context(out=tmp_path, seed=3))).metrics
    first = run()
    for part in ("arm-guide", "arm-world", "arm-views"):
        (tmp_path / "kept" / f"{part}.json").unlink()
    assert run() == first and json.dumps(first)
    # stages, rewards, and rewards again because of the sign
    assert len(asked) == 3 and "was refused" in asked[2] and "should grow" in asked[2] and first["rejections"] == 1
    arms = first["arms"]
    assert list(arms) == ["none", "script", "guide", "unlinted", "steps", "shuffled", "world", "views"]
    assert {r["env_steps"] for name, r in arms.items() if name != "script"} == {48} and arms["none"][
        "staged"
    ] == 0 < first["staged"]
    assert len(arms["world"]["horizons"]) == 5 and max(arms["world"]["horizons"]) <= 3
    world = robohorizon.load_world(tmp_path / "world")
    played = pl.control.play_games(SIM, WorldPlayer(world, greedy=True), 4, ("robohorizon", 3, "test"))
    assert pl.control.returns_of(played).mean() == pytest.approx(arms["world"]["return"])
    seeing = robohorizon.load_world(tmp_path / "seeing", SIM)
    played = pl.control.play_games(SIM, WorldPlayer(seeing, greedy=True), 4, ("robohorizon", 3, "test"))
    assert pl.control.returns_of(played).mean() == pytest.approx(arms["views"]["return"])
    with pytest.raises(UserError, match="this world sees"):
        robohorizon.load_world(tmp_path / "seeing")
    with pytest.raises(UserError, match="no world"):
        robohorizon.load_world(tmp_path)


def test_patches_and_masks_by_hand():
    """Patches go row by row, a view behind the other; of one view 1 - masked of its patches are seen, one at least."""
    image = torch.arange(2 * 1 * 8 * 8).float().reshape(1, 2, 1, 8, 8)
    cut = patches_of(image)
    assert cut.shape == (1, 8, 16) and cut[0, 1, :5].tolist() == [4, 5, 6, 7, 12]  # the upper right one of view 0
    assert cut[0, 6, 0] == 64 + 32  # the lower left one of view 1
    for masked, kept in ((0.75, 1), (0.5, 2), (0.0, 4), (0.99, 1)):
        seen = visible_patches(3, 4, masked, pl.rng_of(("m",)), 64)
        assert seen.shape == (64, kept) and {*(seen // 4).ravel().tolist()} == {0, 1, 2}
        assert (seen // 4 == seen[:, :1] // 4).all() and all(len({*row}) == kept for row in seen.tolist())
    with pytest.raises(UserError, match="a multiple of 4"):
        MaskedViews(2, 1, 10)


def test_a_code_knows_what_was_seen_and_nothing_else():
    """Of a clip with one mask: pixels of hidden patches change no code, those of a seen one do, in all frames of the clip."""
    net = pl.control.draw_network(lambda: MaskedViews(2, 1, 8), ("k",))
    clip, seen = torch.rand(1, 3, 8, 16), torch.tensor([[5, 6]])
    code = net.encode(clip, seen)
    hidden, shown = clip.clone(), clip.clone()
    hidden[:, :, [0, 1, 2, 3, 4, 7]] += 1
    shown[:, 0, 5] += 1
    assert torch.equal(net.encode(hidden, seen), code)
    assert (net.encode(shown, seen) != code).any(-1).all()
    assert net.decode(code).shape == (1, 3, 8, 16)
    with torch.no_grad():
        net.reward.weight.zero_(), net.reward.bias.fill_(0.5)
        net.decoder[-1].weight.zero_(), net.decoder[-1].bias.zero_()
    ones = torch.ones(1, 3, 8, 16)  # 0.5 (8 16 1^2 + (0.5 - 2)^2)
    loss, error = net.loss(ones, torch.full((1, 3), 2.0), seen)
    assert loss.item() == pytest.approx(0.5 * (128 + 2.25)) and error.item() == pytest.approx(1)


def test_cameras_show_what_is_where():
    """A hand at the box is bright in the middle of its own camera, and of the box's; grip and lid change the picture."""
    spot = draw_spots(np.array([[[0.5, -0.5]]]), np.zeros((1, 2)), 1.0, 4)[0]
    assert np.unravel_index(spot.argmax(), (4, 4)) in ((0, 2), (0, 3), (1, 2), (1, 3))  # x to the right, y up
    obs = np.array([[0.55, -0.3, -0.5, -0.6, 1.0, 0.0, 0.8, -0.3], [0.55, -0.3, -0.5, -0.6, 0.0, 1.5, 0.33, 0.2]])
    sim = LidTask()
    assert isinstance(sim, HasCameras)
    plane, box, hand = np.moveaxis(sim.render(obs), 1, 0)
    middle = np.s_[:, 0, 5:7, 5:7]
    assert (box[middle] > 0).all() and np.allclose(box[middle], hand[middle])
    assert plane[0, 0].max() == pytest.approx(2 * plane[1, 0].max()) and (plane[0, 2] != plane[1, 2]).any()
    assert hand[0, 1].max() < 1e-3 < plane[0, 1].max()  # the item is far from the hand


def test_views_are_learned_and_a_front_camera_is_enough():
    """After 150 updates one view explains a half of what all of them show."""
    sim = LidTask()
    shown = pl.control.play_games(sim, pl.control.acting_script(sim), 12, ("d",))
    segments = segments_of(shown)
    assert all(a <= b for _, a, b in segments) and {i for i, _, _ in segments} == set(range(12))
    net, numbers = ViewLearner(updates=150).fit(sim, shown, shown["reward"][:, 0], segments, ("k",))
    assert numbers["views_explained"] > 0.5 > 0.2 < numbers["masked_explained"]
    assert not any(p.requires_grad for p in net.parameters())
    images = torch.from_numpy(sim.render(shown["obs"][:, 0, 0]).astype(np.float32))
    other = images.clone()
    other[:, 1:] = 0.5
    assert torch.equal(net.front_codes(images), net.front_codes(other))
    wrong = type("Wrong", (LidTask,), {"camera_shape": (3, 3, 8)})()
    with pytest.raises(UserError, match="camera_shape says"):
        ViewLearner(updates=1).fit(wrong, shown, shown["reward"][:, 0], segments, ("k",))


class Line:
    """A walk on a line of a user, of two actions; nothing is said of it, and there are no demonstrations."""

    agents, horizon, observation, actions = 1, 5, 1, 2

    def reset(self, rng, n):
        return np.zeros((n, 1))

    def observe(self, state):
        return state[..., None]

    def legal(self, state):
        return None

    def step(self, state, act_nA, rng):
        after = state + 2.0 * act_nA - 1
        return after, (after >= 4).astype(float), (after >= 4)[:, 0]


def test_a_simulator_a_task_and_two_models_of_ones_own(context):
    """Stages may ask for more than games of the start saw."""
    seen = []

    def plan(request):
        seen.append(request.messages[0].content)
        return {"stages": [{"name": "go", "done": op("less", 3.5, "number_0")}]}

    def reward(request):
        seen.append(request.messages[0].content)
        return {"rewards": [{"step": op("multiply", 0.1, "number_0"), "bonus": 9.0}]}

    made = replace(robohorizon.build(), **{**SMALL, "sim": Line(), "goal": "reach 4", "steps": 10_000})
    made = replace(made, asked=pl.Scripted(plan), writer=pl.Scripted(reward))
    result = asyncio.run(made.run(context(steps=2))).metrics
    assert len(seen) == 2 and "reach 4" in seen[0] and "1. go" in seen[1] and result["staged"] > 0
    assert list(result["arms"]) == ["none", "guide", "steps", "shuffled", "world"]
    assert result["arms"]["world"]["horizons"] == [3, 3]
    stubborn = replace(made, writer=pl.Scripted(lambda r: {"rewards": [{"step": op("neg", "number_0"), "bonus": 99}]}))
    with pytest.raises(Fault, match=r"refused 4 times.*lint=false"):
        asyncio.run(stubborn.run(context(steps=1)))


def test_what_never_moved_can_be_named():
    """0 to 8 goes 16 beyond; a constant x goes max(1, |x|) beyond, so that a stage may ask for its change."""
    after = np.stack([np.array([0.0, 8.0]), np.zeros(2), np.full(2, 5.0)], -1)[None, None]
    declared = words_of(Line(), {"obs": after, "next_obs": after}).declared
    bounds = {k: (q.low, q.high) for k, q in declared.items() if k.startswith("number")}
    assert bounds == {"number_0": (-16.0, 24.0), "number_1": (-1.0, 1.0), "number_2": (0.0, 10.0)}
    plan = {"stages": [{"name": "open", "done": op("less", 0.5, "number_1")}]}
    plan_form(declared, draw_states(declared, RNG)).model_validate(plan)


def test_what_cannot_be_is_said(context):
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(robohorizon.build(), **SMALL).run(context()))
    with pytest.raises(UserError, match="imagine is 1 or more"):
        robohorizon.build(imagine=0)
    with pytest.raises(UserError, match="gripper=claw: there is no such quantity"):
        asyncio.run(replace(robohorizon.embedded(), gripper="claw", **SMALL).run(context()))
    asked = []
    missing = replace(robohorizon.embedded(), demos="nowhere.jsonl", asked=pl.Scripted(asked.append), **SMALL)
    with pytest.raises(UserError, match="nowhere"):
        asyncio.run(missing.run(context()))
    assert not asked  # before anything is asked or trained
    made = replace(robohorizon.embedded(rewards="none"), **SMALL)
    assert list(asyncio.run(made.run(context())).metrics["arms"]) == ["none", "script", "guide"]
