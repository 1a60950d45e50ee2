"""The dialogue manager: MAML and the semi-MDP by hand, clients, two levels, and a language model's words."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import mi_dialogue
from palaestra.recipes.llm4rl.mi_dialogue.agent import (
    adapt_agent,
    batches_of,
    decisions,
    draw_agent,
    inner_step,
    meta_gradient,
)
from palaestra.recipes.llm4rl.mi_dialogue.clients import (
    ACTS,
    CLIENT_ACTS,
    ClientSimulator,
    client_table,
    family_by_name,
)
from palaestra.recipes.llm4rl.mi_dialogue.program import mixed_turns, play_states
from palaestra.recipes.llm4rl.mi_dialogue.words import (
    INTERVIEW,
    REFERRAL,
    TEMPLATES,
    choose_acts,
    write_dialogue,
    written_replies,
)

KEY = ("test",)
LEARNER = pl.control.PPO(games=2, gamma=0.5, lr=3e-3)
SIM = ClientSimulator()


def parabola(c):
    return lambda theta: 0.5 * (theta["x"] - c) ** 2


@pytest.mark.parametrize("order, gradient, after", [("second", -1.62, 0.81), ("first", -1.8, 0.9)])
def test_maml_of_the_catalogue(order, gradient, after):
    """L_c = (theta - c)^2 / 2, c = 1, 3, theta 0, inner rate 0.1, outer 0.5."""
    theta = {"x": torch.zeros((), requires_grad=True), "unused": torch.ones((), requires_grad=True)}
    tasks = [(parabola(c), parabola(c)) for c in (1.0, 3.0)]
    assert [inner_step(theta, t[0], 0.1, "first")["x"].item() for t in tasks] == pytest.approx([0.1, 0.3])
    found = meta_gradient(theta, tasks, 0.1, order)
    assert found["x"].item() == pytest.approx(gradient)
    assert -0.5 * found["x"].item() == pytest.approx(after) and found["unused"].item() == 0
    assert theta["x"].item() == 0


def agent_of(options=3, every=5):
    return draw_agent(SIM, options, every, LEARNER, KEY)


def test_the_master_switches_at_0_5_and_10_of_12():
    agent, rng = agent_of(), pl.rng_of(KEY)
    act, held, calls = agent.player(), [], []
    plain = agent.master.act
    agent.master.act = lambda *a, **k: calls.append(len(held)) or plain(*a, **k)
    obs = SIM.observe(SIM.reset(rng, 6))
    for _ in range(12):
        held.append(act(obs, None, rng)["option"].tolist())
    assert calls == [0, 5, 10]
    assert held[0] == held[4] and held[5] == held[9] and held[10] == held[11]
    assert len({str(x) for x in held}) > 1


def test_a_turn_is_its_options():
    """What was played is what the option's own policy says: logp of the batch's columns is the noted one."""
    agent = agent_of()
    paths = pl.control.play_games(SIM, agent.player(), 8, KEY)
    batches = batches_of(agent, paths, LEARNER)
    for level, module in (("options", agent.options), ("master", agent.master)):
        columns = batches[level].columns
        said, alive = module(columns), columns["trained"] > 0
        assert torch.allclose(said["logp"][alive], columns["behaviour_logp"][alive], atol=1e-5), level
        assert torch.allclose(said["value"][alive], columns["policy_value"][alive], atol=1e-5), level
    assert len(np.unique(paths["option"])) == 3


def test_decisions_by_hand():
    """H 2, gamma .5, rewards 1, 2, 4, 8, 16 of which the game's end cuts the last: 1 + 1, 4 + 4, 0."""
    shape = (1, 1, 5)
    reward = np.array([[[1.0, 2.0, 4.0, 8.0, 16.0]]])
    alive, over = np.array([[1, 1, 1, 1, 0]], bool), np.array([[0, 0, 0, 1, 0]], bool)
    paths = {
        "obs": np.arange(10.0).reshape(1, 1, 5, 2),
        "reward": reward,
        "alive": alive,
        "over": over,
        "option": np.array([[[2, 2, 0, 0, 1]]]),
        "option_logp": np.full(shape, -1.0),
        "option_value": np.zeros(shape),
    }
    found = decisions(paths, 2, 0.5, [1])
    assert found["reward"].tolist() == [[[2.0, 8.0, 0.0]]] and found["act"].tolist() == [[[2, 0, 1]]]
    assert found["alive"].tolist() == [[True, True, False]] and found["over"].tolist() == [[False, True, False]]
    assert found["obs"].ravel().tolist() == [1.0, 5.0, 9.0]


