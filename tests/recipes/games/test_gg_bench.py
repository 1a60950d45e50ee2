"""gg-bench: numbers of the study by hand, games that a model writes, and a run on a user's file of games."""

import asyncio
import json

import palaestra
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.games.gg_bench import build, embedded
from palaestra.recipes.games.gg_bench.program import GameBench, play_of
from palaestra.recipes.games.gg_bench.report import power_of, scores_of, tell_games
from palaestra.recipes.games.gg_bench.toy import ShowMoves
from palaestra.recipes.games.gg_bench.writer import write_game
from palaestra.types import Episode, Group, Row, Segment

from tests.chat_server import serving

TAKE = """
class CustomEnv:
    def reset(self, seed=None, options=None):
        self.stones, self.current_player = HEAP, 1
    def valid_moves(self):
        return [s for s in (1, 2, 3) if s <= self.stones]
    def step(self, action):
        self.stones -= action
        self.current_player *= -1
        return None, int(self.stones == 0), self.stones == 0, False, {}
    def render(self):
        return f"stones {self.stones}"
"""


def play(won, second=False, result="first", illegal=0, replies=2):
    return {"won": won, "second": second, "result": result, "illegal": illegal, "replies": replies, "broke": ""}


def item(plays, against=(0, 0, 1, 0), among=(1, 0, 1, 0), value=1, opener=0.5, title="t"):
    known = {"verdict": "", "why": "", "opener": opener, "plies": 6.0, "skill": 0.9, "value": value, "title": title}
    return {**known, "random_against_opponent": against, "random_against_random": among, "plays": plays}


def test_the_game_is_the_unit():
    """One game won 3 of 3 and one 0 of 1: the mean of win rates is 0.5, where plays would say 0.75."""
    items = [item([play(True)] * 3), item([play(False, True, "first")], value=-1, opener=0.7)]
    numbers = scores_of(items)
    assert numbers["win_rate"].mean == 0.5 and numbers["win_rate"].n == 2
    assert numbers["random_win_rate"].mean == 0.25 and numbers["above_random"].mean == 0.25
    assert numbers["opponent_edge"] == 0.25  # 0.5 among random players, 0.25 against the opponent
    assert numbers["opener_wins_if_perfect"] == 0.5 and numbers["opener_wins_at_random"] == pytest.approx(0.6)
    assert numbers["win_rate_as_first"].mean == 1.0 and numbers["win_rate_as_second"].mean == 0.0


def test_draws_breaks_and_illegal_replies_are_not_won():
    plays = [
        play(False, result="draw"),
        play(False, result="broken"),
        play(False, result="illegal:first", illegal=5, replies=5),
        play(True, result="first", illegal=1, replies=3),
    ]
    numbers = scores_of([item(plays)])
    assert numbers["win_rate"].mean == 0.25
    assert (numbers["drawn"], numbers["broken"], numbers["lost_by_illegal"]) == (0.25, 0.25, 0.25)
    assert numbers["illegal_replies"] == 6 / 12


def episode(facts, trained=1):
    row = Row(segments=tuple(Segment(ids=(1,), author="policy", trained=True) for _ in range(trained)))
    return Episode(rows=(row,), facts=facts, status="finished")


def test_who_has_won_a_play():
    """A seat wins by the rules, and where the other one says no legal move; nothing else is a win."""
    won = lambda result, second: play_of(episode({"result": result}), second)["won"]
    assert won("first", 0) and won("second", 1) and won("illegal:second", 0)
    for result in ("second", "draw", "broken", "endless", "illegal:first", ""):
        assert not won(result, 0), result
    failed = play_of(Episode(rows=(), facts={"error": "sandbox: gone"}, status="error:sandbox"), 0)
    assert failed["result"] == "error: sandbox: gone" and not failed["won"]


def test_the_report_tells_checks_and_power():
    items = [item([play(True), play(True, True, "second")], title=f"t{i}") for i in range(8)]
    items += [{"title": "bad", "verdict": "first move", "why": "move 3 wins at once"}]
    report = tell_games(items, {"games": "9"}, "q")
    assert report.numbers["games"] == 9 and report.numbers["games_used"] == 8
    assert report.numbers["stopped_by/first_move"] == pytest.approx(1 / 9)
    assert "wins 100.0%" in report.findings[0] and "more often than" in report.findings[0]
    assert ["first move", "1", "the first move, or who opens, decides"] in list(report.tables[0].rows)
    # 2.8016 * 0.3 / sqrt(9) = 0.28
    assert "28 points" in power_of(9) and "fewer than two" in power_of(1)


def test_no_game_is_no_score():
    report = tell_games([{"title": "bad", "verdict": "crash", "why": "x"}], {}, "q")
    assert "win_rate" not in report.numbers and report.numbers["opponent_edge"] == 0.0
    assert "0 of 1 games" in report.findings[0] and "no score" in report.findings[0]


# ---- games that a model writes


