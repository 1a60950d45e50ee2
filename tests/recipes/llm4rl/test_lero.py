"""LERO: candidates, the search over them, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import lero
from palaestra.recipes.llm4rl.lero.candidate import (
    Candidate,
    CandidateWords,
    EnhancedSimulator,
    hybrid_reward,
    random_candidate,
)
from palaestra.recipes.llm4rl.lero.program import CandidateSearch, CandidateTraining, best_of, describe_trial
from palaestra.recipes.llm4rl.lero.recorded import NEARER, WRITTEN, recorded

KEY = ("test",)
SIM = pl.control.Coverage()
LEARNER = pl.control.PPO(games=8, bootstrap=True)
SMALL = {"learner": LEARNER, "steps": 200, "trial": 200, "games": 8, "generations": 1, "population": 2}


def program(**settings):
    return replace(lero.embedded(), **{**SMALL, **settings})


@pytest.fixture(scope="module")
def games():
    return pl.control.play_games(SIM, LEARNER.start(SIM, KEY).act, 16, KEY)


@pytest.fixture(scope="module")
def words(games):
    return CandidateWords(step=pl.control.SimulatorWords.of(SIM, games), view=pl.control.ViewWords.of(SIM, games))


def test_a_hybrid_reward_is_the_teams_and_ones_own(words):
    """w_g = w_l = 0.5, a team that is paid -2.0, the own nearest landmark 0.5 away: -1.0 - 0.25."""
    ones = np.ones((1, 3, 1))
    paths = dict.fromkeys(words.step.declared, 0 * ones) | {"own_distance": 0.5 * ones}
    paths |= {"reward": np.array([[[-1.0], [-2.0], [-3.0]]]), "obs": ones, "next_obs": ones}
    candidate = Candidate(reward=[{"op": "neg", "args": ["own_distance"]}])
    assert hybrid_reward(candidate, words.step, 1, None)(paths).ravel() == pytest.approx([-1.25] * 3)
    assert hybrid_reward(Candidate(), words.step, 1, None)(paths) is paths["reward"]


def test_the_elites_are_those_of_the_highest_finite_return():
    assert best_of((0.3, 0.7, 0.5, -np.inf), 2) == [1, 2]
    assert best_of((np.nan, 1.0, 1.0), 2) == [1, 2] and best_of((-np.inf,), 1) == []


def test_features_are_computed_from_what_the_agent_sees(words):
    """Landmark 0 is 0.3 to the right and nobody is nearer, so NEARER * x is 0.3; another agent 0.1 from it takes it."""
    obs = np.zeros((2, 1, SIM.observation))
    obs[..., 4] = 0.3
    obs[..., 14] = 1.0  # landmark 0 is seen
    obs[1, 0, 10], obs[1, 0, 17] = 0.4, 1.0
    feature = {"op": "multiply", "args": [NEARER[0], "landmark_0_x"]}
    sim = EnhancedSimulator(SIM, Candidate(features=[feature, "landmark_0_rival"]), words.view)
    assert sim.observation == SIM.observation + 2
    assert sim.features(obs)[:, 0] == pytest.approx(np.array([[0.3, 9.0], [0.0, 0.1]]))


def test_what_is_hidden_changes_no_feature(words):
    rng = pl.rng_of(KEY)
    state = SIM.reset(rng, 64)
    far = np.linalg.norm(state.goal_nLd[:, :1] - state.at_nAd, axis=-1)[:, 0] > 0.8  # agent 0 does not see landmark 0
    moved = state.goal_nLd.copy()
    moved[far, 0] = 50.0
    sim = EnhancedSimulator(SIM, Candidate.model_validate(WRITTEN[3]), words.view)
    one, other = (sim.observe(s)[far, 0] for s in (state, replace(state, goal_nLd=moved)))
    assert far.sum() > 8 and (one == other).all()


def test_shuffled_guidance_is_that_of_others(words, games):
    candidate = Candidate.model_validate(WRITTEN[3])
    state = SIM.reset(pl.rng_of(KEY), 4)
    plain, mixed = (EnhancedSimulator(SIM, candidate, words.view, s).observe(state) for s in (False, True))
    O = SIM.observation
    assert (mixed[..., :O] == plain[..., :O]).all() and (mixed[1:, :, O:] == plain[:-1, :, O:]).all()
    only = candidate.model_copy(update={"team_weight": 0.0})
    own, other = (hybrid_reward(only, words.step, O, k)(games) for k in (None, KEY))
    assert sorted(own.ravel()) == pytest.approx(sorted(other.ravel())) and (own != other).mean() > 0.9


def test_rewards_are_exchanged_among_steps_that_were_played(words, games):
    """Steps after the end of a game have rewards that nobody sees; those of others would be lost there."""
    alive = games["alive"].copy()
    alive[::2, 3:] = False
    only = Candidate.model_validate(WRITTEN[3]).model_copy(update={"team_weight": 0.0})
    own, other = (hybrid_reward(only, words.step, SIM.observation, k)({**games, "alive": alive}) for k in (None, KEY))
    played = np.broadcast_to(alive[:, None], own.shape)
    assert sorted(own[played]) == pytest.approx(sorted(other[played])) and (own != other)[played].mean() > 0.9
    assert (own == other)[~played].all()


def test_a_candidate_with_a_fault_is_refused_with_the_reason(words, games):
    form = words.form(games, "both")
    good = {"reward": ["contribution"], "features": ["landmark_0_rival"]}
    assert form.model_validate(good).team_weight == 0.5
    for wrong, why in (
        ({"reward": ["the goal"]}, "no quantity 'the goal'"),
        ({"features": ["contribution"]}, "no quantity 'contribution'"),  # agents do not see it
        ({"features": []}, "at least 1"),
        ({"team_weight": 3}, "less than or equal to 1"),
    ):
        with pytest.raises(ValueError, match=why):
            form.model_validate(good | wrong)
    with pytest.raises(ValueError):
        words.form(games, "features").model_validate(good)
    assert not random_candidate(words, words.form(games, "features"), "features", pl.rng_of(KEY)).reward
    for record in WRITTEN:
        form.model_validate(record)


def searching(ctx, words, games, monkeypatch, answer, returns, **settings):
    """A search in which a candidate's training gives what `returns` says of it, and the keys that it was given."""
    keys = []

    async def learn(self, candidate, steps, key, *rest):
        keys.append(key)
        value = returns(candidate)
        curve = [{"reward": value}] * 2
        return {"return": value, "learned_from": -value, "agreement": -1.0, "env_steps": 10, "curve": curve}

    monkeypatch.setattr(CandidateTraining, "learn", learn)
    made = program(asked=pl.Scripted(answer), **settings)
    search = CandidateSearch(made, ctx, words, games, KEY)
    return search, asyncio.run(search.run()), keys