def test_adapting_moves_a_copy_and_rate_0_nothing():
    agent = agent_of()
    paths = pl.control.play_games(SIM, agent.player(), 8, KEY)
    before = {k: p.clone() for k, p in agent.options.named_parameters()}
    still, moved = (adapt_agent(agent, paths, LEARNER, rate) for rate in (0.0, 0.5))
    same = lambda one: all(torch.equal(p, before[k]) for k, p in one.options.named_parameters())
    assert same(still) and not same(moved)
    assert all(torch.equal(p, before[k]) for k, p in agent.options.named_parameters())
    assert any(not torch.equal(p, q) for p, q in zip(agent.master.parameters(), moved.master.parameters(), strict=True))


def test_acts_of_clients():
    """An act that works: .75 the phase's own; one that comes too early .7 sustain talk, and never the phase's."""
    for kind in ("works", "neutral", "early"):
        assert client_table(kind).sum(1) == pytest.approx(np.ones(4))
    assert client_table("works")[2, CLIENT_ACTS.index("new perspective")] == pytest.approx(0.75)
    assert client_table("early")[0].tolist() == pytest.approx([0, 0, 0, 0, 0.7, 0, 0.3, 0])


def step_all(phase, act, n=20_000, works=(0, 4, 6, 7)):
    sim, rng = ClientSimulator(works), pl.rng_of(("clients", phase, act))
    state = replace(sim.reset(rng, n), phase=np.full(n, phase))
    return sim, *sim.step(state, np.full((n, 1), act), rng)


def test_phases_move_with_what_works():
    _, state, paid, _ = step_all(0, 0)
    up = state.phase == 1
    assert up.mean() == pytest.approx(0.6, abs=0.02)
    # a phase pays 1, a turn -.05; a fact, a question or a short answer nothing
    assert paid[up] == pytest.approx(0.95) and paid[~up] == pytest.approx(-0.05)
    _, state, paid, _ = step_all(1, 7)  # a plan comes too early
    back, sustain = state.phase == 0, state.heard[:, -1] == CLIENT_ACTS.index("sustain talk")
    assert back.mean() == pytest.approx(0.15, abs=0.01) and not (state.phase > 1).any()
    assert paid[back & sustain] == pytest.approx(-0.05 - 0.5 - 1)
    assert (step_all(0, 7)[1].phase == 0).all()  # there is no phase before the first
    _, state, paid, over = step_all(3, 7)
    assert over.mean() == pytest.approx(0.6, abs=0.02)
    change = over & (state.heard[:, -1] == CLIENT_ACTS.index("change talk"))
    assert paid[change] == pytest.approx(-0.05 + 0.5 + 1 + 2)


def test_what_an_agent_sees():
    sim, state, _, _ = step_all(1, 4, n=50)
    obs = sim.observe(state)[:, 0]
    assert obs.shape[1] == sim.observation == 9 + 27 + 4
    feeling = state.heard[:, -1] == CLIENT_ACTS.index("feeling")
    assert (obs[:, 4] == 1).all() and obs[:, :9].sum() == 50 and feeling.any()
    assert obs[feeling][:, list(sim.overview)] == pytest.approx(np.tile([1, 0, 1, 0], (feeling.sum(), 1)) / 16)
    # neither the hidden phase nor the kind
    other = replace(state, phase=0 * state.phase)
    assert (ClientSimulator((1, 1, 1, 1)).observe(other) == sim.observe(state)).all()


def test_a_model_chooses_acts(context):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return {"act": "plan"} if "Client: " in asked[-1] else {"act": "hypnosis"}

    paid, unread, acts = asyncio.run(
        choose_acts(context(), pl.Scripted(answer), ClientSimulator(horizon=3), 2, KEY, INTERVIEW)
    )
    assert acts == [[0, 7, 7]] * 2
    assert unread == 2 and paid.shape == (2,)  # the first act of both dialogues is no act
    assert "(nothing yet)" in asked[0] and "Counsellor: open question\nClient: " in asked[-1]
    assert not any("phase" in x or "resistant" in x for x in asked)

    def fail(request):
        raise Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        asyncio.run(choose_acts(context(), pl.Scripted(fail), SIM, 2, KEY, INTERVIEW))


def write(context, answer, said=(0, 4), heard=(0, 1)):
    return asyncio.run(write_dialogue(context(), pl.Scripted(answer), said, heard, INTERVIEW))


