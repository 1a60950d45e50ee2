"""The bandit of a log: which rows pay, what is held out, and what is refused."""

import asyncio
import json

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.run.benches import bench_by_name
from palaestra.run.rooms import in_logged
from palaestra.run.setup import bench_of
from palaestra.settings.fields import Settings
from palaestra.types import Act
from palaestra.worlds.logged_bandit import LoggedBandit, LoggedBandits, features, hashed_words, load_log


def write(tmp_path, rows, name="log.jsonl"):
    file = tmp_path / name
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


def first(world, task, replies=()):
    frame = world.reset(task, ("k",))
    for text in replies:
        act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)
        frame = world.step(frame.state, (act,), ("k",))
    return frame


ROWS = [
    {"context": c, "arm": a, "reward": r, "split": s}
    for s in ("train", "test")
    for c, a, r in (
        ("day", "mail", 1), ("day", "mail", 0), ("day", "call", 0), ("night", "mail", 0), ("night", "call", 1),
        ("night", "call", 0.5),
    )
]  # fmt: skip


def test_means_are_those_of_the_rows_in_the_same_context(tmp_path):
    """near=1: mail by day 1/2, call by day 0, mail at night 0, call at night 3/4."""
    bandits = LoggedBandits(write(tmp_path, ROWS), shuffle=False)
    world, seen = LoggedBandit(bandits, near=1), {}
    for i in range(20):
        frame = first(world, bandits.task("train", 0), ["mail"] * i)
        seen[frame.asks[0].say[-1].content.split("Context: ")[1]] = world.expected(frame.state)
    assert seen == {"day": {"mail": 0.5, "call": 0.0}, "night": {"mail": 0.0, "call": 0.75}}
    assert frame.asks[0].say[-1].content.startswith("Choose one of 2 arms: mail, call.\nContext: ")
    assert world.legal(frame.state) == ("mail", "call") and len(world.features(frame.state)) == 3
    # near=3: the third nearest row is of the other context, with all that are as far
    wide = LoggedBandit(bandits, near=3)
    assert wide.expected(frame.state) == {"mail": pytest.approx(1 / 3), "call": pytest.approx(0.5)}


def test_without_contexts_an_arm_pays_what_it_paid_in_any_row(tmp_path):
    rows = [{"arm": a, "reward": r} for a, r in (("a", 2), ("b", 0), ("a", 4), ("b", 1))] * 10
    bandits = LoggedBandits(write(tmp_path, rows), shuffle=False)
    world, log = LoggedBandit(bandits), load_log(bandits.path)["train"]
    means = [log.reward_N[log.arm_N == k].mean() for k in (0, 1)]
    frame = first(world, bandits.task("train", 0))
    assert world.features(frame.state) == () and "Context" not in frame.asks[0].say[-1].content
    assert list(world.expected(frame.state).values()) == pytest.approx(means)
    paid = [first(world, bandits.task("train", 0), ["a"] * i).pay["policy", ""] for i in range(1, 40)]
    assert set(paid) == {2.0, 4.0}
    held_out = load_log(bandits.path)["test"]
    assert len(log.reward_N) + len(held_out.reward_N) == 40 and 1 < len(held_out.reward_N) < 20


def test_names_are_shuffled_in_training_alone(tmp_path):
    rows = [{"arm": f"a{i % 5}", "reward": i % 5} for i in range(100)]
    bandits = LoggedBandits(write(tmp_path, rows))
    world = LoggedBandit(bandits)
    best = lambda split, i: max((m := world.expected(first(world, bandits.task(split, i)).state)), key=m.get)
    assert len({best("train", i) for i in range(20)}) > 2 and {best("test", i) for i in range(5)} == {"a4"}
    frame = first(world, bandits.task("train", 3), ["a2"])
    assert frame.pay["policy", ""] == world.expected(frame.state)["a2"]


def test_features_by_hand():
    """Hours 8 and 12 become -1 and 1, two devices two columns, and the last feature is 1."""
    rows = [{"hour": 8.0, "device": "phone"}, {"hour": 12.0, "device": "desk"}, {"device": "desk"}]
    assert features(rows).tolist() == [[-1, 1, 0, 1], [1, 0, 1, 1], [0, 0, 1, 1]]
    assert features([{"x": 3.0}, {"x": 3.0}]).shape == (2, 0) and features([{}, {}]).shape == (2, 0)
    many = features([{"text": f"word{i} and"} for i in range(40)])
    assert many.shape == (40, 33) and np.linalg.norm(many[:, :-1], axis=1) == pytest.approx(np.ones(40))
    assert not hashed_words("").any()


