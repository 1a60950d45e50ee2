"""Cache-efficient posterior sampling: the posterior, the cache that adapts, and the arms."""

import asyncio
from dataclasses import replace
from typing import ClassVar

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.q import pessimism
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import cache_posterior
from palaestra.recipes.llm4rl.cache_posterior import cache as cached
from palaestra.recipes.llm4rl.cache_posterior.cache import PriorCache, TextKeys, number_key
from palaestra.recipes.llm4rl.cache_posterior.grid import PHRASES, TAKE, UNLOCK, PhraseGrid, PhraseState
from palaestra.recipes.llm4rl.cache_posterior.learner import PriorAdvisor, acting
from palaestra.recipes.llm4rl.cache_posterior.program import PosteriorSetting, log_prior, prior_reply
from palaestra.recipes.llm4rl.cache_posterior.recorded import read_transitions
from palaestra.recipes.llm4rl.cache_posterior.symbols import SymbolicActions
from palaestra.recipes.llm4rl.cache_posterior.written import written_prior

LEARNER = pl.control.DoubleQ(games=2, updates=1, batch=16)


def program(**settings):
    return replace(cache_posterior.embedded(), **{"learner": LEARNER, "steps": 100, "games": 4, **settings})


def unit(*numbers):
    """A key that begins with these numbers."""
    x = np.zeros((1, 4))
    x[0, : len(numbers)] = numbers
    return x


P, CACHED, Q = np.array([0.6, 0.3, 0.1]), np.array([0.5, 0.4, 0.1]), np.array([1.0, 2.0, 0.0])


def test_the_posterior_by_hand():
    """The reference values of the catalogue, and the bound of the divergence."""
    own, other = (cached.posterior(np.log(p), Q, 1.0) for p in (P, CACHED))
    assert own == pytest.approx([0.413146, 0.561523, 0.025331], abs=1e-6)
    assert other == pytest.approx([0.307863, 0.669486, 0.022651], abs=1e-6)
    assert cached.divergence(own, other) == pytest.approx(0.025610, abs=1e-6)
    assert cached.divergence_bound(np.log(P), np.log(CACHED)) == pytest.approx(2 * 0.287682, abs=1e-6)
    assert cached.posterior(np.log(P), Q, 1e-3).argmax() == 1  # cold: the best value
    assert cached.posterior(np.log(P), Q, 1e9) == pytest.approx(P)  # hot: the prior
    assert cached.temperature(1.0, 0.2, 0.75) == pytest.approx(0.4)


def test_actions_follow_the_posterior_and_drawn_ones_only_the_prior():
    values = lambda obs: torch.tensor(Q).expand(*obs.shape[:-1], 3)
    advisor = lambda obs: np.broadcast_to(np.log(P), (*obs.shape[:-1], 3))
    obs, rng = np.zeros((10_000, 1, 2)), np.random.default_rng(0)
    share = lambda act: np.bincount(act["act"].ravel(), minlength=3) / 10_000
    exact = cached.posterior(np.log(P), Q, 1.0)
    assert share(acting(values, 1.0, advisor)(obs, None, rng)) == pytest.approx(exact, abs=0.02)
    # one action by the prior leaves nothing to choose; of many the choice is the posterior
    assert share(acting(values, 1.0, advisor, draws=1)(obs, None, rng)) == pytest.approx(P, abs=0.02)
    assert share(acting(values, 1.0, advisor, draws=64)(obs, None, rng)) == pytest.approx(exact, abs=0.03)
    assert set(acting(values, 1.0, advisor, greedy=True)(obs, None, rng)["act"].ravel()) == {1}
    legal = np.broadcast_to([True, False, True], (10_000, 1, 3))
    assert share(acting(values, 1.0, advisor)(obs, legal, rng))[1] == 0


