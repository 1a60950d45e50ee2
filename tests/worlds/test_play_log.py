"""Logged games as questions: labels by game and player, whole games held out, and what is refused."""

import json

import pytest
from palaestra.errors import UserError
from palaestra.run.setup import bench_of
from palaestra.settings.fields import Settings
from palaestra.worlds.play_log import PlayLog, balanced, read_frame


def write(tmp_path, rows, name="games.jsonl"):
    file = tmp_path / name
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


def game(name, events, split=None, won=None, **more):
    rows = [
        {"game": name, "frame": i, "state": {"t": i, "me": {"gold": i / 3}}, "event": e, **more}
        for i, e in enumerate(events)
    ]
    return [r | ({"split": split} if split else {}) | ({} if won is None else {"won": won}) for r in rows]


def of_frames(tasks, split="train"):
    size = tasks.size if split == "train" else tasks.test_size
    return {
        (t.meta["game"], json.loads(t.prompt[0].content)["t"]): t for t in (tasks.task(split, i) for i in range(size))
    }


CATALOGUE = ["", "", "", "", "defend", "", "dragon", "", "", ""]


def test_the_frames_of_the_catalogue_as_questions(tmp_path):
    rows = game("g", CATALOGUE, "train") + game("h", ["defend", "", "dragon"], "test")
    tasks = PlayLog(write(tmp_path, rows), priority="dragon,defend", ask="{state}")
    labels = {t: x.answer for (_, t), x in of_frames(tasks).items()}
    assert labels == {0: "defend", 1: "defend", **dict.fromkeys(range(2, 7), "dragon")}
    assert of_frames(tasks)["g", 3].meta["ahead"] == 3 and tasks.size == 7 and tasks.test_size == 3
    assert tasks.notes == (
        "7 of 10 training frames have a label, 1 of them by an event of their own, the others by one within 4 frames",
    )
    other = PlayLog(tasks.path, priority="defend", ask="{state}")
    assert {t: x.answer for (_, t), x in of_frames(other).items()}[4] == "defend"
    assert "where labels compete" in other.notes[0] and "defend, dragon" in other.notes[0]
    assert PlayLog(tasks.path, window=0).size == 2


def test_a_question_shows_the_state_and_the_actions(tmp_path):
    rows = game("g", ["a", "b"], "train") + game("h", ["a", "b"], "test")
    (first, _) = (PlayLog(write(tmp_path, rows)).task("train", i) for i in range(2))
    said = first.prompt[0].content
    assert '{"t":0,"me":{"gold":0}}' in said and "these actions: a, b." in said and first.answer == "a"
    hidden = PlayLog(tmp_path / "games.jsonl", hide="me.gold, t", ask="{state} {actions}")
    assert hidden.task("test", 1).prompt[0].content == '{"me":{}} a, b'
    odd = game("g", ["{state}", "b"], "train") + [r | {"state": "see {actions}"} for r in game("h", ["b"], "test")]
    shown = PlayLog(write(tmp_path, odd, "odd.jsonl"), ask="{actions}: {state}").task("test", 0).prompt[0].content
    assert shown == "b, {state}: see {actions}"


@pytest.mark.parametrize(
    "text,worth",
    [
        ("push the lane", 1), ("I think.\n\n**Push the lane**", 1), ("Answer: push the lane.", 1),
        ("\\boxed{push the lane}", 1), ("defend or push the lane", 1), ("push the lane, no: defend", 0), ("push", 0), ("", 0),
    ],
)  # fmt: skip
def test_replies_are_read_in_any_form(tmp_path, text, worth):
    rows = game("g", ["push the lane", "defend"], "train") + game("h", ["defend"], "test")
    tasks = PlayLog(write(tmp_path, rows), window=0)
    assert tasks.check(text, tasks.task("train", 0)) == worth


def test_players_and_games_do_not_label_one_another(tmp_path):
    mid = game("g", ["", "a"], "train", player="mid")
    top = game("g", ["", "b"], "train", player="top")
    rows = [r for pair in zip(mid, top, strict=True) for r in pair][::-1] + game("h", ["a"], "test")
    assert sorted(t.answer for t in (PlayLog(write(tmp_path, rows)).task("train", i) for i in range(4))) == [*"aabb"]