def test_words_realise_acts(context):
    turns, written = write(context, written_replies)
    assert written == 2 and [t["act"] for t in turns] == ["open question", "fact", "summary", "feeling"]
    assert turns[2]["text"] == TEMPLATES["summary"]
    tries = []

    def otherwise(request):
        text = request.messages[0].content
        if "Its dialogue act" in text:
            tries.append(request.seed)
            return {"utterance": "Well."}
        return {"act": "reflection"}

    turns, written = write(context, otherwise)
    assert written == 0 and tries == [0, 1, 2, 0, 1, 2]
    assert turns[0]["text"] == TEMPLATES["open question"]
    assert write(context, lambda r: "no JSON")[1] == 0
    turns, written = write(context, lambda r: {"utterance": "Do you think of suicide?"})
    assert turns == [{"speaker": "Counsellor", "act": "referral", "text": REFERRAL}] and written == 0


def program(**settings):
    made = mi_dialogue.embedded(games=4, talks=1, steps=30)
    return replace(made, **{"learner": replace(LEARNER, games=2), **settings})


def test_a_killed_run_ends_with_the_same_and_arms_take_equal_steps(context, tmp_path):
    run = lambda: asyncio.run(program().run(context(out=tmp_path, seed=2))).metrics
    first = run()
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first
    arms = first["arms"]
    learned = ["none", "hierarchy", "meta alone", "guide", "shuffled"]
    assert list(arms) == [*learned, "language model", "other turns", "oracle"]
    steps = [arms[name]["env_steps"] for name in learned]
    # shuffled is the guide's agent, which meets the kind that it was not adapted to
    assert arms["shuffled"]["after_0"] == arms["guide"]["after_0"]
    assert arms["shuffled"]["after_4"] != arms["guide"]["after_4"]
    assert arms["oracle"]["return"] > max(x["return"] for n, x in arms.items() if n != "oracle")
    assert min(steps) >= 30 and max(steps) <= 30 + 4 * 2 * 16 and arms["guide"]["realised"] == 1
    assert first["adapted"] > 0 and first["return"] == first["after_1"]
    lines = [json.loads(x) for x in (tmp_path / "dialogues.jsonl").read_text().splitlines()]
    assert [x["client"] for x in lines] == ["hesitant", "doubtful"] and all(x["simulation"] for x in lines)
    master = pl.control.load_policy(tmp_path / "policy" / "master")
    option = pl.control.load_policy(tmp_path / "policy" / "option-3")
    manager = mi_dialogue.load_manager(tmp_path / "policy")
    turns = [("open question", "fact"), ("plan", "sustain talk")]
    for T in (0, 1, 2):  # the master decides at the first turn, and not again until the fifth
        seen = mi_dialogue.observe_dialogue(turns[:T])
        said = manager(seen)
        assert said["option"] == master.act(seen[:1, 36:], None, None, greedy=True)["act"][0]
        now = pl.control.load_policy(tmp_path / "policy" / f"option-{said['option']}")
        assert said["act"] == now.act(seen[-1:], None, None, greedy=True)["act"][0]
        assert said["name"] == ACTS[said["act"]]
    for bad in ([], np.zeros((2, 39)), "text", [[None] * 40]):
        with pytest.raises(UserError, match="one row of 40 numbers"):
            manager(bad)
    with pytest.raises(UserError, match="holds no dialogue manager"):
        mi_dialogue.load_manager(tmp_path)
    assert (master.observation, master.actions, option.observation, option.actions) == (4, 4, 40, len(ACTS))


def test_the_oracle_and_the_order_of_turns():
    """What works in every phase goes up by 0.6 a turn: a client of 200 turns ends, as does hardly one after neutral acts.
    Acts in another order are the same acts, repeated where they are too few.
    """
    sim = ClientSimulator(works=(2, 2, 3, 5), horizon=40)
    ends = play_states(sim, lambda state, t: sim.best_acts(state), 50, KEY)
    neutral = play_states(sim, lambda state, t: np.zeros((50, 1), int), 50, KEY)
    assert ends.min() > 4 and ends.mean() > neutral.mean() + 3
    state = replace_phase(sim, [0, 1, 2, 3, 4])
    assert sim.best_acts(state)[:, 0].tolist() == [2, 2, 3, 5, 5]
    mixed = mixed_turns([[1, 2, 3], [4]], 5, KEY)
    assert sorted(mixed[0, :3]) == [1, 2, 3] and (mixed[0, 3:] == mixed[0, :2]).all() and set(mixed[1]) == {4}


def replace_phase(sim, phases):
    return replace(sim.reset(np.random.default_rng(0), len(phases)), phase=np.array(phases))