def test_a_prior_of_weights_leaves_no_action_out():
    assert np.exp(log_prior(np.array([3.0, 1.0, 0.0, 0.0]))) == pytest.approx([0.7, 0.25, 0.025, 0.025])
    assert np.exp(log_prior(np.zeros(4))) == pytest.approx(0.25)


def test_a_cosine_below_delta_is_a_miss():
    """(1, 0, 0) and (0.8, 0.6, 0) have the cosine 0.8."""
    for delta, entry in ((0.85, -1), (0.75, 0)):
        cache = PriorCache(delta, 0.0, 4)
        cache.put(unit(1.0), np.array([[7.0]]))
        at, own = cache.look_up(unit(0.8, 0.6))
        assert (at[0], own[0]) == (entry, False)
        assert cache.wanting(np.concatenate([unit(0.8, 0.6), unit(0.8, 0.599)]), np.random.default_rng(0)) == (
            [0] if entry < 0 else []
        )
    assert cache.look_up(unit(1.0))[1][0]
    assert cache.look_up(unit(1.0, 0, 0, 5.0))[0][0] == -1  # the last number has to be equal


def test_refreshed_states_take_the_entrys_place_and_nobody_asks_twice_about_the_same():
    cache = PriorCache(0.75, 1.0, 4)
    cache.put(unit(1.0), np.array([[7.0]]))
    rows = np.concatenate([unit(1.0), unit(0.8, 0.6)])
    assert cache.wanting(rows, np.random.default_rng(0)) == [1]
    cache.put(rows[1:], np.array([[9.0]]))
    assert len(cache) == 1 and cache.refreshed == 1 and cache.value_MK[0, 0] == 9.0
    assert cache.look_up(rows)[1].tolist() == [False, True]


def test_what_was_used_longest_ago_goes_and_its_return_is_counted():
    cache, one, two, three = PriorCache(1.0, 0.0, 2), unit(1.0), unit(0.0, 1.0), unit(0.0, 0.0, 1.0)
    for key in (one, two):
        cache.put(key, np.array([[1.0]]))
    cache.look_up(one)
    cache.put(three, np.array([[1.0]]))
    assert cache.evicted == 1 and cache.look_up(two)[0][0] == -1 and cache.look_up(one)[0][0] >= 0
    assert cache.returned == 0
    cache.put(two, np.array([[1.0]]))
    assert cache.returned == 1


def test_the_settings_follow_the_surrogate_gradient():
    """g = (0.3 - 0.1) / 0.4 + 0.1 - 0.5 (1 - 0.75) = 0.475; a quarter of the questions had been evicted."""
    cache = PriorCache(0.8, 0.05, 100, adapts=True)
    cache.adapt(0.3, 0.1, 0.1, 0.75, 0.25)
    assert (cache.delta, cache.refresh, cache.capacity) == (pytest.approx(0.8475), pytest.approx(0.0975), 125)
    cache.adapt(0.0, 0.0, 0.0, 0.0, 0.0)  # equal errors and no hits: cheaper
    assert cache.delta == pytest.approx(0.7975)
    static = PriorCache(0.8, 0.05, 100)
    static.adapt(0.3, 0.1, 0.1, 0.75, 0.25)
    assert (static.delta, static.refresh, static.capacity) == (0.8, 0.05, 100)


def test_texts_with_other_numbers_never_match_and_what_all_share_does_not_count():
    place = "The key lies at row {}, column {}. {}"
    sounds = ("A bird sings.", "It is quiet.")
    keys = TextKeys.of([place.format(i, j, s) for i in range(3) for j in range(3) for s in sounds])
    a, b, c = (keys(place.format(*x)) for x in ((1, 2, sounds[0]), (2, 1, sounds[0]), (1, 2, sounds[1])))
    [found] = cached.cosines(a[None], np.stack([a, b, c]))
    assert found[0] == pytest.approx(1.0) and found[1] == -1 and 0.2 < found[2] < 0.95
    assert cached.cosines(keys("")[None], keys("")[None])[0, 0] == pytest.approx(1.0)
    # a word that every text has weighs nothing
    keys = TextKeys.of(["wall", "wall"])
    assert cached.cosines(keys("wall")[None], keys("wall floor")[None])[0, 0] < 0.1


