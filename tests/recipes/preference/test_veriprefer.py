"""VeriPrefer: scores by simulation, which pairs they make, who writes stimuli, and a user's folder."""

import asyncio
import json
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.recipes.preference import veriprefer

from tests.fake import episode
from tests.tasks.test_designs import folder_of

ADD = "module add(input [1:0] a, input [1:0] b, output [2:0] s); assign s = a + b; endmodule"
runs = pytest.mark.iverilog


def pairs_of(*scores, share=1.0):
    """The gaps of the pairs of groups with these scores, in the order in which they are learned."""
    groups = [pl.Group(task=pl.Task(id=str(i)), episodes=tuple(episode((0,), (1,), x) for x in each))
              for i, each in enumerate(scores)]  # fmt: skip
    signals = [[[{}]] * len(each) for each in scores]
    rows, _ = veriprefer.StrongestPairs(share)(groups, signals, {})
    assert [x.columns["sign"] for x in rows] == [1.0, -1.0] * (len(rows) // 2)
    return [round(float(x.columns["gap"]), 6) for x in rows[::2]]


def test_pairs_are_of_scores_that_differ_the_strongest_first():
    assert pairs_of((1.0, 0.4)) == [0.6]
    assert pairs_of((0.4, 0.4)) == pairs_of((0.0, 0.0)) == pairs_of((1.0,)) == pairs_of() == []
    assert pairs_of((1.0, 0.4), (0.2, 0.2), (1.0, 0.0), (0.5, 0.25)) == [1.0, 0.6, 0.25]
    assert pairs_of((1.0, 0.4), (1.0, 0.0), (0.5, 0.25), (0.3, 0.2), share=0.5) == [1.0, 0.6]
    assert pairs_of((1.0, 0.4), share=0.1) == [0.6]


def reward(text, answer="42", **meta):
    score = veriprefer.build(mutants=0).collect.links[1].reward
    return score.judge(text, pl.Task(id="t", answer=answer, meta=meta)).total


@runs
def test_each_digit_of_the_built_in_problem_is_a_check():
    """Two digits and the end: a wrong digit fails one of three checks, a missing one two."""
    assert [reward(f"= {x}") for x in ("42", "43", "4", "421", "4q", "")] == pytest.approx(
        [1, 2 / 3, 1 / 3, 2 / 3, 0, 0]
    )
    assert reward("no answer") == 0
    assert pl.rewards.digits_design("42") == (
        "module digits(input [3:0] i, output reg [4:0] d);\n"
        "  always @* case (i) 0: d = 5'h4; 1: d = 5'h2; 2: d = 5'h10; default: d = 5'hx; endcase\nendmodule\n"
    )


@runs
def test_a_design_of_a_user_is_simulated():
    """Without the carry bit 2 a sum is right where it is below 4: 10 of 16."""
    assert reward(f"```verilog\n{ADD}\n```", ADD) == 1
    assert reward("```verilog\nassign s = (a + b) & 3'd3;\n```", ADD) == 10 / 16
    assert reward("```verilog\nassign s = a + b; initial $finish;\n```", ADD) == 0
    with pytest.raises(pl.UserError, match="no design in Verilog"):
        reward("x", "s = a + b;")


class Writer:
    """A client that gives these replies in turn, and keeps what it was asked."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    async def chat(self, request):
        self.asked.append(request.messages[-1].content)
        return SimpleNamespace(text=self.replies.pop(0))


def written(writer, task, repairs=2):
    said = []
    ctx = SimpleNamespace(client=lambda source: source, say=said.append)
    group = pl.Group(task=task, episodes=())
    after = asyncio.run(veriprefer.WriteStimuli(writer, repairs)(ctx, (), group))
    return after.task.meta.get("stimuli"), said


TASK = pl.Task(id="t", prompt=(pl.Message(role="user", content="Adds."),), answer=ADD)


def test_a_model_lists_test_points_and_is_shown_what_does_not_fit():
    writer = Writer("Carry.", "a=9 b=0", "a=3 b=1")
    assert written(writer, TASK) == ("a=3 b=1", [])
    assert "Adds." in writer.asked[0] and "a (2 bits), b (2 bits)" in writer.asked[0]
    assert "Carry." in writer.asked[1] and "a=9 does not fit into 2 bits" in writer.asked[2]
    stimuli, said = written(Writer("", "c=1", "none"), TASK, repairs=1)
    assert stimuli is None and "random ones stand" in said[0]


def test_given_stimuli_and_built_in_problems_ask_nobody():
    own = pl.Task(id="t", answer=ADD, meta={"stimuli": "a=1"})
    assert written(Writer(), own) == ("a=1", [])
    assert written(Writer(), pl.Task(id="t", answer="42"))[0] is None


def test_a_weak_bench_makes_no_pair():
    parts = lambda x: pl.Reward(total=1.0, parts={} if x is None else {"mutants_killed": x})
    said = []

    def muted(*shares):
        from dataclasses import replace

        episodes = tuple(replace(episode((0,), (1,), 1.0), reward=parts(x)) for x in shares)
        group = pl.Group(task=pl.Task(id="t"), episodes=episodes)
        link = veriprefer.MuteWeakBenches(0.5)
        return [e.muted for e in asyncio.run(link(SimpleNamespace(say=said.append), (), group)).episodes]

    assert muted(0.5, 0.5) == [False, False] and muted(None, None) == [False, False] and not said
    assert muted(None, 0.25) == [True, True] and "25% of the mutants" in said[0]


@runs
def test_a_folder_of_designs_trains(tmp_path):
    files = {f"{n}.{kind}": text for n in ("a", "b", "c")
             for kind, text in (("txt", f"Write module {n}."), ("v", ADD.replace("add", n)))}  # fmt: skip
    run = pl.train(
        "veriprefer", data=str(folder_of(tmp_path / "designs", files)), out=tmp_path / "run", steps=1, evaluate=0,
        quiet=True, max_tokens=8, set={"schedule.prompts": 2, "n": 2, "mutants": 2},
    )  # fmt: skip
    steps = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert steps[0]["part/mutants_killed"] == 1.0


def test_arguments_out_of_range_are_refused():
    for name, value in (("n", 1), ("kills", 2), ("strongest", 0), ("mutants", -1)):
        with pytest.raises(pl.UserError, match=name):
            veriprefer.build(**{name: value})
