"""sap: the space and its numbers by hand, responses, the network, recognition, and a user's game of two seats."""

import asyncio
import json

import numpy as np
import palaestra
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.games.sap import build
from palaestra.recipes.games.sap import rts as rts_rules
from palaestra.recipes.games.sap.minirts import RULE_PLAYERS, RULES, MiniRts, read_orders
from palaestra.recipes.games.sap.network import Evaluator, train_evaluator
from palaestra.recipes.games.sap.program import (
    ARMS,
    KnownPayoffs,
    StrategyPlanning,
    numbers_of,
    payoff_entry,
)
from palaestra.recipes.games.sap.rts import RtsGame, RtsOrders, orders_of
from palaestra.recipes.games.sap.seated import SeatedGame, WithPlans, read_strategies
from palaestra.recipes.games.sap.space import (
    PlannedStrategy,
    RtsStrategy,
    read_strategy,
    rts_space,
)
from palaestra.types import Act

from tests.chat_server import serving

RUSH = RtsStrategy(harvesters=2, barracks=8, units=("worker", "heavy"), aggressive=True, target="unit")
WALL = RtsStrategy(harvesters=1, barracks=0, units=("worker",), aggressive=False, distance=4)


def test_vectors_and_the_size_of_the_space():
    """The catalogue's example; a defence at distance 4 of 8; 4 + 336 + 8 + 672 = 1,020, all with vectors of their own."""
    assert RUSH.vector() == (0, 1, 1, 0.6, 1, 1, 0, 0, 1, 0, 1, 0)
    assert WALL.vector() == (1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0.5)
    space = rts_space()
    sizes = [
        sum((s.units == ("worker",)) == workers and s.aggressive == aggressive for s in space)
        for workers, aggressive in ((True, True), (False, True), (True, False), (False, False))
    ]
    assert sizes == [4, 336, 8, 672] and len({s.vector() for s in space}) == 1020
    assert RUSH in space and WALL in space


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('{"harvesters": 2, "barracks": 8, "units": ["heavy", "worker"], "aggressive": true, "target": "unit"}', RUSH),
        ('<think>{}</think>It is\n```json\n{"harvesters": 1, "barracks": 0, "units": ["worker"], "aggressive": false, '
         '"distance": 4, "target": "unit"}\n```', WALL),
        ('{"harvesters": 2, "barracks": 0, "units": ["heavy"], "aggressive": true, "target": "unit"}', None),
        ('{"harvesters": 9}', None),
        ("rush", None),
        ('{"harvesters": null, "barracks": 8, "units": 3, "aggressive": true}', None),
    ],
)  # fmt: skip
def test_strategies_are_read_from_replies(text, made):
    assert read_strategy(text) == made


def test_the_worth_of_a_game():
    """10 won + 0.1 damage + 0.1 (spent - harvested)."""
    assert payoff_entry(1, 20, 30, 10) == pytest.approx(14)
    assert payoff_entry(-1, 0) == -10 and payoff_entry(0, 0) == 0


def planned(name, *vector):
    return PlannedStrategy(name=name, text=name, vector=vector)


class Promises:
    """A network whose promises are the numbers of a function of the own vector."""

    def __init__(self, chance):
        self.chance = chance

    def chances(self, own_ND, other_D):
        return np.array([self.chance(own[0], other_D[0]) for own in own_ND])


STORED = tuple(planned(n, x) for n, x in (("rock", 0.0), ("paper", 1.0), ("scissors", 2.0)))
ROCK, PAPER, SCISSORS = STORED
OTHER, WELL = planned("other", 2.9), planned("well", 7.0)
PAYOFF = np.array([[0, -10, 12], [10, 0, -10], [-12, 10, 0.0]])


def known(chance):
    return KnownPayoffs(STORED, PAYOFF, Promises(chance), (*STORED, OTHER, WELL))


def test_responses():
    """Means of the rows: 2/3, 0, -2/3, so rock is the meta strategy. Stored: the best of the column; else the network."""
    strong = known(lambda own, other: 0.9 if own == 7.0 else 0.4)
    assert strong.meta == ROCK
    assert [strong.response(s) for s in STORED] == [(PAPER, None), (SCISSORS, None), (ROCK, None)]
    assert strong.response(OTHER) == (WELL, 0.9)
    assert known(lambda own, other: 0.49).response(OTHER) == (ROCK, None)
    assert strong.nearest(OTHER) == ROCK  # scissors are nearest to 2.9, and rock beats them