def test_states_that_differ_in_one_number_are_different_ones():
    """Off by a sixth, and by a sixth and a third, of the range: cos 30 degrees, and that times cos 60 degrees. What
    is half the range off in one of fifty numbers is nothing like it."""
    a, b, c = (number_key(np.array(x)) for x in ([0.0, 0.5], [1 / 6, 0.5], [1 / 6, 1 / 6]))
    assert cached.closeness(a[None], np.stack([a, b, c]))[0] == pytest.approx([1.0, 3**0.5 / 2, 3**0.5 / 4])
    many, other = np.full(50, 0.25), np.full(50, 0.25)
    other[7] = 0.75
    assert cached.closeness(number_key(many)[None], number_key(other)[None])[0, 0] == pytest.approx(0)
    # and what is told in the same words is the same
    cache = PriorCache(1.0, 0.0, 9, likeness=cached.closeness)
    cache.put(number_key(np.array([0.5, 0.3]))[None], np.array([[1.0]]))
    near, far = number_key(np.array([0.51, 0.3333])), number_key(np.array([0.56, 0.3333]))
    assert cache.look_up(np.stack([near, far]))[0].tolist() == [0, -1]


def test_a_number_in_a_text_has_a_sign():
    keys = TextKeys.of(["The angle is 3.", "The angle is -3."])
    up, down = keys("The angle is 3."), keys("The angle is -3.")
    assert cached.cosines(up[None], down[None])[0, 0] == -1


def state(cell, key, door):
    return PhraseState(cell_n=np.array([cell]), key_n=np.array([key]), door_n=np.array([door]), sound_n=np.array([0]))


def test_the_game_by_hand():
    """3 by 3 cells; the key at row 0, column 1, the door at row 0, column 0."""
    sim, rng = PhraseGrid(), np.random.default_rng(0)
    act = lambda phrase: np.array([[PHRASES.index(phrase)]])
    at, paid, over = sim.step(state(4, 1, 0), act("walk north"), rng)
    assert at.cell_n[0] == 1 and paid[0, 0] == -0.01 and not over[0]
    assert sim.step(at, act("grab the key" if "grab the key" in PHRASES else "polish the key"), rng)[0].key_n[0] == 1
    taken = sim.step(at, np.array([[TAKE]]), rng)[0]
    assert taken.key_n[0] == -1 and "You carry the key." in sim.spell_view(sim.observe(taken)[0, 0])
    assert not sim.step(taken, np.array([[UNLOCK]]), rng)[2][0]  # not at the door
    there = sim.step(taken, act("run west"), rng)[0]
    _, paid, over = sim.step(there, np.array([[UNLOCK]]), rng)
    assert over[0] and paid[0, 0] == pytest.approx(0.99)
    assert not sim.step(state(0, 1, 0), np.array([[UNLOCK]]), rng)[2][0]  # without the key
    assert sim.step(state(0, 1, 8), act("go west"), rng)[0].cell_n[0] == 0  # a wall
    best = sim.best_actions(sim.observe(state(4, 1, 0))[:, 0])[0]
    assert {p for p, b in zip(PHRASES, best, strict=True) if b} == {f"{s} north" for s in ("go", "walk", "run", "head")}


def test_the_oracle_is_never_slower_than_the_shortest_way():
    sim = PhraseGrid()
    pick = lambda obs, legal, rng: {"act": sim.best_actions(obs).argmax(-1)}
    played = pl.control.play_games(sim, pick, 64, ("best",))
    assert played["over"].any(1).all() and played["alive"].sum(1).max() <= 4 + 4 + 2


