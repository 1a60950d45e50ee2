"""MRLMN: matching, what is distilled, the network of drones, rewards by group, and the arms of a run."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.llm4rl.mrlmn import build, embedded
from palaestra.recipes.llm4rl.mrlmn.network import FREE, MOVES, DroneNetwork
from palaestra.recipes.llm4rl.mrlmn.placed import PlacedAgents
from palaestra.recipes.llm4rl.mrlmn.policy import (
    TARGET,
    DistilTargets,
    GroupedActorCritic,
    action_towards,
    actions_towards,
    clean_targets,
    match_targets,
)
from palaestra.recipes.llm4rl.mrlmn.program import (
    Constrains,
    HasGroups,
    LearnNetwork,
    NetworkArm,
    assign_targets,
    chat_guide,
    coverage_of,
    distillation_columns,
    legal_of,
    policy_costs,
)
from palaestra.recipes.llm4rl.mrlmn.radio import RadioLinks, shares_of_hops
from palaestra.recipes.llm4rl.mrlmn.written import written_targets
from palaestra.types import Batch

from tests.recipes.objectives.helpers import near

pytest.importorskip("scipy")
PI = np.array([(0.7, 0.2, 0.1), (0.6, 0.3, 0.1), (0.2, 0.2, 0.6)])


# ---- matching


def test_the_catalogue_s_match():
    """Each agent's likeliest target would clash; the Hungarian method gives (0, 1, 2), of cost 2.071473 in sum, 0.690491 on
    average; the order (1, 0, 2) would cost 2.631089."""
    cost = -np.log(PI)
    assert PI.argmax(1).tolist() == [0, 0, 2] and match_targets(cost).tolist() == [0, 1, 2]
    assert cost[range(3), match_targets(cost)].sum() == pytest.approx(2.071473, abs=1e-6)
    assert cost[range(3), [1, 0, 2]].sum() == pytest.approx(2.631089, abs=1e-6)
    logp = torch.log(torch.tensor(PI))[range(3), [0, 1, 2]][:, None].float()
    ones = torch.ones(3, 1)
    batch = Batch(columns={"trained": ones, "distil": ones}, unit_B=torch.arange(3), n_tokens=3, n_rows=3, n_units=3)
    assert DistilTargets()({"target_logp": logp}, batch)[0].item() == pytest.approx(0.690491, abs=1e-6)
    unmatched = torch.tensor([[1.0], [0.0], [1.0]])  # an agent without a target has no part in the mean
    columns = {**batch.columns, "distil": unmatched}
    loss, _ = DistilTargets()({"target_logp": logp}, Batch(**{**vars_of(batch), "columns": columns}))
    assert loss.item() == pytest.approx(-np.log([0.7, 0.6]).mean(), abs=1e-6)


def vars_of(batch):
    return {k: getattr(batch, k) for k in ("unit_B", "n_tokens", "n_rows", "n_units", "totals")}


def test_matches_that_are_not_square():
    few = match_targets(np.array([[5.0], [1.0], [9.0]]))
    assert few.tolist() == [-1, 0, -1]
    many = match_targets(np.array([[5.0, 1.0, 2.0]]))
    assert many.tolist() == [1]
    assert match_targets(np.zeros((2, 0))).tolist() == [-1, -1]
    tie = match_targets(np.ones((3, 3)))
    assert sorted(tie.tolist()) == [0, 1, 2]


def test_targets_are_no_list_by_agent():
    """The same targets in another order are matched alike; by order they are not."""
    at = np.array([(0.0, 0.0), (9.0, 9.0), (0.0, 5.0)])
    targets = np.array([(9.0, 8.0), (1.0, 0.0), (np.nan, np.nan)])
    there = assign_targets(at, targets, "hungarian")
    assert there[:2].tolist() == [[1, 0], [9, 8]] and np.isnan(there[2]).all()
    assert np.array_equal(assign_targets(at, targets[::-1], "hungarian"), there, equal_nan=True)
    assert assign_targets(at, targets, "order")[:2].tolist() == [[9, 8], [1, 0]]
    assert np.isnan(assign_targets(at, np.full((3, 2), np.nan), "hungarian")).all()


def test_targets_are_matched_by_what_the_policy_would_do():
    """Of the catalogue's probabilities of three ways: (0, 1, 2), though by distance agents stand beside others."""
    table = torch.log(torch.tensor(PI)).float()
    policy = type("Policy", (), {"actor": staticmethod(lambda obs: table[obs[..., 0].long()])})()
    sim = type("Sim", (), {"moves": np.array([(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)])})()
    target = np.array([(5.0, 0.0), (0.0, 5.0), (-5.0, 0.0), (np.nan, np.nan)])
    obs = np.arange(3.0).reshape(1, 3, 1, 1)
    cost = policy_costs(policy, obs, np.broadcast_to(target, (1, 3, 1, 4, 2)), sim)[0, :, 0]
    assert cost[:, :3] == pytest.approx(-np.log(PI), abs=1e-5) and (cost[:, 3] > 90).all()
    beside = target[[1, 2, 0]]
    assert np.array_equal(assign_targets(beside, target, "hungarian", cost), target[:3])
    assert np.array_equal(assign_targets(beside, target, "hungarian"), beside)