def written(context, reply):
    with serving(reply) as (_, url):
        source = pl.services.client_from_text(f"endpoint(url='{url}',model='m')", "writer")[0]
        return asyncio.run(write_game(context("chain"), source, 4))


def asked(body):
    return body["messages"][-1]["content"]


def test_a_model_writes_rules_then_code_then_moves(context):
    def reply(body):
        text = asked(body)
        if "what each number" in text:
            return "<think>so</think>Numbers are stones." if "HEAP" in text else "no code was shown"
        if "CustomEnv" in text:
            return f"Here:\n```python\n{TAKE}\n```" if "Take some." in text else "no rules were shown"
        return "<think>a game</think> Take some."

    game = written(context, reply)
    assert (game.title, game.rules, game.moves) == ("game 5", "Take some.", "Numbers are stones.")
    assert game.code.strip() == TAKE.strip()


def test_what_is_no_game_is_a_verdict_on_the_writer(context):
    assert written(context, lambda body: "I would rather not.").why == "the reply has no fence with a class"
    assert written(context, lambda body: "<think>never closed").why == "the reply has no rules"


def test_a_writer_who_cannot_be_asked_is_a_fault(context):
    source = pl.services.client_from_text("endpoint(url='http://127.0.0.1:9/v1',model='m',retries=0)", "writer")[0]
    with pytest.raises(Fault):
        asyncio.run(write_game(context("chain"), source, 0))


# ---- runs


def test_a_users_file_of_games(tmp_path):
    """All games of the file are examined, whatever split they are of; those that pass are kept and played."""
    file, out = tmp_path / "mine.jsonl", tmp_path / "run"
    heaps = {"eight": 8, "nine": 9, "three": 3}
    rows = [{"title": t, "rules": "Take 1 to 3.", "code": TAKE.replace("HEAP", str(n))} for t, n in heaps.items()]
    rows.append({"title": "crash", "rules": "None.", "code": "import sys\nsys.exit(1)"})
    file.write_text("\n".join(json.dumps(r) for r in rows))
    task = f"written-games(file='{file}',brief=True,illegal='never')"
    run = palaestra.train(
        "gg-bench", task=task, out=out, quiet=True, set={"plays": 2, "iterations": 10, "training": 400}, max_tokens=4
    )  # fmt: skip
    lines = [json.loads(x) for x in next(run.folder.rglob("items.jsonl")).read_text().splitlines()]
    assert {x["title"]: x["verdict"] for x in lines} == {
        "eight": "",
        "nine": "",
        "three": "first move",
        "crash": "crash",
    }
    assert all([p["second"] for p in x["plays"]] == [False, True] for x in lines if "plays" in x)
    assert all(p["illegal"] == 0 for x in lines if "plays" in x for p in x["plays"])
    kept = [json.loads(x) for x in next(run.folder.rglob("games.jsonl")).read_text().splitlines()]
    assert [g["title"] for g in kept] == ["eight", "nine"]
    assert kept[0]["code"].strip() == TAKE.replace("HEAP", "8").strip()
    assert all(json.loads(g["agent"])["moves"] for g in kept) and "weights" not in lines[0]
    assert all({*x["best_moves"]} == {"random", "agent", "search", "agent_and_search"} for x in lines if "plays" in x)
    assert 0 < run.summary["best_moves/random"]["mean"] < run.summary["best_moves/search"]["mean"] <= 1


def test_options(tmp_path):
    made = build(games=5, plays=4, iterations=0, opponent="exact")
    assert (made.tasks, made.n, made.iterations, made.solved) == (5, 4, 0, pl.worlds.STATES)
    assert GameBench().solved == 0
    assert embedded(steps=3).parts["player"].runnable.schedule == pl.Schedule(prompts=6, steps=3)
    for name in ("games", "plays"):
        with pytest.raises(UserError, match=name):
            build(**{name: 0})
    for name, value in (("iterations", -1), ("training", 0), ("opponent", "best")):
        with pytest.raises(UserError, match=name):
            build(**{name: value})
    with pytest.raises(UserError, match="written"):
        palaestra.train("gg-bench", task="kuhn", out=tmp_path / "x", quiet=True)


def test_good_moves_are_shown(context):
    """Of 8 stones with 1 to 3 a demonstrated move leaves a multiple of 4 wherever it can."""
    ctx = context("written-games(brief=True)")
    rules = pl.worlds.WrittenRules(title="t", rules="Take.", moves="", code=TAKE.replace("HEAP", "9"))
    task = pl.worlds.WrittenGameTasks().task_of(rules, "t")
    for i in range(3):
        group = asyncio.run(ShowMoves()(ctx, ("k", i), Group(task=task)))
        assert group.episodes
        for e in group.episodes:
            asked, said = e.rows[0].segments[0].text, e.rows[0].segments[-1].text
            left = int(asked.split("stones ")[1].split()[0])
            assert left % 4 == 0 or (left - int(said)) % 4 == 0
    with pytest.raises(UserError, match="no written game"):
        asyncio.run(ShowMoves()(context("chain"), ("k",), Group(task=task)))