def test_contexts_of_several_kinds_and_columns_of_other_names(tmp_path):
    rows = [{"what": [i % 2, i % 3], "did": i % 2, "paid": str(i % 2)} for i in range(40)]
    file = write(tmp_path, rows)
    bandits = LoggedBandits(file, columns="what=meta.context,did=meta.arm,paid=meta.reward")
    assert bandits.logs["train"].names == ("0", "1") or bandits.logs["train"].names == ("1", "0")
    assert bandits.logs["train"].shown[0].startswith("1 ") and bandits.logs["train"].x_ND.shape[1] == 3
    code = tmp_path / "clean.py"
    code.write_text("def row(r):\n    return {'arm': r['did'], 'reward': r['paid']}\n")
    assert LoggedBandits(file, columns=f"{code}:row").logs["test"].x_ND.shape[1] == 0


@pytest.mark.parametrize(
    "row,match",
    [
        ({"reward": 1}, "arm is"), ({"arm": "a"}, "reward is"), ({"arm": "a", "reward": "much"}, "finite number"),
        ({"arm": "", "reward": 1}, "arm is"), ({"arm": True, "reward": 1}, "arm is"),
        ({"arm": "a", "reward": 1, "context": {"x": [1]}}, "context x is"),
        ({"arm": "a", "reward": 1, "split": "dev"}, "split is 'dev'"),
    ],
)  # fmt: skip
def test_a_row_at_fault_is_told_or_left_out(tmp_path, row, match):
    good = [{"arm": "ab"[i % 2], "reward": i % 2} for i in range(30)]
    file = write(tmp_path, [*good, row])
    with pytest.raises(UserError, match=rf"log.jsonl:31: .*{match}.*--skip-bad 1"):
        LoggedBandits(file).task("train", 0)
    bandits = LoggedBandits(file, skip="1")
    logs = bandits.logs
    assert "1 of 31 records is left out" in bandits.notes[0] and "rows of the log" in bandits.notes[1]
    assert sum(len(x.reward_N) for x in logs.values()) == 30


def test_too_little_is_refused(tmp_path):
    with pytest.raises(UserError, match="file is empty"):
        LoggedBandits(write(tmp_path, [], "empty.jsonl")).task("train", 0)
    with pytest.raises(UserError, match="no rows"):
        LoggedBandits(write(tmp_path, [{"reward": 1}], "bare.jsonl"), skip="100%").task("train", 0)
    with pytest.raises(UserError, match="1 arms, and a bandit has two"):
        LoggedBandits(write(tmp_path, [{"arm": "a", "reward": 1}] * 30)).task("train", 0)
    good = [{"arm": "ab"[i % 2], "reward": i % 2} for i in range(2)]
    with pytest.raises(UserError, match="--test-data"):
        LoggedBandits(write(tmp_path, good, "two.jsonl")).task("train", 0)
    with_test = LoggedBandits(write(tmp_path, good, "two.jsonl"), test=write(tmp_path, good, "held.jsonl"))
    assert with_test.logs["test"].names == ("a", "b")


def test_the_room_of_a_log(tmp_path):
    file = write(tmp_path, ROWS)
    bench, _ = bench_of(Settings(recipe="grpo", data=file, env="logged(horizon=7,view=guide,near=2,shuffle=0)"))
    assert bench.world.horizon == bench.max_turns == 7 and bench.world.view == "guide" and bench.world.world.near == 2
    assert not bench.tasks.shuffle and in_logged(Settings(recipe="grpo", data=file), "").tasks.shuffle
    for env, match in (("logged(near=x)", "near='x' is no setting"), ("logged(turns=3)", "horizon=N")):
        with pytest.raises(UserError, match=match):
            bench_of(Settings(recipe="grpo", data=file, env=env))
    with pytest.raises(UserError, match="rows such as"):
        bench_of(Settings(recipe="grpo", env="logged"))
    frame = asyncio.run(bench.world.reset(bench.tasks.task("test", 0), ("k",)))
    assert "arm pulls mean value bonus" in frame.asks[0].say[-1].content and bench_by_name("bandit")[0].max_turns == 64