def test_targets_outside_and_twice_are_dropped():
    given = [(1, 1), (1, 1), (-1, 3), (13, 3), (float("nan"), 2), (2, 2), (3, 3)]
    assert clean_targets(given, np.zeros(2), np.full(2, 12.0), 2).tolist() == [[1, 1], [2, 2]]
    assert clean_targets([], np.zeros(2), np.ones(2), 2).shape == (0, 2)


def test_actions_towards_a_target():
    delta = np.array([(3.0, 1.0), (0.0, -2.0), (0.2, 0.0), (np.nan, 1.0)])
    assert action_towards(delta, MOVES).tolist() == [2, 3, 0, -1]
    assert actions_towards(delta, MOVES).astype(int).tolist() == [
        [0, 0, 1, 0, 1],
        [0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]


# ---- policies


def test_a_group_learns_with_its_own_network():
    policy = pl.control.draw_network(lambda: GroupedActorCritic(4, 5, 2, 1, 8), ("k",))
    obs = torch.tensor([[[0.3, 1.0, 0.0, 2.0]], [[0.3, 0.0, 1.0, 2.0]]])
    out = policy({"obs": obs, "act": torch.zeros(2, 1)})
    first, second = policy.actor.towers
    logp = torch.log_softmax(torch.stack([first(obs[0]), second(obs[1])]), -1)[..., 0]
    assert torch.allclose(out["logp"], logp)
    out["logp"][0].sum().backward()
    assert any(p.grad.abs().sum() > 0 for p in first.parameters())
    assert all(p.grad is None or not p.grad.any() for p in second.parameters())


def test_what_is_distilled_is_the_probability_of_the_way():
    """log (p_2 + p_4) where both come nearer; an agent without a target has loss 0."""
    policy = pl.control.draw_network(lambda: GroupedActorCritic(4, 5, 1, 1, 8), ("k",))
    obs, near_K = torch.randn(1, 2, 4), torch.tensor([[[0.0, 0, 1, 0, 1], [0, 0, 0, 0, 0]]])
    out = policy({"obs": obs, "act": torch.zeros(1, 2), TARGET: near_K})["target_logp"][0]
    p = torch.softmax(policy.actor(obs[0, 0]), -1)
    assert out[0].item() == near((p[2] + p[4]).log().item()) and out[1].item() == near(0)


def test_actions_that_are_not_legal_are_not_distilled():
    """Of logits all alike, with actions 0 to 2 legal: the way, action 2, has a third of the probability."""
    policy = pl.control.draw_network(lambda: GroupedActorCritic(4, 5, 1, 1, 8), ("k",))
    legal = torch.tensor([[[1.0, 1, 1, 0, 0]]])
    columns = {"obs": torch.zeros(1, 1, 4), "act": torch.zeros(1, 1), "legal": legal}
    out = policy({**columns, TARGET: torch.tensor([[[0.0, 0, 1, 0, 0]]])})
    p = torch.softmax(policy.actor(torch.zeros(4))[:3], -1)
    assert out["target_logp"].item() == pytest.approx(p[2].log().item(), abs=1e-5)
    act, may = np.array([[0, 4]]), np.array([[[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]])
    assert legal_of(act, may).tolist() == [[1, 4]]


# ---- the network


def network(at, users, **settings):
    """Links of drones at places, with base stations at (0, 3) and (0, 9)."""
    sim = DroneNetwork(agents=len(at), users=len(users), groups=1, **settings)
    return sim, sim.links(np.array([at], float), np.array([users], float))


def test_traffic_goes_over_hops():
    """A chain 0 - 1 - 2 from the base station: users of drone 2 are passed on by 1, those of both by 0; drone 3 has no way."""
    sim, links = network([(3, 3), (6, 3), (9, 3), (12, 12)], [(10, 3), (9, 4), (6, 4), (12, 12)])
    assert links.hops_nA.tolist() == [[1, 2, 3, FREE]] and links.next_nA[0, :3].tolist() == [-1, 0, 1]
    assert links.serves_nA.tolist() == [[0, 1, 2, 0]] and links.served_nU.tolist() == [[True, True, True, False]]
    assert sim.relays(links).tolist() == [[3, 2, 0, 0]]
    _, apart = network([(3, 3), (7, 3), (9, 3)], [(9, 3)])  # a hop of four cells is too long
    assert apart.hops_nA.tolist() == [[1, FREE, FREE]] and not apart.served_nU.any()


def test_ratios_and_rates_by_hand():
    """5 dB at the range, a quarter of that at twice the range in free space; a drone beside adds half of what it sends to the
    noise; a user has what the narrowest hop leaves it."""
    radio = RadioLinks(threshold_db=5.0, exponent=2.0, interference=0.5)
    assert radio.snr(np.array([3.5, 7.0, 0.1]), 3.5) == pytest.approx([3.162278, 0.790569, 154.951605], abs=1e-5)
    snr = radio.snr(np.array([[[1.0, 2.0]]]), 2.0)
    assert radio.sinr(snr, np.ones((1, 2), bool))[0, 0] == pytest.approx([4.900593, 0.431737], abs=1e-5)
    assert radio.sinr(snr, np.array([[True, False]]))[0, 0] == pytest.approx([12.649111, 0.0], abs=1e-5)
    share = shares_of_hops(*(np.array([x]) for x in ([3.0, 1.0, 15.0], [1, 2, 3], [-1, 0, 1], [4.0, 1.0, 1.0])))
    assert share.tolist() == [[0.5, 0.5, 0.5]]
    free = np.array([[3.0, 1.0]]), np.array([[1, FREE]]), np.array([[-1, -1]]), np.array([[1.0, 0.0]])
    assert shares_of_hops(*free)[0, 0] == 2


def test_users_share_a_drone_a_hop_and_the_air():
    """At its range a link has log2(1 + 10^0.5) = 2.057372; two users of one drone at distance 2 have half of it each, of the
    hop as well. Another drone that transmits beside them costs both their link; without interference it costs nothing."""
    _, alone = network([(3.5, 3)], [(5.5, 3), (3.5, 5)])
    assert alone.snr_nA[0, 0] == pytest.approx(10**0.5) and alone.rate_nU[0] == pytest.approx([1.028686] * 2, abs=1e-5)
    pair = [(3.5, 3), (3.5, 0)], [(5.5, 3), (3.5, 5)]
    assert not network(*pair)[1].served_nU.any() and not network(*pair)[1].rate_nU.any()
    assert network(*pair, radio=RadioLinks(interference=0.0))[1].served_nU.all()


def test_users_move_and_rates_are_paid():
    """In 20 steps by the drift of their layout; (1 - quality) covered + quality min(1, rate / demand)."""
    stay = lambda obs, legal, rng: {"act": np.zeros(obs.shape[:2], int)}
    sim = DroneNetwork(wander=0.0, side=40)
    state = sim.reset(pl.rng_of(("m",)), 3)
    after = state
    for _ in range(sim.horizon):
        after, _, _ = sim.step(after, np.zeros((3, 6), int), pl.rng_of(("m",)))
    moved = (after.user_nUd - state.user_nUd)[(state.user_nUd > 2).all(-1) & (state.user_nUd < 38).all(-1)]
    assert np.linalg.norm(moved, axis=-1) == pytest.approx(np.ones(len(moved)))
    plain = pl.control.play_games(DroneNetwork(quality=0.0), stay, 4, ("p",))
    assert np.array_equal(plain["reward"], plain["covered"])
    rich = pl.control.play_games(DroneNetwork(quality=1.0, demand=1e-9), stay, 4, ("p",))
    assert np.allclose(rich["reward"], rich["covered"])  # any rate is enough
    poor = pl.control.play_games(DroneNetwork(quality=1.0, demand=1e3), stay, 4, ("p",))
    assert np.allclose(poor["reward"] * 1e3, poor["rate"])


def test_rewards_by_group():
    """R = 1, a1 0.5 of 0.4 users, a2 0.2 of 0.5 passed on: 1.3; without groups R alone."""
    program = LearnNetwork(sim=DroneNetwork(groups=2), serve=(9.0, 0.5), relay=(9.0, 0.2))
    obs = np.zeros((1, 1, 1, program.sim.observation))
    obs[..., 3:5] = (0, 1)
    full = lambda x: np.full((1, 1, 1), x)
    paths = {"obs": obs, "reward": full(1.0), "serves": full(0.4), "relays": full(0.5)}
    arm = NetworkArm(program=program, ctx=None, key=(), name="grouped")
    assert arm.shaping(paths).item() == near(1.3)
    alone = NetworkArm(program=program, ctx=None, key=(), name="none", grouped=False)
    assert alone.shaping(paths).item() == 1


def test_key_drones_stay_near_a_base_station():
    """A drone of group 0 beyond a hop is moved back, and that step is not learned from."""
    sim = DroneNetwork()
    state = sim.reset(pl.rng_of(("s",)), 8)
    away = np.linalg.norm(state.at_nAd[:, :, None] - sim.base_Sd, axis=-1).min(-1)
    forced = sim.forced(sim.observe(state))
    assert ((forced >= 0) == ((away > sim.hop) & (state.group_nA == 0))).all()
    arm = NetworkArm(program=LearnNetwork(), ctx=None, key=(), name="grouped")
    paths = pl.control.play_games(sim, arm.acting(arm.start(("k",))), 8, ("p",))
    free = paths["free"]
    assert 0 < (~free).sum() < free.size / 4
    back = sim.forced(paths["obs"])
    assert (paths["act"][~free] == back[~free]).all() and (back[free] == -1).all()
    columns = distillation_columns(np.ones((*free.shape, 5), bool), paths)
    assert columns["distil"].sum() == free.sum()


def test_good_targets_are_good():
    """Drones that fly to the targets of the plan serve three of four users at the end, of the written rule more than half;
    those of another layout serve fewer."""
    sim, rows = DroneNetwork(), {}
    for name, rule in (
        ("plan", sim.plan),
        ("other", lambda x: sim.plan((x + 1) % sim.layouts)),
        ("written", written(sim)),
    ):
        program = LearnNetwork(sim=sim, games=32)
        guide = pl.control.ComputedGuide(lambda x, rule=rule: np.array([pad(rule(row)) for row in x]))
        arm = NetworkArm(program=program, ctx=None, key=("f",), name=name, guide=guide, flown=True)
        rows[name] = asyncio.run(arm.run())["covered_last"]
    assert rows["plan"] > 0.75 and rows["written"] > 0.5 and rows["other"] < rows["written"]


def pad(at):
    full = np.full((6, 2), np.nan)
    full[: len(at)] = at
    return full.ravel()


def written(sim):
    def rule(row):
        request = pl.ChatRequest(messages=(pl.Message(role="user", content=sim.spell(row)),))
        return np.array(written_targets(request)["targets"])

    return rule


def test_a_model_s_targets_are_read():
    sim = DroneNetwork()
    guide = chat_guide(pl.Scripted(lambda request: '{"targets": [[1, 2], [50, 2], [1, 2], [3, 4]]}'), sim)
    said = asyncio.run(guide(None, np.zeros((1, 1)), ("k",))).value_NG[0]
    assert said[:4].tolist() == [1, 2, 3, 4] and np.isnan(said[4:]).all()
    none = asyncio.run(chat_guide(pl.Scripted(lambda request: "no idea"), sim)(None, np.zeros((1, 1)), ("k",)))
    assert none.fallbacks == 1 and np.isnan(none.value_NG).all()


def test_steps_to_most_users():
    covered = np.zeros((2, 1, 4))
    covered[0, 0] = (0, 0.8, 0.5, 1)
    numbers = coverage_of({"covered": covered})
    assert numbers["steps_to_80"] == 3 and numbers["covered_last"] == 0.5


# ---- runs


def test_arms_of_a_run(tmp_path):
    small = {"learner.games": 4, "learner.epochs": 1, "games": 4, "steps": 160}
    run = pl.train("mrlmn", out=tmp_path / "run", quiet=True, set=small)
    text = (run.folder / "arms.md").read_text()
    for arm in (
        "random",
        "none",
        "grouped",
        "guide",
        "by policy",
        "unmatched",
        "shuffled",
        "flown",
        "oracle",
        "oracle flown",
    ):
        assert f"| {arm} |" in text
    summary = json.loads((run.folder / "summary.json").read_text())
    assert "distilled" in json.dumps(summary)
    policy = pl.control.load_policy(run.folder / "policy" / "group_2")
    assert policy.observation == DroneNetwork().observation


def test_a_killed_run_ends_with_the_same_and_arms_take_equal_steps(context, tmp_path):
    """A model that says something else at every call is heard once: what is lost is learned again from its transcript."""
    asked = []

    def answer(request):
        asked.append(request)
        return {"targets": [[len(asked) % 9, 2], [3, len(asked) % 7]]}

    made = LearnNetwork(pl.Scripted(answer), learner=pl.control.PPO(games=4, epochs=1), games=4, steps=160, calls=6)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=3))).metrics
    first, calls = run(), len(asked)
    for arm in ("guide", "unmatched", "flown"):
        (tmp_path / "kept" / f"arm-{arm}.json").unlink()
    assert run() == first and len(asked) == calls > 0 and json.dumps(first)
    learned = [n for n in first["arms"] if n not in ("random", "flown", "oracle flown")]
    assert {first["arms"][n]["env_steps"] for n in learned} == {160} and len(learned) == 7
    assert 0 < first["arms"]["guide"]["asked"] <= 6
    assert len((tmp_path / "transcript.jsonl").read_text().splitlines()) == calls


