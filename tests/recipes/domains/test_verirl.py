"""VeriRL: scores by trace-back, the pairs they make, sample-balanced weights, repairs, and a user's benches."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.domains import verirl
from palaestra.recipes.domains.verirl.tracing import RAISED, ShowFault, fault_of, preferred_pairs, trace_back
from palaestra.recipes.domains.verirl.weighing import balance

from tests.fake import episode
from tests.verifiers.test_testbench import ADD, BENCH, CARRY

runs = pytest.mark.iverilog


def test_scores_are_traced_back_from_the_leaves():
    """The root, 0.1, has repairs of 0 and 1; that of 0 has repairs of 0.4 and 0.8, so it has 0.6, the root 0.8."""
    assert trace_back([0.1, 0.0, 1.0, 0.4, 0.8], [-1, 0, 0, 1, 1]) == pytest.approx([0.8, 0.6, 1.0, 0.4, 0.8])
    assert trace_back([0.3, 0.7], [-1, -1]) == [0.3, 0.7]
    assert trace_back([], []) == [] and trace_back([0.1, 0.0], [-1, 0]) == [0, 0]


def test_pairs_are_far_apart_and_the_better_one_is_good():
    scores = [1.0, 0.9, 0.5, 0.3, 0.0]
    assert {(scores[i], scores[j]) for i, j in preferred_pairs(scores)} == {(1.0, 0.5), (1.0, 0.3), (0.9, 0.3)}
    assert preferred_pairs([0.8, 0.1]) == preferred_pairs([1.0]) == preferred_pairs([1, 1]) == []


def texts(*pairs):
    """A group of one answer for each (text, score)."""
    from palaestra.types import Row, Segment

    made = []
    for n, (text, score) in enumerate(pairs):
        e = episode((0,), (1,), score)
        say = Segment(ids=(1,), author="policy", text=text, logp=(-0.5,), trained=True, policy="policy", finish="stop")
        made.append(replace(e, rows=(Row(key=("t", n), segments=(*e.rows[0].segments[:1], say)),)))
    return pl.Group(task=pl.Task(id="t"), episodes=tuple(made))


def test_the_reward_model_learns_pairs_of_different_texts():
    rows, _ = verirl.TracedPairs()([texts(("a", 1.0), ("b", 0.5), ("a", 0.3), ("c", 0.9))], (), {})
    assert [x.columns["sign"] for x in rows] == [1.0, -1.0] * 2 and rows[0].unit == rows[1].unit != rows[2].unit
    assert [x.row.segments[-2].text for x in rows] == ["a", "b", "c", "a"]
    every = texts(*((f"{i}", 1.0 if i < 3 else 0.2) for i in range(6)))
    assert len(verirl.TracedPairs()([every], (), {})[0]) == 18 and len(verirl.TracedPairs(4)([every], (), {})[0]) == 8
    assert verirl.TracedPairs()([texts()], (), {})[0] == []


def test_samples_are_balanced():
    alpha_N, beta_N = balance(np.array([0.2, 0.4, 0.6]), np.array([0.9, 0.3, 0.6]))
    assert alpha_N == pytest.approx([1.5, 1.0, 1.5]) and beta_N == pytest.approx([0.5, 0.5, 1.0])
    alpha_N, beta_N = balance(np.array([0.5, 0.5]), np.zeros(2))
    assert alpha_N == pytest.approx([1, 1]) and beta_N == pytest.approx([1, 1])


def advantages(*pairs):
    """(advantage, beta) of answers with these probabilities of their only token, and rewards."""
    made = []
    for n, (p, reward) in enumerate(pairs):
        e = episode((0,), (1,), reward)
        (row,) = e.rows
        said = tuple(replace(s, logp=(float(np.log(p)),)) if s.trained else s for s in row.segments)
        made.append(replace(e, rows=(replace(row, key=("t", n), segments=said),)))
    credit = pl.chain(verirl.BalanceSamples((pl.Center("batch"),)))
    rows, _ = credit([pl.Group(task=pl.Task(id="t"), episodes=tuple(made))], (), {})
    return [(x.columns["advantage"].sum(), x.columns["beta"].sum()) for x in rows]


def test_advantages_are_weighed_behind_the_baseline():
    """Rewards 0.9, 0.3 and 0.6 are 0.3, -0.3 and 0 behind their mean; alpha is 1.5, 1 and 1.5."""
    seen = advantages((0.2, 0.9), (0.4, 0.3), (0.6, 0.6))
    assert [a for a, _ in seen] == pytest.approx([0.45, -0.3, 0.0]) and [b for _, b in seen] == pytest.approx(
        [0.5, 0.5, 1]
    )
    a, b = zip(*advantages((1e-9, 1e-9), *[(1.0, 1.0)] * 9), strict=True)
    assert b[0] == 0.1 and a[0] == pytest.approx(-0.9 * 0.1)  # both ratios are held


def test_equal_rewards_train_nothing_and_only_advantages_count_as_reweighted():
    """Of 0.9, 0.3 and 0.6 the last has no advantage, so its |1.5 - 1| is not counted: (0.5 + 0 + 0) / 3."""
    assert advantages((0.2, 0.5), (0.4, 0.5), (0.6, 0.5)) == advantages((0.5, 0.4)) == []
    table = pl.Table([texts(("a", 0.9), ("b", 0.3), ("c", 0.6))], (), {})
    for n, p in enumerate((0.2, 0.4, 0.6)):
        table.views[n][0].logp_T[-1] = np.log(p)
    verirl.BalanceSamples((pl.Center("batch"),))(pl.Values(level="episode", x_N=table.reward_E), table)
    tracked = next(v for k, v in table.columns.items() if k.endswith("reweighted"))
    assert tracked.x_N == pytest.approx([0.5, 0, 0])


def test_a_reward_model_that_saw_no_pair_is_told():
    note = verirl.BesideSimulation(None, None).first_step_note
    assert "several benches per specification" in note([texts(("a", 0.5), ("b", 0.5))])
    assert note([texts(("a", 0.5), ("b", 0.501))]) == note([texts()]) == ""


def test_low_answers_are_repaired_level_by_level(monkeypatch):
    """0.1 is repaired to 0 and 1, and the 0 to 0.4 and 0.8; 0.5 is left as it is."""
    asked, repairs = [], {0.1: (0.0, 1.0), 0.0: (0.4, 0.8)}

    async def repair(self, ctx, key, task, e):
        asked.append(e.total)
        return texts(*((f"{x}", x) for x in repairs[e.total])).episodes

    monkeypatch.setattr(verirl.TraceBack, "repairs", repair)

    def traced(depth):
        asked.clear()
        group = texts(("a", 0.1), ("b", 0.5))
        made = asyncio.run(verirl.TraceBack(None, depth=depth)(None, (), group))
        return [e.reward.parts[verirl.TRACED] for e in made.episodes], made

    scores, made = traced(2)
    assert scores == pytest.approx([0.8, 0.5, 0.6, 1.0, 0.4, 0.8]) and asked == [0.1, 0.0]
    assert [e.origin and e.origin.parent for e in made.episodes] == [None, None, 0, 0, 2, 2]
    assert [e.total for e in made.episodes] == [0.1, 0.5, 0, 1, 0.4, 0.8]
    assert made.episodes[0].reward.parts[RAISED] == pytest.approx(0.7)
    assert traced(1)[0] == pytest.approx([0.5, 0.5, 0.0, 1.0]) and traced(0)[0] == [0.1, 0.5]


def test_what_is_shown_of_a_fault():
    task = pl.Task(id="t", prompt=(pl.Message(role="system", content="s"), pl.Message(role="user", content="q")))
    shown = ShowFault("module", "wrong")(None, pl.Group(task=task), None).prompt
    assert [(m.role, m.content) for m in shown] == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", "module"),
        ("user", "wrong"),
    ]
    assert fault_of("= 4", replace(task, answer="5")) == "wrong, try again"


@runs
def test_a_user_s_design_is_shown_what_the_bench_says():
    task = pl.Task(id="t", meta={"testbench": BENCH})
    said = fault_of(f"```verilog\n{ADD.replace('a + b', 'a')}\n```", task)
    assert "12 errors" in said and said.endswith(verirl.ASK)
    assert "expected 001" in fault_of(
        f"```verilog\n{ADD.replace('a + b', 'a')}\n```", replace(task, meta={}, answer=ADD)
    )


def test_the_reward_model_pays_and_the_simulator_says_what_is_right():
    class Pays:
        def __init__(self, *rewards):
            self.rewards = rewards

        async def __call__(self, ctx, group):
            return list(self.rewards)

    learned = Pays(pl.Reward(total=0.3, parts={"m": 1.0}), pl.Reward(total=0.4), pl.Fault("model", "x"))
    simulated = Pays(pl.Reward(total=1.0, solved=True), pl.Fault("sandbox", "y"), pl.Reward(total=0.0))
    group = texts(("a", 0), ("b", 0), ("c", 0))
    first, *faults = asyncio.run(verirl.BesideSimulation(learned, simulated)(None, group))
    assert (first.total, first.solved, first.parts) == (0.3, True, {"m": 1.0, "simulated": 1.0})
    assert [f.cause for f in faults] == ["sandbox", "model"]


def test_parts_follow_the_rounds():
    names = lambda **given: list(verirl.build(**given).parts)
    assert names() == ["reward1", "rl1", "refine1", "reward2", "rl2"]
    assert names(rounds=1, by="simulator") == ["rl1"] and names(rounds=1, demonstrations="x.jsonl")[0] == "sft"
    parts = verirl.build(demonstrations="x.jsonl").parts
    assert [parts[n].model.part for n in ("reward1", "rl1", "refine1", "reward2", "rl2")] == [
        "sft", "sft", "rl1", "refine1", "refine1",
    ]  # fmt: skip
    assert [verirl.above(np.array(x)) for x in ([0.8, 0.81, 1.0], [])] == [[1, 2], []]
    for name, value in (("rounds", 0), ("answers", 1), ("depth", -1), ("children", 0)):
        with pytest.raises(pl.UserError, match=name):
            verirl.build(**{name: value})


def rows_of(path, **columns):
    rows = [{"id": f"{i}", "prompt": f"Write the Verilog module add, number {i}.", **columns} for i in range(4)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


SMALL = {"rounds": 1, "answers": 2, "n": 2, "children": 1, "depth": 1, "reward1.schedule.prompts": 2}


@runs
def test_a_user_s_benches_train_and_judge_held_out_problems(tmp_path):
    run = pl.train(
        "verirl", data=rows_of(tmp_path / "d.jsonl", testbench=[BENCH, CARRY]), out=tmp_path / "run", steps=1, evaluate=1,
        reward="verilog", quiet=True, max_tokens=8, set={"rounds": 1, "n": 2, "by": "simulator", "schedule.prompts": 2},
    )  # fmt: skip
    lines = [json.loads(x) for x in (run.folder / "rl1" / "metrics.jsonl").read_text().splitlines()]
    (step,) = (x for x in lines if "part/passed" in x)
    assert step["part/passed"] == 0.0 and not {"updates", "reweighted"} & step.keys()  # all are wrong


@runs
def test_an_empty_bench_stops_the_run(tmp_path):
    bench = BENCH.replace("errors == 0", "1")
    with pytest.raises(pl.UserError, match="passes an empty module"):
        pl.train(
            "verirl", data=rows_of(tmp_path / "d.jsonl", testbench=bench), out=tmp_path / "run", steps=1, evaluate=0,
            quiet=True, max_tokens=8, set=SMALL,
        )  # fmt: skip