def test_the_network_learns_who_wins():
    """A strategy wins where its first number is larger: the same on pairs of strategies that were not trained on."""
    rng = np.random.default_rng(0)
    vectors = rng.random((16, 3))
    wins = (vectors[:, None, 0] > vectors[None, :, 0]).astype(float)
    made = train_evaluator(vectors, wins, epochs=40, patience=40, seed=0)
    assert made.accuracy > 0.8
    chances = made.chances(np.array([[0.05, 0.5, 0.5], [0.95, 0.5, 0.5]]), (0.5, 0.5, 0.5))
    assert chances[0] < 0.35 and chances[1] > 0.65
    one, two = (train_evaluator(vectors, wins, epochs=2, patience=9, seed=0).chances(vectors, vectors[0]) for _ in "ab")
    assert np.array_equal(one, two)


def test_the_network_stops_early_and_takes_the_smallest_file():
    vectors, wins = np.eye(2), np.array([[0, 1.0], [0, 0]])
    made = train_evaluator(vectors, wins, epochs=500, patience=3, seed=0)
    assert isinstance(made, Evaluator) and made.epochs < 500
    assert 0 <= made.accuracy <= 1


def rts(*units):
    """A game with these units alone: kind, side, x, y."""
    game = RtsGame(np.random.default_rng(0))
    game.units, game.taken = [], set(rts_rules.MINES)
    for unit in units:
        game._add(*unit)
    return game


STAND = RtsOrders(harvesters=0, build=False, train=(), target="unit")
HARVEST = RtsOrders(harvesters=1, build=False, train=(), distance=1)


def test_what_a_harvester_brings():
    """Two steps to the mine, two ticks there, two at the base, which is beside it: the first resource at tick 5, then
    one every 4 ticks, so 6 in 25."""
    game = RtsGame(np.random.default_rng(0))
    brought = []
    for _ in range(25):
        game.play((HARVEST, HARVEST))
        brought.append(game.sides[0].harvested)
    assert [brought.index(n) + 1 for n in range(1, 7)] == [5, 9, 13, 17, 21, 25]
    assert game.sides[0].resources == 5 + 6 and game.mines[0] == 25 - 6
    assert game.won(0) == 0 and game.worth(0) == 10 + 1 + 11  # base, worker, resources: the same on both sides


def test_a_fight_by_hand():
    """Heavy and light side by side strike at once: 4 of 4 hit points, and 2 of 4. Then the heavy goes on alone."""
    game = rts(("heavy", 0, 5, 5), ("light", 1, 5, 6), ("base", 1, 10, 10))
    game.play((STAND, STAND))
    assert [(u.kind, u.hp) for u in game.units] == [("heavy", 2), ("base", 10)]
    assert (game.sides[0].damage, game.sides[1].damage) == (4, 2) and not game.over
    for _ in range(60):
        game.play((STAND, STAND))
    assert game.over and game.won(0) == 1 and game.sides[0].damage == 4 + 10
    bow = rts(("ranged", 0, 5, 5), ("worker", 1, 5, 8))  # three squares away
    bow.play((STAND, STAND))
    assert bow.won(0) == 1 and bow.sides[1].damage == 0


def test_speed_and_room():
    """In ten ticks a light unit makes 12 steps of 1.25, a worker 10, a heavy one 8 of 0.83; a taken square is gone round."""
    for kind, steps in (("light", 12), ("worker", 10), ("heavy", 8)):
        game = rts((kind, 0, 0, 5), ("base", 1, 11, 11))
        for _ in range(10):
            game.play((STAND, STAND))
        unit = game.units[0]
        assert unit.x + (unit.y - 5) == min(steps, 11 + 6 - 1), kind
    game = rts(("worker", 0, 3, 3), ("base", 0, 4, 3), ("base", 1, 9, 3))
    for _ in range(40):
        game.play((STAND, STAND))
    assert game.sides[0].damage > 0
    assert len({(u.x, u.y) for u in game.units}) == len(game.units)