def test_the_written_rule_reads_the_question():
    sim, found = PhraseGrid(), []
    words = lambda s: sim.spell_view(sim.observe(s)[0, 0])
    for s in (state(4, 1, 0), state(1, 1, 0), state(0, -1, 0)):
        request = pl.ChatRequest(messages=pl.services.question_messages(words(s)))
        found.append({k for k, w in written_prior(request)["weights"].items() if w})
    assert {"go north", "run north"} <= found[0] and not any("west" in k for k in found[0])
    assert "take the key" in found[1] and "unlock the door" in found[2]


def test_answers_name_actions_and_weigh_one_at_least():
    form = prior_reply(("Left", "right"))
    assert form.model_validate({"weights": {" left ": 2}}).model_dump() == {"weights": {"Left": 2.0}}
    for weights, why in (({"up": 1}, "'up' is no action; they are Left, right"), ({"left": 0}, "one is above 0"),
                         ({}, "one is above 0"), ({"left": 2, "right": -1}, "0 or more")):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            form.model_validate({"weights": weights})


def test_pessimism_with_a_prior_by_hand():
    """log(0.6 e + 0.3 e^2 + 0.1) - 2."""
    q = torch.tensor(Q)[None]
    found = pessimism(q, torch.tensor([2.0]), None, torch.tensor(np.log(P))[None])
    assert float(found) == pytest.approx(np.log(0.6 * np.e + 0.3 * np.e**2 + 0.1) - 2)


def test_an_advisor_asks_once_and_is_even_where_nothing_is_known():
    calls = []

    def compute(rows):
        calls.extend(rows[:, 0].tolist())
        return np.log(np.tile(P, (len(rows), 1)))

    spell = lambda row: f"place {row[0]:.0f}"
    keys = TextKeys.of([spell([i]) for i in range(9)])
    make = lambda limit=0: PriorAdvisor(
        pl.control.ComputedGuide(compute),
        PriorCache(1.0, 0.0, 99),
        lambda row: keys(spell(row)),
        3,
        ("a",),
        calls=limit,
    )
    advisor, values = make(), lambda obs: torch.zeros(*obs.shape[:-1], 3)
    rows = np.array([[1.0], [2.0], [2.0], [3.0]])
    assert not advisor(rows).any()
    asyncio.run(advisor.ask(rows, 1, values, 1.0))
    assert sorted(calls) == [1, 2, 3] and advisor.hit_rate == 0 and advisor.lookups == 4
    assert np.exp(advisor(rows)) == pytest.approx(np.tile(P, (4, 1)))
    asyncio.run(advisor.ask(np.concatenate([rows, rows + 3]), 2, values, 1.0))
    assert sorted(calls) == [1, 2, 3, 4, 5, 6] and advisor.hit_rate == 4 / 8
    bounded = make(2)
    asyncio.run(bounded.ask(rows, 1, values, 1.0))
    assert (bounded.asked, bounded.left_out) == (2, 1)


def test_a_refresh_measures_how_stale_the_cached_prior_was():
    """The own prior is P, the cached one CACHED, values Q: 0.025610 nats."""
    spell = lambda row: "a b" if row[0] == 1 else "a c"
    keys = TextKeys(weight_D=np.ones(cached.BUCKETS))
    guide = pl.control.ComputedGuide(lambda rows: np.log(np.tile(P, (len(rows), 1))))
    advisor = PriorAdvisor(guide, PriorCache(0.3, 1.0, 9), lambda row: keys(spell(row)), 3, ("a",))
    advisor.cache.put(advisor.keys_of(np.array([[1.0]], np.float32)), np.log(CACHED)[None])
    values = lambda obs: torch.tensor(Q).expand(*obs.shape[:-1], 3)
    rows = np.array([[2.0], [3.0]])
    found = asyncio.run(advisor.check(rows, values, 1.0, 9))
    assert found == {
        "kl": pytest.approx(0.025610, abs=1e-6), "kl_bound": pytest.approx(0.575364, abs=1e-6), "kl_states": 2
    }  # fmt: skip
    asyncio.run(advisor.ask(rows, 1, values, 1.0))
    assert advisor.stale == pytest.approx(0.025610, abs=1e-6) and advisor.cache.refreshed == 2


