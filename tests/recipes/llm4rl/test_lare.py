"""LaRe's program: what is asked, what the decoder sees, and what each arm learns from."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.llm4rl.lare import EXPERIMENT
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import lare
from palaestra.recipes.llm4rl.lare import LaRe, build, embedded, latent_rewards
from palaestra.recipes.llm4rl.lare.navigation import CANDIDATES, MERGED, QUANTITIES, recorded

KEY = ("test",)
SMALL = {"learner": pl.control.PPO(games=8), "steps": 400, "asked": pl.Scripted(recorded)}


@pytest.fixture(scope="module")
def games():
    return pl.control.play_games(
        pl.control.SimpleSpread(), pl.control.PPO().start(pl.control.SimpleSpread(), KEY).act, 16, KEY
    )


def asked(ctx, program=None):
    program = program or LaRe(asked=pl.Scripted(recorded))
    games = program.sample(KEY)
    return asyncio.run(program.ask(ctx, pl.control.SimulatorWords.of(program.sim, games), games))


WORDS = pl.control.SimulatorWords(about="", declared=QUANTITIES, compute=pl.control.SimpleSpread().quantities)


def test_five_candidates_are_asked_for_and_one_that_merges_them(context):
    seen = []

    def answer(request):
        seen.append(request)
        return recorded(request)

    source = pl.Scripted(answer)
    ctx = context()
    program = LaRe(asked=source)
    found = asked(ctx, program)
    assert [(r.temperature, r.seed) for r in seen] == [(1.0, n) for n in range(5)] + [(0.3, 0)]
    assert len(found) == len(MERGED) and ctx.client(program.source).meter.calls == 6
    told = seen[-1].messages[0].content
    assert lare.MERGE in told and told.count('{"expressions":[') == 5
    assert "- touching, 0 to 2: number of agents" in seen[0].messages[0].content


def test_what_is_wrong_goes_back_and_after_five_answers_it_is_a_fault(context):
    heard = []

    def answer(request):
        heard.append(request.messages[-1].content)
        return {"expressions": ["the reward"]}

    with pytest.raises(Fault, match="in 5 replies"):
        asked(context(), LaRe(asked=pl.Scripted(answer)))
    assert len(heard) == 5 and "no quantity 'the reward'" in heard[1]


@pytest.mark.parametrize("reply", [*CANDIDATES, MERGED])
def test_the_recorded_factors_are_without_fault(reply, games):
    model = pl.control.checked_program(QUANTITIES, pl.control.SimpleSpread().quantities(games))
    found = model.model_validate_json(json.dumps({"expressions": reply})).expressions
    values = pl.control.columns_of(found, pl.control.SimpleSpread().quantities(games), QUANTITIES)
    assert values.shape == (16, 3, 25, len(reply)) and np.isfinite(values).all()


def test_quantities_stay_within_what_is_declared(games):
    """The bounds do not cut what games of the start hold."""
    for name, values in pl.control.SimpleSpread().quantities(games).items():
        low, high = QUANTITIES[name].low, QUANTITIES[name].high
        assert ((values >= low - 1e-9) & (values <= high + 1e-9)).mean() > 0.99, name


class Walk:
    """A simulator of a user's: one agent on a line, which says nothing of itself."""

    agents, horizon, observation, actions = 1, 4, 2, 2

    def reset(self, rng, n):
        return np.stack([rng.normal(size=n), np.zeros(n)], 1)

    def observe(self, state):
        return state[:, None]

    def legal(self, state):
        return None

    def step(self, state, act_nA, rng):
        after = state + np.stack([act_nA[:, 0] * 2.0 - 1, np.ones(len(state))], 1)
        return after, after[:, :1], np.zeros(len(state), bool)


def test_a_simulator_and_a_model_of_ones_own(context):
    """What it does not say is read off its observations, and factors over them are what is learned from."""
    seen, ctx = [], context()

    def answer(request):
        seen.append(request.messages[0].content)
        return {"expressions": ["number_0", "change_0"]}

    program = LaRe("factors", pl.Scripted(answer), sim=Walk(), learner=pl.control.PPO(games=8), steps=64)
    found = asyncio.run(program.run(ctx)).metrics
    assert (found["factors"], found["calls"], found["env_steps"]) == (2, 6, 64) and "- change_1, 1 to 1" in seen[0]
    assert asyncio.run(program.run(context(steps=1))).metrics["env_steps"] == 32  # one iteration of 8 games of 4 steps


def test_the_decoder_divides_what_a_game_paid():
    """Games of 2 steps with phi (1, 0) and (0, 1) pay 1, of (1, 1) and (0, 0) too: each factor is worth 1, by fit."""
    rng = np.random.default_rng(0)
    phi = rng.integers(0, 2, (256, 1, 4, 2)).astype(float)
    paths = {"reward": (phi @ [2.0, -1.0]), "alive": np.ones((256, 4), bool), "next_obs": phi}
    decomposer = pl.control.Decomposition().start(lambda p: p["next_obs"], KEY)
    for _ in range(40):
        given = decomposer(paths)
    rows = [given[(phi == x).all(-1)].mean() for x in ([1, 0], [0, 1], [1, 1])]
    assert rows == pytest.approx([2, -1, 1], abs=0.35)


