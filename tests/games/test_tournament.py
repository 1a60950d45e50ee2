"""Tournaments and single games: who meets whom, what is counted, and that a kill changes nothing."""

import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.games import standings
from palaestra.games.match import strays
from palaestra.games.seats import split_names

pytest.importorskip("pyspiel")

MOVES = """
import re

def first(messages, rng):
    return re.search("[0-8]", messages[-1].content.partition("\\n")[2]).group()

def wrong(messages, rng):
    return "none"
"""
WORLD = """
from palaestra.types import Ask, Frame, Message

class Higher:
    seats = ("a", "b")
    def reset(self, task, key):
        return self.ask(())
    def ask(self, said):
        seat = self.seats[len(said)]
        return Frame(state=said, asks=(Ask(seat=seat, say=(Message(role="user", content="1 to 3"),)),))
    def step(self, state, acts, key):
        said = (*state, int(acts[0].text))
        if len(said) < 2:
            return self.ask(said)
        return Frame(state=said, pay={("a", ""): float(said[0] - said[1]), ("b", ""): float(said[1] - said[0])})
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "moves.py").write_text(MOVES)
    (tmp_path / "higher.py").write_text(WORLD)
    (tmp_path / "listed.py").write_text(WORLD + "    def legal(self, state):\n        return ('1', '2', '3')\n")
    return tmp_path


def test_all_meet_all_with_the_seats_swapped(files):
    first, wrong = f"{files}/moves.py:first", f"{files}/moves.py:wrong"
    found = pl.games.tournament("tictactoe", [first, wrong, "random"], n=3)
    assert found["games"] == 18 and set(found["matrix"][first]) == {wrong, "random"}
    assert all(p["games"] == 12 and p["won"] + p["drawn"] + p["lost"] == 12 for p in found["players"].values())
    loser = found["players"][wrong]
    assert loser["illegal"] == loser["replies"] == 12 == loser["ended by an illegal reply"] and loser["won"] == 0
    assert loser["legal games"] == 0 and loser["legal points"] is None and loser["illegal share"] == 1
    honest = found["players"]["random"]
    assert honest["illegal"] == 0 and honest["legal games"] == 6  # those against `first`
    assert found["matrix"][wrong]["random"] == {"points": 0.0, "pay": -1.0, "games": 6}
    assert loser["rating"] < min(p["rating"] for n, p in found["players"].items() if n != wrong)


def test_a_killed_tournament_goes_on_to_the_same_result(files, tmp_path, monkeypatch):
    first = f"{files}/moves.py:first"
    whole = pl.games.tournament("kuhn", ["random", f"{files}/moves.py:wrong"], n=4, out=tmp_path / "whole")
    played = []

    async def once(*given, **more):
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(1)
        return await original(*given, **more)

    original = standings.play_game
    monkeypatch.setattr(standings, "play_game", once)
    monkeypatch.setattr(standings, "TOGETHER", 1)
    given = ("kuhn", ["random", f"{files}/moves.py:wrong"])
    with pytest.raises(KeyboardInterrupt):
        pl.games.tournament(*given, n=4, out=tmp_path / "cut")
    file = tmp_path / "cut" / "games.jsonl"
    assert 0 < len(file.read_text().splitlines()) < 8
    file.write_text(file.read_text() + '{"deal": 3, "pla')  # a line that the kill cut off
    monkeypatch.setattr(standings, "play_game", original)
    again = pl.games.tournament(*given, n=4, out=tmp_path / "cut")
    assert {**again, "folder": ""} == {**whole, "folder": ""}
    assert file.read_text() == (tmp_path / "whole" / "games.jsonl").read_text()
    assert (tmp_path / "cut" / "cross-play.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="holds another tournament: its deals is 4, not 5"):
        pl.games.tournament(*given, n=5, out=tmp_path / "cut")
    with pytest.raises(UserError, match="holds another tournament: its players"):
        pl.games.tournament("kuhn", ["random", first], n=4, out=tmp_path / "cut")


def test_both_games_of_a_deal_have_the_same_cards(files):
    """In Kuhn poker, whoever always bets sees the same cards in a seat as the other one did."""
    (files / "bets.py").write_text("def a(messages, rng):\n    return 'b'\n\ndef b(messages, rng):\n    return 'b'\n")
    a, b = f"{files}/bets.py:a", f"{files}/bets.py:b"
    found = pl.games.tournament("kuhn", [a, b], n=8)
    assert found["matrix"][a][b]["points"] == 0.5 and found["players"][a]["rating"] == pytest.approx(0, abs=1e-6)
    assert found["players"][a]["high"] == pytest.approx(0, abs=1e-6)  # each deal is won once by both


def test_uniform_kuhn_is_exploitable_for_11_24(files):
    found = pl.games.tournament("kuhn", ["random", f"{files}/moves.py:wrong"], n=1)
    assert found["players"]["random"]["exploitability"] == pytest.approx(11 / 24)
    assert "exploitability" not in found["players"][f"{files}/moves.py:wrong"]


def test_a_world_of_the_users_lists_its_replies_or_has_no_random_player(files):
    found = pl.games.play(f"{files}/listed.py:Higher", ["random", "random"], n=12)
    assert len({g["pay"]["a"] for g in found["games"]}) > 2 and found["pay"]["a"] == -found["pay"]["b"]
    with pytest.raises(UserError, match="give its class a method legal"):
        pl.games.play(f"{files}/higher.py:Higher", ["random", "random"])


def test_a_class_that_counts_no_illegal_replies_has_them_counted_by_its_list(files):
    """A reply behind a thought or in a sentence is legal; one without a listed move is not."""
    (files / "says.py").write_text(
        "def bad(messages, rng):\n    return '7'\n\ndef good(messages, rng):\n    return '2'\n"
    )
    bad, good = f"{files}/says.py:bad", f"{files}/says.py:good"
    found = pl.games.tournament(f"{files}/listed.py:Higher", [bad, good], n=2)["players"]
    assert found[bad]["illegal share"] == 1 and found[good]["illegal"] == 0
    unlisted = pl.games.tournament(f"{files}/higher.py:Higher", [bad, good], n=2)["players"]
    assert unlisted[bad]["illegal"] == 0  # nobody says what is legal
    assert not strays("<think>7?</think>I play 3.", ("3",)) and strays("33", ("3",)) and not strays("x", ())


def test_a_model_and_its_checkpoint_sit_at_one_table(files):
    found = pl.games.play("tictactoe", ["policy", "model:tiny"], n=2, max_tokens=4)
    assert [g["players"] for g in found["games"]] == [{"x": "policy", "o": "model:tiny"}] * 2
    assert all(g["status"] == "finished" for g in found["games"])


def test_a_person_is_asked_again_for_what_is_illegal(monkeypatch, capsys):
    left = iter(["9", "hello", "4", "0", "8", "2", "6", "1", "3", "5", "7"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(left))
    assert main(["play", "tictactoe", "--seats", "human,human"]) == 0
    out = capsys.readouterr().out
    assert "'9' is no legal reply here; legal: " in out and "'hello'" in out and "game 1: human (x)" in out
    assert "illegal replies" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["play", "kuhn", "--seats", "random"], "has the seats p0, p1, and 1 players"),
        (["play", "kuhn", "--seats", "rndom,random"], "no player 'rndom'; did you mean random"),
        (["play", "kuhn", "--task", "chain"], "named twice"),
        (["tournament", "kuhn", "random"], "at least two players"),
        (["tournament", "kuhn", "random", "random"], "named twice"),
        (["tournament", "kuhn", "random", "human"], "palaestra play"),
        (["tournament", "chain", "policy", "random"], "has 1 seat for players"),
        (["tournament", "spiel:tic_tac_toe(against=random)", "policy", "random"], "without against"),
        (["tournament", "kuhn", "random", "moves.py:no"], "moves.py"),
    ],
)
def test_what_cannot_be_played_is_said(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_player_that_fails_is_said_with_its_line(tmp_path, monkeypatch, capsys):
    """Messages are no dictionaries; the line is that of the player's own file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clever.py").write_text('def move(messages, rng):\n    return messages[-1]["content"]\n')
    assert main(["play", "kuhn", "--seats", "random,clever.py:move"]) == 2
    assert "the player clever.py:move failed at clever.py:2: TypeError:" in capsys.readouterr().err


def test_the_table_of_the_command(files, capsys, tmp_path):
    words = ["tournament", "tictactoe", "random", f"{files}/moves.py:first", "--n", "2", "--out", str(tmp_path / "t")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["games"] == 4 and found["folder"] == str(tmp_path / "t")
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "tictactoe: 4 games" in out and "share of points of the row against the column" in out


def test_names_are_split_at_commas_outside_of_brackets():
    assert split_names("policy, model:a,endpoint('http://h/v1', 'm,n'),random") == [
        "policy",
        "model:a",
        "endpoint('http://h/v1', 'm,n')",
        "random",
    ]