def test_arms_take_equal_steps_and_a_killed_run_ends_with_the_same(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return "no idea" if len(asked) <= 3 else written_prior(request)

    run = lambda: asyncio.run(replace(program(), asked=pl.Scripted(answer)).run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    again = run()
    assert again == first and len(asked) == calls  # heard again from the transcript
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "static", "uncached", "shuffled", "oracle"]
    steps = [arm["env_steps"] for arm in arms.values()]
    assert min(steps) >= 100 and max(steps) - min(steps) <= 2 * 40
    assert arms["none"]["moved"] == 0 < first["moved"] and "asked" not in arms["none"]
    assert arms["uncached"]["asked"] > arms["guide"]["asked"] and first["fewer_queries"] > first["fewer_states"]
    assert arms["static"]["delta"] == 0.85 != arms["guide"]["delta"]
    assert 0 <= arms["uncached"]["known"] <= 1
    assert "The actions are: go north, " in asked[0] and "You stand at row" in asked[0]
    # the policy in the folder is the one that was measured
    sim = PhraseGrid()
    act = cache_posterior.load_posterior(sim, tmp_path / "policy")
    assert pl.control.mean_return(sim, act, 4, ("cache-posterior", 2, "test")) == pytest.approx(first["return"])


def test_an_endpoint_that_fails_ends_the_run(context):
    def answer(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        asyncio.run(program(asked=pl.Scripted(answer)).run(context()))
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(program(), asked=None).run(context()))


def test_an_unreadable_answer_is_an_even_prior_and_counted(context):
    made = program(asked=pl.Scripted(lambda request: "left, I think"), compare=False, calls=10)
    arms = asyncio.run(made.run(context())).metrics["arms"]
    assert arms["guide"]["fallbacks"] == arms["guide"]["asked"] == 10 and arms["guide"]["moved"] == pytest.approx(0)


def test_a_simulator_of_ones_own_with_continuous_actions(context, tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "own.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('Pendulum-v1', max_episode_steps=20)\n"
    )
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"weights": {"push 2": 1}}

    made = cache_posterior.build(pl.Scripted(answer), f"{tmp_path}/own.py:make", calls=6, compare=False, steps=80)
    found = asyncio.run(replace(made, learner=LEARNER, games=2).run(context())).metrics
    assert "The actions are: push -2, push 0, push 2." in seen[0] and "number_0 = " in seen[0]
    assert found["moved"] > 0 and list(found["arms"]) == ["none", "guide", "shuffled"]
    with pytest.raises(UserError, match="finite bounds"):
        box = pl.control.Box(low=(-np.inf,), high=(1.0,))
        SymbolicActions(replace(PhraseGrid()).__class__.__new__(type("Wide", (), {"actions": box})))
    with pytest.raises(UserError, match="take 2 or more levels"):
        SymbolicActions(pl.control.CarFollowing(), 1)