def test_nobody_to_ask_is_refused(context, tmp_path):
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(build(steps=0).run(context()))
    (tmp_path / "own.py").write_text("class Half:\n    agents = 1\n")
    with pytest.raises(UserError, match="no simulator: it has no horizon"):
        build(sim=f"{tmp_path}/own.py:Half")


def test_shuffled_factors_are_those_of_other_steps_of_the_same_games(context, games):
    factors = asked(context())
    plain, shuffled = (latent_rewards(r, factors, WORDS, KEY)(games) for r in ("factors", "shuffled"))
    rows = lambda x: sorted(map(tuple, x.reshape(-1, x.shape[-1]).tolist()))
    assert rows(plain) == rows(shuffled)  # the same marginal
    assert not (plain == shuffled).all(-1).any()
    again = latent_rewards("shuffled", factors, WORDS, KEY)(games)
    assert (shuffled == again).all()


def test_constant_factors_say_nothing_and_the_states_are_what_agents_see(context, games):
    factors = asked(context())
    assert np.ptp(latent_rewards("constant", factors, WORDS, KEY)(games)) == 0
    assert latent_rewards("state", (), WORDS, KEY)(games) is games["next_obs"]


def test_what_each_arm_learns_from(games):
    of = lambda reward: LaRe(reward, **SMALL).shaping(reward, (), WORDS, KEY)
    assert of("dense") is pl.control.as_paid and of("episodic") is pl.control.at_the_end
    assert of("state").settings.sampled == 0 and of("sampled state").settings.sampled == 16
    total = pl.control.returns_of(games)
    assert pl.control.at_the_end(games).sum((1, 2)) == pytest.approx(total)


@pytest.mark.parametrize("reward", ["dense", "episodic", "state", "sampled state", "factors", "shuffled", "constant"])
def test_an_arm_runs_and_tells_its_numbers(reward, context):
    run = lambda seed: asyncio.run(LaRe(reward, **SMALL).run(context(seed=seed))).metrics
    found = run(0)
    assert found["env_steps"] == 400 and found["return"] < 0 and json.dumps(found)
    assert (found["factors"], found["calls"]) == ((8, 6) if reward in ("factors", "shuffled", "constant") else (0, 0))
    assert -1 <= found["correlation"] <= 1
    assert reward != "dense" or found["correlation"] == pytest.approx(1)
    if reward == "shuffled":
        assert found == run(0)  # law 6
        assert found["return"] != run(1)["return"]


def test_four_arms_take_equal_steps_and_a_killed_run_ends_with_the_same(context, tmp_path):
    """Each arm has the numbers of its own run; after a kill the factors come from the transcript, and only the arm
    that was lost is learned again.
    """
    asked_for, said = [], []

    def answer(request):
        asked_for.append(request)
        return recorded(request)

    made = LaRe(**(SMALL | {"asked": pl.Scripted(answer)}))

    def run():
        ctx = context(out=tmp_path)
        ctx.say = said.append
        return asyncio.run(made.run(ctx)).metrics

    first = run()
    assert first["calls"] == len(asked_for) == 6 and list(first["arms"]) == ["none", "guide", "shuffled", "oracle"]
    assert {r["env_steps"] for r in first["arms"].values()} == {400}
    for name, credit in lare.ARMS.items():
        alone = asyncio.run(LaRe(credit, **SMALL).run(context())).metrics
        assert first["arms"][name]["return"] == alone["return"]
        assert first["arms"][name]["correlation"] == alone["correlation"]
    oracle = first["arms"]["oracle"]
    assert oracle["learned_from"] == pytest.approx(oracle["return"])
    (tmp_path / "kept" / "arm-shuffled.json").unlink()
    again = run()
    assert again == {**first, "calls": 0} and len(asked_for) == 6  # nothing was asked again
    assert "| shuffled |" in (tmp_path / "arms.md").read_text() and "arm shuffled" in said
    policy = pl.control.load_policy(tmp_path / "policy")
    test = pl.control.mean_return(made.sim, policy.act, 256, ("lare", 0, "test"))
    assert test == pytest.approx(first["return"])


def test_the_arms_differ_in_their_reward_alone():
    arms = EXPERIMENT.every_arm
    assert set(arms) == {"start", "dense", "episodic", "state", "sampled state", "factors", "shuffled", "constant"}
    assert all(arm == embedded(credit=name, steps=150_000) for name, arm in arms.items() if name != "start")
    assert arms["start"].steps == 0 and not EXPERIMENT.lacks()
    assert all(len(EXPERIMENT.settings_of(a)) == 3 for a in arms if a != "start")


def test_a_start_is_not_trained(context):
    ctx = context()
    found = asyncio.run(embedded(credit="episodic", steps=0).run(ctx)).metrics
    policy = pl.control.PPO().start(pl.control.SimpleSpread(), ("lare", ctx.seed, "learn"))
    assert found["env_steps"] == 0
    assert found["return"] == pl.control.mean_return(
        pl.control.SimpleSpread(), policy.act, 256, ("lare", ctx.seed, "test")
    )