def test_whole_games_are_held_out(tmp_path):
    rows = [r for i in range(20) for r in game(f"g{i}", ["", "a", "b"])]
    tasks = PlayLog(write(tmp_path, rows), ask="{state}")
    games = {split: {g for g, _ in of_frames(tasks, split)} for split in ("train", "test")}
    assert len(games["test"]) == 2 and len(games["train"]) == 18 and not games["test"] & games["train"]
    apart = PlayLog(tasks.path, test=write(tmp_path, game("x", ["b"]), "held.jsonl"))
    assert apart.size == 60 and apart.test_size == 1


def test_as_many_won_as_lost_games_teach(tmp_path):
    def rows(n_won, n_lost):
        won = [r for i in range(n_won) for r in game(f"w{i}", ["a", "b"], "train", True)]
        lost = [r for i in range(n_lost) for r in game(f"l{i}", ["a", "b"], "train", False)]
        return won + lost + game("h", ["a"], "test", True)

    tasks = PlayLog(write(tmp_path, rows(5, 2)))
    assert tasks.size == 8 and "3 won games are left out" in " ".join(tasks.notes)
    assert PlayLog(tasks.path, balance=False).size == 14
    frames = [read_frame(r, "here") for r in rows(0, 3)[:-1]]
    assert balanced(frames) == (frames, "")


@pytest.mark.parametrize(
    "row,match",
    [
        ({"game": None}, "game is"), ({"frame": "late"}, "frame is"), ({"state": {}}, "state is"),
        ({"event": 3}, "event is"), ({"event": ["a", ""]}, "event is"), ({"won": "perhaps"}, "won is"),
        ({"split": "dev"}, "split is"),
    ],
)  # fmt: skip
def test_a_row_at_fault_is_told_or_left_out(tmp_path, row, match):
    rows = [r for i in range(10) for r in game(f"g{i}", ["a", "b"])]
    file = write(tmp_path, [*rows, rows[0] | row])
    with pytest.raises(UserError, match=rf"games.jsonl:21: .*{match}.*--skip-bad 1"):
        PlayLog(file).task("train", 0)
    skipped = PlayLog(file, skip="1")
    assert skipped.size + skipped.test_size == 20 and "1 of 21 records is left out" in skipped.notes[0]


def test_cells_of_tables():
    row = {"game": 3, "frame": "2", "state": "s", "event": float("nan"), "won": "no", "player": 1}
    read = read_frame(row, "here")
    assert (read.game, read.frame, read.events, read.won, read.player) == ("3", 2.0, (), False, "1")


def test_what_is_no_log_of_games_is_refused(tmp_path):
    for rows, more, match in (
        (game("g", ["a", "b"]), {}, "it has 1; give more games"),
        (game("g", ["a"], "train") + game("h", ["a"], "test"), {}, "reveal 1 actions"),
        (game("g", ["a", "b"], "train") + game("h", [""], "test"), {}, "no frame of the test games"),
        (game("g", ["a", "b"], "train") + game("h", ["a"], "test"), {"priority": "a,c"}, "'c', and no event"),
    ):
        with pytest.raises(UserError, match=match):
            PlayLog(write(tmp_path, rows), **more).task("train", 0)
    with pytest.raises(UserError, match="where the state is shown"):
        PlayLog("games.jsonl", ask="what next?")


def test_the_room_of_games(tmp_path):
    rows = [r for i in range(10) for r in game(f"g{i}", ["", "a", "b"])]
    file = write(tmp_path, [{"match" if k == "game" else k: v for k, v in r.items()} for r in rows])
    env = "frames(window=1,priority='b',balance=0,ask='{state} {actions}')"
    bench, _ = bench_of(Settings(recipe="grpo", data=file, env=env, columns="match=meta.game"))
    assert bench.tasks.window == 1 and bench.tasks.play.actions == ("b", "a") and not bench.tasks.balance
    with pytest.raises(UserError, match="window='x' is no setting"):
        bench_of(Settings(recipe="grpo", data=file, env="frames(window=x)", columns="match=meta.game"))
    with pytest.raises(UserError, match="log of games of yours"):
        bench_of(Settings(recipe="grpo", env="frames"))