def test_barracks_wait_for_resources():
    """Barracks at 8 are begun with 8 resources and leave 3, and until then no soldier is trained."""
    plan = RtsStrategy(harvesters=1, barracks=8, units=("worker", "heavy"), aggressive=False, distance=2)
    game = RtsGame(np.random.default_rng(0))
    while not game.sides[0].built_at:
        assert not game.sides[0].trained
        game.play((orders_of(plan, game.sides[0]), HARVEST))
    assert game.sides[0].built_at == 8 and game.sides[0].spent >= 5
    while not game.sides[0].trained["heavy"]:
        game.play((orders_of(plan, game.sides[0]), HARVEST))
    assert game.shown(0) | {"distance": ""} == {
        "harvesters": "1", "barracks": "8", "units": "worker heavy", "target": "", "distance": "",
    }  # fmt: skip


def test_what_is_seen_is_recognised():
    """A whole game without noise tells most strategies, and more than one with noise; at tick 0 nothing can be told."""
    clear, noisy = MiniRts(0.0, 20), MiniRts(0.3, 20)
    own = WALL.planned()
    others = clear.space[8::97]
    told = {
        name: [game.recognise([asyncio.run(game.play(own, o, ("k", 0))).seen]) == o for o in others]
        for name, game in (("clear", clear), ("noisy", noisy))
    }
    assert np.mean(told["clear"]) > 0.5 > np.mean(told["noisy"])
    assert clear.recognise(["tick 20; harvesters 2; barracks 0"]) is None
    seen = ["tick 200; harvesters 2; barracks 8; units worker heavy; target unit"] * 2
    assert clear.recognise([*seen, "tick 200; harvesters 1; barracks 5; units light; distance 3"]) == RUSH.planned()


def test_the_plan_changes_within_a_game():
    """Every 20 ticks what was seen so far is shown, and the strategy that comes back is played from there on."""
    game, seen = MiniRts(0.0, 20), []
    rush = RtsStrategy(harvesters=1, barracks=5, units=("heavy", "light"), aggressive=True, target="building").planned()

    async def change(now):
        seen.append(now)
        return rush

    alone = asyncio.run(game.play(WALL.planned(), WALL.planned(), ("k", 1)))
    made = asyncio.run(game.play(WALL.planned(), WALL.planned(), ("k", 1), change))
    assert [s.split(";")[0] for s in seen[:3]] == ["tick 20", "tick 40", "tick 60"]
    assert made.damage > alone.damage == 0 and made.won == 1


def test_players_by_rules():
    """Who counters trains ranged units against heavy ones, and who defends attacks as soon as six soldiers stand."""
    game = rts(*(("heavy", 1, 8, y) for y in range(3)), *(("light", 0, 2, y) for y in range(5)))
    assert RULE_PLAYERS["counters"](game, 0).units == ("ranged",) and RULE_PLAYERS["counters"](game, 1).units == (
        "heavy",
    )
    wait = RULE_PLAYERS["defends, then attacks"]
    assert not wait(game, 0).aggressive
    game._add("light", 0, 2, 6)
    assert wait(game, 0) == RtsStrategy(
        harvesters=2, barracks=6, units=("light", "ranged"), aggressive=True, target="building"
    )
    for rule in RULES:
        assert asyncio.run(MiniRts(0.0, 20).play(WALL.planned(), rule, ("k",))).won in (-1, 0, 1)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('{"harvesters": 9, "build": true, "train": ["heavy", "tank"], "target": "unit"}',
         RtsOrders(harvesters=4, build=True, train=("heavy",), target="unit", distance=1)),
        ('<think>{"harvesters": 1}</think>{"harvesters": 1, "build": "yes", "train": [], "target": "", "distance": 3}',
         RtsOrders(harvesters=1, build=False, train=(), target="", distance=3)),
        ('{"harvesters": 1, "build": true, "train": [], "target": "moon"}', None),
        ('{"harvesters": [], "build": true, "train": 3}', None),
        ("", None),
    ],
)  # fmt: skip
def test_orders_are_read_from_replies(text, made):
    assert read_orders(text) == made