def test_offline_learning_plays_no_game_and_reads_transitions_of_ones_own(context, tmp_path):
    sim, file = PhraseGrid(), tmp_path / "games.npz"
    made = replace(cache_posterior.embedded(offline="random", compare=False, steps=100, games=4), sim=sim)
    made = replace(made, learner=replace(made.learner, games=2, updates=1, batch=16))
    assert made.learner.cql_by_prior and made.learner.cql > 0
    found = asyncio.run(made.run(context())).metrics
    assert len({arm["env_steps"] for arm in found["arms"].values()}) == 1 and found["moved"] > 0
    obs = np.zeros((50, sim.observation))
    columns = {"obs": obs, "next_obs": obs, "act": np.arange(50) % 40, "reward": np.ones(50), "over": np.ones(50)}
    np.savez(file, **columns)
    rounds = read_transitions(str(file), sim, 20)
    assert [len(r["reward"]) for r in rounds] == [20, 20, 10] and rounds[0]["over"].all()
    for change, why in (
        ({"act": np.full(50, 40)}, "whole number, 0 to 39"),
        ({"obs": obs[:, :3]}, r"obs is \[N, 36\]"),
        ({"act": np.full(50, 0.5)}, "whole number"),
        ({"obs": np.where(np.arange(50)[:, None] == 3, np.nan, obs)}, "obs of row 3"),
        ({"next_obs": obs + np.inf}, "next_obs of row 0"),
        ({"act": np.full(50, "left")}, r"numpy\.savez"),
    ):
        np.savez(file, **{**columns, **change})
        with pytest.raises(UserError, match=why):
            read_transitions(str(file), sim, 20)
    file.write_text("no arrays")
    with pytest.raises(UserError, match=r"numpy\.savez"):
        read_transitions(str(file), sim, 20)
    with pytest.raises(UserError, match=r"random, or FILE\.npz"):
        cache_posterior.build(offline="games.csv")


def test_all_rows_of_a_file_are_learned_from_and_told(context, tmp_path):
    """900 rows in rounds of 2 games of 40 steps: 11 of 80 rows, 4 updates each, and one of 20 rows with 1."""
    sim, file, told = PhraseGrid(), str(tmp_path / "games.npz"), []
    obs, zero = np.zeros((900, sim.observation)), np.zeros(900)
    np.savez(file, obs=obs, next_obs=obs, act=zero.astype(int), reward=zero, over=zero)
    made = cache_posterior.embedded(offline=file, steps=100)
    made = replace(made, learner=replace(made.learner, games=2))
    ctx = context()
    ctx.say = told.append
    setting = PosteriorSetting.of(made, ctx)
    assert sum(len(r["reward"]) for r in setting.recorded) == 900
    assert told == ["offline: 900 of 900 rows in 12 rounds, 45 updates"]


class Spoken:
    """One push, in words."""

    agents, horizon, observation, actions = 1, 2, 1, pl.control.Box(low=(-1.0,), high=(1.0,))
    visible: ClassVar = {"place": pl.control.Quantity(low=-1.0, high=1.0, about="where it is")}
    reset = staticmethod(lambda rng, n: np.zeros((n, 1)))
    observe = staticmethod(lambda state: state[:, None])
    legal = staticmethod(lambda state: None)
    view = staticmethod(lambda obs: {"place": obs[..., 0]})
    facts = staticmethod(lambda state: {"far": state})
    spell_view = staticmethod(lambda obs: f"The block is at {obs[0]:.1f}.")
    step = staticmethod(
        lambda state, act, rng: (state + act[:, 0], np.ones((len(state), 1)), np.zeros(len(state), bool))
    )


def test_symbols_say_what_the_simulator_says():
    sim = SymbolicActions(Spoken(), 3)
    assert isinstance(sim, pl.control.SpelledView) and sim.spell_view(np.array([0.5])) == "The block is at 0.5."
    assert isinstance(sim, pl.control.TellsFacts) and sim.facts(np.ones((2, 1)))["far"].shape == (2, 1)
    assert list(pl.control.ViewWords.of(sim, {}).visible) == ["place"]
    assert not isinstance(SymbolicActions(pl.control.CarFollowing(), 3), pl.control.SpelledView)


def test_what_calls_leave_out_is_told(context):
    told, ctx = [], context()
    ctx.say = told.append
    asyncio.run(program(calls=3).run(ctx))
    assert any("arm uncached: calls=3 left out" in line for line in told)


def test_the_question_and_the_key_are_of_what_the_agent_sees(context):
    setting = PosteriorSetting.of(program(), context())
    row = PhraseGrid().observe(state(4, 1, 0))[0, 0]
    assert "You stand at row 1, column 1. The key lies at row 0, column 1." in setting.question(row)
    assert setting.scale > 0
