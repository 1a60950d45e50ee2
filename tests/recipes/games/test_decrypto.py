"""decrypto: cells on the same deals, the numbers of the probes by hand, and what is said of them."""

import asyncio
import json
from dataclasses import replace

import palaestra
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.games.decrypto import build, embedded
from palaestra.recipes.games.decrypto.play import PlayedGame, WithOwnPlayer, play_cell
from palaestra.recipes.games.decrypto.probes import (
    BEFORE,
    NAME,
    BelievedKeywords,
    PredictedGuess,
    belief_numbers,
    belief_prompt,
    prediction_numbers,
    prediction_prompt,
    random_numbers,
)
from palaestra.recipes.games.decrypto.program import DecryptoStudy, role_effects
from palaestra.recipes.games.decrypto.toy import ShowDecrypto
from palaestra.worlds.decrypto import Decrypto, DecryptoTasks, DecryptoTurn

TURN = DecryptoTurn(code=(1, 2, 3), hints=("flame", "stream", "toast"), decoded=(1, 2, 3), intercepted=(2, 1, 3))
KEYS = ("fire", "river", "bread", "night")
P, V = "policy", "vectors"


def game(cell, deal, turns, result="interception"):
    return PlayedGame(cell, deal, result, (TURN,) * turns, KEYS, {"encoder": 0})


def test_perspective_taking_is_beside_the_true_code():
    """Guesses 213, 123, 213, none; the encoder predicts 213, 123, 123, 213; the code is 123: of 3 turns 2 are hit,
    the true code was guessed in 1 and predicted in 2.
    """
    code = (1, 2, 3)
    made = [
        PredictedGuess((2, 1, 3), (2, 1, 3), code),
        PredictedGuess(code, code, code),
        PredictedGuess(code, (2, 1, 3), code),
        PredictedGuess((2, 1, 3), (), code),
    ]
    numbers = {k: x.mean for k, x in prediction_numbers(made).items()}
    assert numbers == {
        "perspective": pytest.approx(2 / 3),
        "perspective_of_the_true_code": pytest.approx(1 / 3),
        "predicts_the_true_code": pytest.approx(2 / 3),
    }
    assert prediction_numbers([]) == {}


def test_beliefs_are_counted_over_wrong_first_answers():
    a, b, k = ("a", "b", "c", "d"), ("a", "b", "d", "c"), KEYS
    made = [
        BelievedKeywords(k, k, k, k),  # right at first: does not count
        BelievedKeywords(k, a, a, a),  # strong in all
        BelievedKeywords(k, a, k, k),  # takes what it knows for what it believed
        BelievedKeywords(k, a, b, a),  # weak change, strong false belief, not the same
        BelievedKeywords(k, a, (), ()),  # cannot be read: a miss
        BelievedKeywords(k, (), a, a),  # nor the first answer: does not count
    ]
    numbers = {name: x.mean for name, x in belief_numbers(made).items()}
    assert numbers["keywords_right"] == pytest.approx(1 / 6)
    del numbers["keywords_right"]
    assert numbers == {
        "change_weak": 0.5,
        "change_strong": 0.25,
        "false_belief_weak": 0.5,
        "false_belief_strong": 0.5,
        "consistency": 0.5,
    }


def test_answers_at_random():
    """Of 680 keywords there are 680 679 678 677 ordered fours: the weak forms are nearly always passed."""
    numbers = random_numbers(680)
    assert numbers["change_strong"] == pytest.approx(1 / (8_830_510_430 * 24))
    assert numbers["change_weak"] == pytest.approx(1.0) and numbers["perspective"] == 1 / 24


def test_the_effect_of_a_role_is_paired_by_deal_and_by_the_other_roles():
    """With vectors elsewhere: deal 0 has 2 turns against 5, deal 1 has 4 against 4; so -1.5."""
    games = [game((P, V, V), 0, 2), game((V, V, V), 0, 5), game((P, V, V), 1, 4), game((V, V, V), 1, 4)]
    effects = role_effects([*games, game((P, V, V), 2, 8)], 8)
    assert effects["encoder"].mean == pytest.approx(-1.5) and set(effects) == {"encoder"}


def test_a_probe_shows_what_its_seat_knows():
    world, played = Decrypto(brief=True), game((P, P, P), 0, 2)
    asked = prediction_prompt(world, played, 0)
    assert asked.splitlines() == [
        "encoder", "1 fire", "2 river", "3 bread", "4 night", "code 1-2-3", "hints flame, stream, toast", "predict",
    ]  # fmt: skip
    assert "2-1-3" not in asked  # the guess itself
    before = belief_prompt(world, played, 0, NAME)
    assert before.splitlines() == ["interceptor", "1: flame", "2: stream", "3: toast", "4", "keywords?"]
    assert "true fire, river, bread, night" in belief_prompt(world, played, 0, BEFORE)
    full = belief_prompt(Decrypto(), played, 0, NAME)
    assert "What are the four keywords?" in full and not any(k in full for k in KEYS)