def test_a_model_plans(context):
    """It is asked every 40 of 200 ticks at most, with its strategy and what both sides have; its orders are carried out."""
    rush = '{"harvesters": 1, "build": true, "train": ["heavy", "light"], "target": "building"}'
    said = iter(["what?", *[rush] * 20])
    with serving(lambda body: next(said)) as (server, url):
        source = pl.services.client_from_text(f"endpoint(url='{url}',model='m')", "planner")[0]
        game = MiniRts(0.0, 40, context("chain"), source)
        made = asyncio.run(game.play(WALL.planned(), WALL.planned(), ("k", 1)))
    asked = server.seen[0]["messages"][-1]["content"]
    assert WALL.text() in asked and "Tick 0. You have 5 resources, 1 base, 1 worker" in asked
    assert made.damage > 0 and 2 <= len(server.seen) <= 6


def series(kind, **points):
    arms = {arm: {"points": points.get(arm, [0.5]), "predicted": [], "right": [], "answers": []} for arm in ARMS}
    return {"kind": kind, "opponent": "o", **arms}


def test_numbers_by_hand():
    """Two opponents: SAP gains 0.2 and 0.4 over the meta strategy, and 0.1 over the nearest on the unseen one."""
    one = series("seen", meta=[0.4, 0.6], sap=[0.6, 0.8])
    two = series("unseen", meta=[0.3], sap=[0.7], nearest=[0.6])
    two["sap"] |= {"predicted": [(0.9, 0.7), (0.8, 0.7)], "right": [True, False], "answers": [True, False, True, True]}
    lost = series("rules", sap=[])
    numbers = numbers_of([one, two, lost])
    assert numbers["exploited"] == pytest.approx(0.3) and numbers["left_out"] == 1
    assert numbers["sap_seen"].mean == pytest.approx(0.7) and numbers["sap_unseen"].mean == pytest.approx(0.7)
    assert numbers["above_nearest_unseen"].mean == pytest.approx(0.1)
    assert numbers["answered"] == 0.75 and numbers_of([])["answered"] == 0.0
    assert numbers["predicted_minus_won"] == pytest.approx(0.15) and numbers["recognised"] == 0.5
    assert numbers["above_meta_unseen"].mean == pytest.approx(0.4) and "sap_rules" not in numbers
    assert numbers_of([])["exploited"] == 0.0


# ---- models and files


def recognised(context, replies, games=("seen",)):
    said = iter(replies)
    with serving(lambda body: next(said)) as (server, url):
        source = pl.services.client_from_text(f"endpoint(url='{url}',model='m')", "recogniser")[0]
        planning = StrategyPlanning(recogniser=source)
        told = asyncio.run(planning.recognised(context("chain"), MiniRts(0.1, 20), games))
        return told, len(server.seen)


GOOD = json.dumps({"harvesters": 2, "barracks": 8, "units": ["worker", "heavy"], "aggressive": True, "target": "unit"})


def test_a_model_recognises_in_three_tries(context):
    assert recognised(context, ["what?", "{}", GOOD]) == (RUSH.planned(), 3)
    assert recognised(context, ["a", "b", "c", GOOD]) == (None, 3)


def test_a_recogniser_who_cannot_be_asked_is_a_fault(context):
    source = pl.services.client_from_text("endpoint(url='http://127.0.0.1:9/v1',model='m',retries=0)", "recogniser")[0]
    with pytest.raises(Fault):
        asyncio.run(StrategyPlanning(recogniser=source).recognised(context("chain"), MiniRts(0.1, 20), ["x"]))


def test_a_proposer_must_give_enough(context):
    with serving(lambda body: GOOD) as (_, url):
        source = pl.services.client_from_text(f"endpoint(url='{url}',model='m')", "proposer")[0]
        with pytest.raises(UserError, match="gave 1 strategies"):
            asyncio.run(StrategyPlanning(proposer=source, tasks=4).run(context("chain")))


GAME = """
import palaestra as pl

class Higher:
    seats = ("a", "b")

    def reset(self, task, key):
        asks = tuple(pl.Ask(seat=s, say=(pl.Message(role="user", content=f"{s}: say a word"),)) for s in self.seats)
        return pl.Frame(state=(), asks=asks)

    def step(self, state, acts, key):
        margin = len(acts[0].text) - len(acts[1].text)
        return pl.Frame(state=state, pay={("a", ""): float(margin), ("b", ""): float(-margin)})
"""