def test_candidates_are_ranked_by_what_is_paid_and_the_best_are_shown(context, words, games, monkeypatch):
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"own_weight": [0.1, 0.9, 0.3, 0.4][request.seed], "reward": ["touching"], "features": ["x"]}

    search, best, keys = searching(context(), words, games, monkeypatch, answer, lambda c: c.own_weight, generations=2)
    assert best.own_weight == 0.9 and search.env_steps == 50 and search.asks == 4
    assert keys == [(*KEY, 0)] * 2 + [(*KEY, 1)] * 3  # the elite again, with the seed of its generation
    assert "was tried" not in seen[0] and '"own_weight": 0.9' in seen[2] and '"own_weight": 0.1' not in seen[2]
    assert "pays for something else" in seen[2] and "Nothing was learned" in seen[2]


@pytest.mark.parametrize(
    "parts, told, hidden",
    [("reward", "own_distance", "landmark_0_rival"), ("features", "landmark_0_rival", "own_distance")],
)
def test_a_model_is_told_only_what_the_parts_it_writes_may_read(context, words, games, parts, told, hidden):
    question = CandidateSearch(program(parts=parts), context(), words, games, KEY).question([])
    assert f"- {told}," in question and f"- {hidden}," not in question


def test_a_random_candidate_stands_for_one_with_faults_and_for_a_repetition(context, words, games, monkeypatch):
    same = {"reward": ["touching"], "features": ["x"]}
    answer = lambda request: same if request.seed < 2 else "I cannot"
    ctx, lines = context(), []
    ctx.say = lines.append
    search, best, _ = searching(
        ctx, words, games, monkeypatch, answer, lambda c: float(c.reward != ["touching"]), population=3
    )
    assert any("there is no JSON in it" in line for line in lines)
    assert (search.repeated, search.invalid) == (1, 1) and best.reward != ["touching"] and best.features