def test_the_adapted_agent_speaks(context, monkeypatch):
    """Who writes dialogues are the agents after one round, one for each held-out kind."""
    made, spoke = program(), []
    play = pl.control.play_games

    def watched(sim, act, n, key):
        if "speak" in key:
            spoke.append([c.cell_contents for c in act.__closure__])
        return play(sim, act, n, key)

    monkeypatch.setattr(pl.control, "play_games", watched)
    asyncio.run(made.run(context(seed=2)))
    agent, _ = made.learn(context(seed=2), made.options, True)
    _, personal = made.measure(context(seed=2), agent)
    assert len(spoke) == len(personal) == 2
    for cells, one in zip(spoke, personal, strict=True):
        heard = next(c for c in cells if hasattr(c, "options"))
        same = lambda a, b: all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
        assert same(heard.options, one.options) and not same(heard.options, agent.options)


def test_what_a_manager_sees_of_a_dialogue():
    """The same as in play: last acts, turn and counts in units of the horizon."""
    path = pl.control.play_games(SIM, agent_of().player(), 1, KEY)
    T = int(path["alive"].sum())
    names = [
        (ACTS[int(a)], CLIENT_ACTS[int(u)])
        for a, u in zip(path["act"][0, 0, :T], path["client_act"][0, 0, :T], strict=True)
    ]
    assert mi_dialogue.observe_dialogue(names[:-1]) == pytest.approx(path["obs"][0, 0, :T])
    with pytest.raises(UserError, match="turn 1 is"):
        mi_dialogue.observe_dialogue([("hypnosis", "fact")])


def test_without_adaptation_nothing_moves(context):
    found = asyncio.run(program(inner=0.0, asked=None).run(context())).metrics
    assert found["adapted"] == 0 and found["after_0"] == found["after_4"]
    assert "language model" not in found["arms"] and "realised" not in found["arms"]["guide"]


def test_it_learns_what_works(context):
    """With one kind of clients, a little practice is paid better than none."""
    kind = mi_dialogue.program.ClientFamily((SIM,), (SIM,))
    made = program(clients=kind, learner=pl.control.PPO(games=32, gamma=0.95, lr=1e-2), steps=5000)
    _, lines = made.learn(context(), 1, False)
    assert np.mean([x["reward"] for x in lines[-2:]]) > lines[0]["reward"] + 1


OWN = """
import numpy as np

class Bandit:
    agents, horizon, observation, actions = 1, 3, 2, 2
    def __init__(self, best=0):
        self.best = best
    def reset(self, rng, n):
        return np.zeros(n)
    def observe(self, state):
        return np.ones((len(state), 1, 2))
    def legal(self, state):
        return None
    def step(self, state, act, rng):
        return state + 1, (act == self.best).astype(float), np.zeros(len(state), bool)

class Users:
    training, held_out = [Bandit(0), Bandit(1)], [Bandit(1)]

class Works(Bandit):
    works = (0, 1)

class Theirs:
    training, held_out = [Works], [Works(1)]

def needs(kind):
    return Users

class Broken:
    training, held_out = [Bandit], [3]

class Odd:
    training, held_out = [Bandit(0)], []

class Mixed:
    other = Bandit()
    other.actions = 3
    training, held_out = [Bandit()], [other]
"""


def test_simulators_of_ones_own(context, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    users = family_by_name(f"{tmp_path}/own.py:Users")
    found = asyncio.run(program(clients=users, games=100, inner=1.0).run(context())).metrics
    # acts of another simulator have no words, and the whole observation is the master's
    assert "language model" not in found["arms"] and "phase" not in found["arms"]["guide"]
    assert 0 <= found["return"] <= 3 and found["adapted"] > 0
    # `works` of somebody else is not ours; a class is made
    theirs = family_by_name(f"{tmp_path}/own.py:Theirs")
    found = asyncio.run(replace(program(), clients=theirs).run(context())).metrics
    assert "language model" not in found["arms"] and theirs.training[0].horizon == 3
    alone = family_by_name(f"{tmp_path}/own.py:Bandit")
    assert alone.training == alone.held_out and len(alone.training) == 1
    for name, why in (
        ("Odd", "one simulator each"),
        ("needs", "without arguments"),
        ("Broken", "held_out 0"),
        ("Mixed", "differ in"),
        ("np", "is no simulator|no simulator"),
    ):
        with pytest.raises(UserError, match=why):
            family_by_name(f"{tmp_path}/own.py:{name}")
    pytest.importorskip("gymnasium")
    with pytest.raises(UserError, match="discrete"):
        family_by_name("gymnasium:Pendulum-v1")


def test_settings_that_cannot_be():
    with pytest.raises(UserError, match="every"):
        mi_dialogue.build(every=0)
    with pytest.raises(UserError, match="games"):
        mi_dialogue.build(games=1)
    with pytest.raises(UserError, match="leave it false"):
        replace(mi_dialogue.build(), learner=replace(LEARNER, bootstrap=True))