def strategies(tmp_path, n=5):
    file = tmp_path / "mine.jsonl"
    rows = [{"text": f"say {'very ' * i}long words", "vector": [i, i * i % 3]} for i in range(n)]
    file.write_text("\n".join(json.dumps(r) for r in rows) + "\n\n")
    return file


def test_a_users_game_of_two_seats(tmp_path):
    """Stored strategies play each other, a recogniser reads the replies of the other seat and the list of strategies."""
    env = tmp_path / "higher.py"
    env.write_text(GAME)
    file = strategies(tmp_path)
    with serving(lambda body: "Number 2.") as (server, url):
        run = palaestra.train(
            "sap", env=f"{env}:Higher", out=tmp_path / "run", quiet=True, max_tokens=4,
            set={"strategies": str(file), "plays": 1, "rounds": 2, "epochs": 3,
                 "recogniser": f"endpoint(url='{url}',model='m')"},
        )  # fmt: skip
    asked = server.seen[0]["messages"][-1]["content"]
    assert "game 1: " in asked and "2. say very long words" in asked and len(server.seen) == 5
    lines = [json.loads(x) for x in next(run.folder.rglob("series.jsonl")).read_text().splitlines()]
    assert [x["kind"] for x in lines] == ["seen"] * 3 + ["unseen"] * 2
    assert all(len(x[arm]["points"]) == 2 for x in lines for arm in ARMS)
    payoff = np.array(json.loads(next(run.folder.rglob("payoffs.json")).read_text())["payoff"])
    assert np.array_equal(payoff, -payoff.T) and np.abs(payoff).max() == 10


def test_what_a_seat_is_told(tmp_path):
    """The strategy of a seat stands behind its own question, not the other's; what is said is kept by seat."""
    env = tmp_path / "higher.py"
    env.write_text(GAME)
    world = WithPlans(pl.worlds.UserWorld(f"{env}:Higher"), (("a", "be loud"), ("b", "be quiet")))
    frame = asyncio.run(world.reset(pl.Task(id="t"), ("k",)))
    told = {ask.seat: ask.say[0].content for ask in frame.asks}
    assert told["a"] == "a: say a word\n\nPlay by this strategy: be loud"
    assert "be quiet" in told["b"] and "be loud" not in told["b"]
    acts = tuple(
        Act(ask=a, text=t, call=None, finish="eos", n_tokens=1) for a, t in zip(frame.asks, ("hey", "x"), strict=True)
    )
    end = asyncio.run(world.step(frame.state, acts, ("k",)))
    assert end.facts["said_by_seat"] == (("a", "hey"), ("b", "x")) and end.pay[("a", "")] == 2.0
    game = SeatedGame(None, str(strategies(tmp_path)), 1.0)
    assert game.read("It is 4.") == game.space[3] and game.read("9") is None and game.read("none") is None


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (['{"text": "a"}'], ":1 cannot be read"),
        (['{"text": "a", "vector": [1]}', '{"text": "b", "vector": [1, 2]}'], ":2 has no text, or a vector"),
        (['{"text": "a", "vector": [1]}'] * 5, "1 have a vector of their own"),
        ([f'{{"text": "a", "vector": [{i}]}}' for i in range(3)], "at least four"),
    ],
)
def test_bad_files_are_refused(tmp_path, rows, why):
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(rows))
    with pytest.raises(UserError, match=why):
        read_strategies(str(file))


def test_options(tmp_path, context):
    made = build(count=10, plays=2, search=False)
    assert (made.tasks, made.n, made.search, made.share) == (10, 2, False, 0.6)
    for bad in ({"count": 3}, {"plays": 0}, {"rounds": 0}, {"share": 1.0}, {"epochs": 0}, {"noise": -1}, {"every": 0}):
        with pytest.raises(UserError, match=next(iter(bad))):
            build(**bad)
    with pytest.raises(UserError, match="no such file"):
        read_strategies(str(tmp_path / "no"))
    with pytest.raises(UserError, match="two seats"):
        build(strategies="x").game_of(context("chain"))
    with pytest.raises(UserError, match="strategies=FILE"):
        build().game_of(context("kuhn"))