def test_games_are_whole_after_they_were_kept():
    played = replace(game((P, V, P), 3, 2), turns=(TURN, DecryptoTurn(code=(4, 2, 1))))
    assert PlayedGame.from_json(json.loads(json.dumps(played.json()))) == played


def test_the_worlds_own_player_hears_the_model_and_no_more(context):
    ctx = context("decrypto(turns=2,keywords=6,brief=True,illegal='never')")
    world = WithOwnPlayer(ctx.bench.world, ("encoder", "interceptor"))
    frame = world.reset(ctx.bench.tasks.task("test", 0), ("k",))
    assert [a.seat for a in frame.asks] == ["decoder"] and len(frame.state.state.hints) == 3
    games = asyncio.run(play_cell(ctx, (V, P, V), range(3), 1.0, None))
    own = asyncio.run(play_cell(ctx, (V, V, V), range(3), 1.0, None))
    assert [g.deal for g in games] == [g.deal for g in own] == [0, 1, 2]
    # the same deal, and the same first hints, whoever decodes
    assert [g.keywords for g in games] == [g.keywords for g in own]


def test_demonstrations_are_turns_of_the_vector_players():
    world, task = Decrypto(keywords=6, brief=True), DecryptoTasks(keywords=6).task("train", 0)
    pairs = ShowDecrypto(n=40).pairs(world, task, ("k",), pl.rng_of(("k",)))
    kinds = {asked.split("\n")[0] for asked, _ in pairs}
    ends = {asked.split("\n")[-1].split()[0] for asked, _ in pairs}
    assert kinds == {"encoder", "decoder", "interceptor"} and {"predict", "keywords?", "true"} <= ends
    for asked, told in pairs:
        if asked.startswith("decoder"):
            assert pl.worlds.read_code(told)


def test_findings_name_who_is_better():
    games = [
        game(c, d, t) for d in range(30) for c, t in (((P, P, P), 2), ((V, V, V), 6), ((V, V, P), 3), ((P, V, V), 3))
    ]
    report = DecryptoStudy().report(games, {}, [], "power", Decrypto())
    assert report.numbers["told_apart"] == 4.0
    assert "itself has 2.000" in report.findings[0] and "has 6.000" in report.findings[0]
    assert "As encoder" in report.findings[1] and "plays worse" in report.findings[1]
    assert "As interceptor" in report.findings[2] and "plays better" in report.findings[2]


def test_options(tmp_path):
    made = build(games=5, probes=0, rivals=False)
    assert (made.tasks, made.n, made.rivals) == (5, 0, False)
    assert embedded(steps=3).parts["player"].runnable.schedule == pl.Schedule(prompts=8, steps=3)
    with pytest.raises(UserError, match="games"):
        build(games=0)
    with pytest.raises(UserError, match="needs a game, of Decrypto"):
        palaestra.train("decrypto", task="kuhn", out=tmp_path / "x", quiet=True)
    run = palaestra.train(
        "decrypto", task="decrypto(turns=1,retries=0,brief=True,illegal='never')", out=tmp_path / "run", quiet=True,
        max_tokens=4,
        set={"games": 1, "probes": 2, "retries": 0, "partner": "tiny-agent"},
    )  # fmt: skip
    lines = [json.loads(x) for x in next(run.folder.rglob("items.jsonl")).read_text().splitlines()]
    cells = {tuple(x["players"].values()) for x in lines if x["kind"] == "game"}
    assert len(cells) == 27 and ("partner", "vectors", "policy") in cells


OWN = """
import palaestra as pl

@pl.stage
class Mine(pl.worlds.Decrypto):
    brief: bool = True
    retries: int = 0

    def task(self, split, index):
        codes = ((1, 2, 3), (2, 3, 4))
        return pl.Task(id=f"{split}/{index}", meta={"keywords": ("fire", "river", "bread", "night"), "codes": codes})
"""


def test_a_class_of_the_users_that_extends_the_world(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    settings = {"games": 1, "probes": 1, "retries": 0}
    run = palaestra.train("decrypto", env=f"{file}:Mine", out=tmp_path / "run", quiet=True, max_tokens=4, set=settings)
    lines = [json.loads(x) for x in next(run.folder.rglob("items.jsonl")).read_text().splitlines()]
    games = [x for x in lines if x["kind"] == "game"]
    assert len(games) == 8 and all(x["keywords"] == list(KEYS) and len(x["turns"]) <= 2 for x in games)
    other = tmp_path / "other.py"
    other.write_text(OWN.replace("worlds.Decrypto", "worlds.TicTacToe").replace("    brief: bool = True\n", ""))
    with pytest.raises(UserError, match="no game of Decrypto"):
        palaestra.train("decrypto", env=f"{other}:Mine", out=tmp_path / "y", quiet=True)