class OnePlace(DroneNetwork):
    """Games of one place of users, as of a simulator that always begins alike."""

    def situations(self, paths):
        return super().situations(paths) * 0


def test_a_simulator_with_one_situation():
    """There is nothing to shuffle, and the arm learns without targets; the others have them."""
    said = []
    ctx = type("Ctx", (), {"budget": {}, "out": None, "seed": 0, "say": lambda self, x: said.append(x)})()
    learner = pl.control.PPO(games=2, epochs=1, minibatches=1)
    program = LearnNetwork(sim=OnePlace(layouts=1), steps=80, games=2, learner=learner)
    guide = pl.control.ComputedGuide(lambda x: np.tile([3.0, 3, 6, 3] + [np.nan] * 8, (len(x), 1)))
    shuffled = NetworkArm(program=program, ctx=ctx, key=("o",), name="shuffled", guide=pl.control.ShuffledGuide(guide))
    assert asyncio.run(shuffled.run())["distilled"] == 0 and "nothing was distilled" in said[0]
    assert asyncio.run(NetworkArm(program=program, ctx=ctx, key=("o",), name="x", guide=guide).run())["distilled"] > 0


def test_what_a_placed_simulator_says_itself_holds():
    """Groups, constraint and bounds; a simulator without them has none."""
    moves = tuple(map(tuple, MOVES / 12))
    placed = PlacedAgents(DroneNetwork(), (1, 2), moves)
    assert placed.groups == 3 and placed.group_at == 3 and (placed.bounds[1] < 2).all()
    assert isinstance(placed, HasGroups) and isinstance(placed, Constrains) and LearnNetwork(sim=placed).groups == 3
    bounded = type("Bounded", (pl.control.SimpleSpread,), {"bounds": (np.full(2, -9.0), np.full(2, 9.0))})()
    assert PlacedAgents(bounded, (2, 3), moves).bounds[1].tolist() == [9, 9]
    bare = PlacedAgents(pl.control.SimpleSpread(), (2, 3), moves)
    assert not isinstance(bare, HasGroups) and not isinstance(bare, Constrains)