def test_an_endpoint_that_fails_is_no_bad_candidate(context, words, games, monkeypatch):
    def answer(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        searching(context(), words, games, monkeypatch, answer, lambda c: 0.0)


def test_a_run_that_was_killed_ends_with_the_same_and_asks_nothing_again(context, tmp_path):
    asked, made = [], program(generations=2)

    def answer(request):
        asked.append(request.seed)
        return recorded(request)

    run = lambda **settings: asyncio.run(replace(made, **settings).run(context(out=tmp_path, seed=3)))
    first = run(asked=pl.Scripted(answer)).metrics
    for part in ("arm-guide", "trial-1-2", "written-1-1"):
        (tmp_path / "kept" / f"{part}.json").unlink()
    again = run(asked=pl.Scripted(answer)).metrics
    assert again == first and asked == [0, 1, 2, 3] and json.dumps(first)
    lines = (tmp_path / "transcript.jsonl").read_text().splitlines()
    assert len(lines) == 4 and json.loads(lines[0])["request"]
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "shuffled", "oracle"]
    whole = arms["guide"]["env_steps"] + first["search_steps"]
    assert arms["none"]["env_steps"] == whole == arms["oracle"]["env_steps"] == 200 + 5 * 200
    assert arms["none"]["relabelled"] == 0 < arms["guide"]["relabelled"]
    assert arms["none"]["learned_from"] == pytest.approx(arms["none"]["return"])
    report = (tmp_path / "arms.md").read_text().splitlines()
    assert len(report) == 10 and report[0].endswith("before you conclude.") and report[-1].startswith("script: 0 calls")
    # the policy in the folder is the one that was measured
    policy, sim = pl.control.load_policy(tmp_path / "policy"), lero.load_enhanced(SIM, tmp_path / "policy")
    played = pl.control.play_games(sim, policy.act, 8, ("lero", 3, "final", "test"))
    assert pl.control.returns_of(played).mean() == pytest.approx(arms["guide"]["return"])
    # and its replies make the same run where the model is not to be had
    transcript, model = pl.services.client_from_text(f"transcript:{tmp_path}/transcript.jsonl", "asked")
    assert not model
    other = asyncio.run(replace(made, asked=transcript).run(context(seed=3))).metrics
    assert other["return"] == first["return"]


class Walk:
    """A team of a user: two agents on a line, paid for where the first one is; nothing is said of it."""

    agents, horizon, observation, actions = 2, 4, 2, 2

    def reset(self, rng, n):
        return rng.normal(size=(n, 2))

    def observe(self, state):
        return np.stack([state, state[:, ::-1]], -1)

    def legal(self, state):
        return None

    def step(self, state, act_nA, rng):
        after = state + act_nA * 2.0 - 1
        return after, np.repeat(after[:, :1], 2, 1), np.zeros(len(state), bool)


def test_a_simulator_and_a_model_of_ones_own(context):
    """What it does not say is read off its observations; without anything hidden there is no oracle."""
    seen, ctx = [], context(steps=2)

    def answer(request):
        seen.append(request.messages[0].content)
        return {"reward": ["change_0"], "features": [{"op": "less", "args": ["number_0", "number_1"]}]}

    made = program(sim=Walk(), asked=pl.Scripted(answer), population=1, steps=10_000, trial=10_000)
    found = asyncio.run(made.run(ctx)).metrics
    assert list(found["arms"]) == ["none", "guide", "shuffled"] and "- change_1, -1 to 1" in seen[0]
    assert found["search_steps"] == 64 and found["arms"]["none"]["env_steps"] == 128  # --steps 2 of 8 games of 4
    made = program(sim=Walk(), parts="none", steps=32)
    found = asyncio.run(made.run(context())).metrics
    assert list(found["arms"]) == ["none", "guide"] and found["gain"] == 0 == found["arms"]["guide"]["relabelled"]


def test_what_cannot_be_is_said(context, tmp_path):
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(program(sim=Walk()), asked=None).run(context()))
    with pytest.raises(UserError, match="population is 1 or more"):
        lero.build(population=0)
    with pytest.raises(UserError, match="no candidate of lero"):
        lero.load_enhanced(SIM, tmp_path)


def test_a_trial_is_described_by_its_curve():
    result = {"return": 2.0, "agreement": 0.9, "curve": [{"reward": float(x)} for x in range(100)]}
    text = describe_trial(Candidate(reward=["x"]), result)
    assert "0, 14, 28, 42, 56, 70, 84, 99" in text and "0.90 over games" in text and "Nothing" not in text