def test_what_is_refused():
    with pytest.raises(UserError, match="has no moves, bounds, place"):
        LearnNetwork(sim=pl.control.SimpleSpread())
    with pytest.raises(UserError, match="weight for each of 3 groups"):
        LearnNetwork(serve=(1.0, 2.0))
    with pytest.raises(UserError, match="until"):
        build(until=2.0)
    assert isinstance(embedded(), LearnNetwork)


def test_a_simulator_of_the_user_s_own(tmp_path, monkeypatch):
    """Cooperative navigation, whose places are numbers 2 and 3 of an observation."""
    (tmp_path / "own.py").write_text(
        "from palaestra.control import SimpleSpread\n\n\ndef make():\n    return SimpleSpread()\n"
    )
    monkeypatch.chdir(tmp_path)
    moves = "0 0,-.1 0,.1 0,0 -.1,0 .1"
    program = build(
        sim="own.py:make",
        place="2,3",
        moves=moves,
        asked=pl.Scripted(lambda request: '{"targets": [[0, 0], [0.5, 0.5]]}'),
    )
    seen = pl.control.play_games(program.sim, lambda o, l, r: {"act": np.zeros(o.shape[:2], int)}, 2, ("k",))
    assert program.sim.place(seen["obs"]).shape == (2, 3, 25, 2) and "agent 2: at (" in program.sim.spell(
        program.sim.situations(seen)[0]
    )
    guide = pl.control.ComputedGuide(lambda x: np.tile([0.0, 0, 0.5, 0.5, np.nan, np.nan], (len(x), 1)))
    arm = NetworkArm(program=program, ctx=None, key=("f",), name="flown", guide=guide, flown=True)
    assert asyncio.run(arm.run())["env_steps"] == 0
    for place, given, match in (
        ("2", moves, "two numbers"),
        ("2,99", moves, "from 0 to 13"),
        ("2,3", "0 0,1", "a pair for each action"),
        ("2,3", "0 0,1 0", "2 pairs"),
    ):
        with pytest.raises(UserError, match=match):
            build(sim="own.py:make", place=place, moves=given)
