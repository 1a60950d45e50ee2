"""VeriRL: reinforcement learning of Verilog by a reward model that learns from traced-back scores.

A design's score r in [0, 1] is the share of its test benches that it passes; 0 if it does not compile. A
round has three parts, and the next round begins with what they made:

    1. Reward model. `answers` designs are sampled for each specification. One with r < 0.2 is shown to the
       policy with what the compiler or the bench said, `children` times, and again for the repairs, `depth`
       levels deep. Scores are traced back from the leaves:

           s(answer) = r                         where nothing was repaired
           s(answer) = mean of s(its repairs)    else

       An answer i is preferred to j if s_i > s_j + 0.4, s_i > 0.8 and s_j > 0, and

           loss = -mean log sigmoid(R(q, i) - R(q, j))

    2. REINFORCE++ on `n` answers, with sigmoid(R) as the reward and sample-balanced weights: with P the
       geometric mean of an answer's token probabilities and a bar for the mean of the batch,

           p = P / P-bar,  q = sigmoid(R) / sigmoid(R)-bar,  alpha = max(p, q),  beta = min(p, q)
           loss = beta KL(pi || pi_old) - alpha min(rho A, clip(rho, 1 - eps, 1 + eps) A)

       both held within [0.1, 5], and without a gradient. KL is (log rho)^2 / 2.
    3. Supervised fine-tuning on answers of this policy with r > 0.8; the last round has none.

(arXiv:2508.18462, read in two public notes on the full text: the paper's alpha and beta have R itself, whose
sign is open, and the probability of the whole answer, which underflows; what stands for them is ours.)

    palaestra train verirl --data designs.jsonl --model DIR

`designs.jsonl` has `prompt`, a specification that names the module and its ports, and `testbench`, a list of
several self-checking benches in Verilog (or one: then r is 0 or 1, and without a lucky repair there is no pair);
a bench prints "passed", or a count of 0 errors. A bench that an empty design passes is refused. A reward model that
saw no pair pays every answer 0.5: the run says so, and the policy stays as it is. Without benches, `answer` is a
reference design, and stimuli for it are made (`palaestra needs veriprefer`). Held-out specifications are judged in
the same way. Needs Icarus Verilog (`apt install iverilog`). Worked answers (prompt, demonstration)
are imitated first with `demonstrations=FILE.jsonl`. Without --data, the digits that the built-in model answers are
written as a table in Verilog, and it is told that a wrong one is wrong. `palaestra train verirl --seed 0`: held-out
accuracy is 21% at the start, 99% after the first round's policy, 100% after its fine-tuning, and 99% at the end: the
second reward model finds few answers to tell apart, and what it teaches adds nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.verirl.tracing import (
    ASK,
    BEST,
    GAP,
    LEAST,
    TRACED,
    VERIFIER,
    TraceBack,
    TracedPairs,
)
from palaestra.recipes.domains.verirl.weighing import ROUNDING, BalanceSamples

CARD = pl.Card(
    title="VERIRL: Verilog RL, trace-back rescore",
    paper="arXiv:2508.18462",
    claim="A reward model on traced-back scores, and weights that balance how likely and how good a sample is, "
    "write more functionally correct Verilog than plain REINFORCE++.",
    source="two public reading notes on the full text, which agree on the numbers, and the abstract; the "
    "repository (omniAI-Lab/VeriRL) has prompts and inference alone",
    size=pl.Size(
        setting="Qwen2.5-Coder-7B-Instruct and DeepSeek-Coder-6.7B, Veribench-53K; 10 answers a "
        "specification for the reward model, 256 prompts of 4 samples, train batch 128, lr 5e-7",
        model="qwen2.5-7b",
        prompts=256,
        samples=4,
        tokens=2048,
        lr=5e-7,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Write the Verilog module invert(input a, output y), which inverts.",
                    "Write the Verilog module same(input a, output y), which repeats a.",
                ),
                "a specification with the name of the module and its ports",
            ),
            pl.needs.NeededColumn(
                "testbench",
                "any",
                (
                    "module tb; reg a; wire y; invert dut(.a(a), .y(y)); initial begin a = 0; #1 "
                    'if (y === 1) $display("passed"); else $display("failed"); $finish; end endmodule',
                    "module tb; reg a; wire y; same dut(.a(a), .y(y)); initial begin a = 1; #1 "
                    'if (y === 1) $display("passed"); else $display("failed"); $finish; end endmodule',
                ),
                "self-checking test benches in Verilog, a list of several: one alone makes a score 0 or 1, "
                "and then only a repaired design can be the worse one of a pair",
                or_else="answer",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                (
                    "module invert(input a, output y); assign y = ~a; endmodule",
                    "module same(input a, output y); assign y = a; endmodule",
                ),
                "a reference design in Verilog",
                otherwise="test benches judge alone",
            ),
        ),
        shows="reweighted",
        off={"balanced": False},
        own={
            "task": "chain",  # the built-in model writes no Verilog, so all its designs score 0
            "rounds": 1,
            "answers": 2,
            "n": 2,
            "children": 1,
            "depth": 1,
            "reward1.schedule.prompts": 2,
            "rl1.schedule.prompts": 2,
        },
    ),
    use="It helps where most designs fail, several benches per specification tell how far each one is right, and a "
    "shown error lets the model mend some; where the simulator can judge each sample, `by=simulator` pays its score "
    "and needs no reward model.",
    lacks=(
        "The data set Veribench-53K, its selection from PyraNet, its complexity labels and its rewritten "
        "specifications are not there: bring specifications with benches.",
        "A design that does not compile is scored by its repairs alone, as the formula has it, so it may be preferred "
        "to one that compiles.",
        "Answers have no <REASON> and <SOLUTION> tags; a block of Verilog ends them.",
        "The reward model is trained anew in each round on a copy of the policy; the paper does not say how "
        "the two evolve together.",
        "VerilogEval and RTLLM are not run, and pass@k is measured by `palaestra evaluate` alone.",
        "Without --data, no model writes Verilog: digits are put into a table.",
    ),
    grade="B",
)
UNTRAINED = 0.5  # sigmoid of a reward model's head that never learned


@pl.stage
class BesideSimulation:
    """The reward of `model`, with the parts that the simulator pays and what it pays in all, "simulated"."""

    model: pl.RewardFn
    simulator: pl.RewardFn

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        learned = await pl.judge_group(ctx, self.model, group)
        simulated = await pl.judge_group(ctx, self.simulator, group)
        return [
            b if isinstance(b, pl.Fault) else a if isinstance(a, pl.Fault) else merged(a, b)
            for a, b in zip(learned, simulated, strict=True)
        ]

    def first_step_note(self, groups: Sequence[pl.Group]) -> str:
        """Where the reward model scores nothing: it saw no pair, and the policy learns nothing of it."""
        totals = [e.total for g in groups for e in g.valid if e.reward is not None]
        if not totals or any(abs(x - UNTRAINED) > ROUNDING for x in totals):
            return ""
        return (
            f"the reward model gives every answer {UNTRAINED}, as one that saw no pair of designs does, so the "
            f"policy learns nothing in this part: a pair needs a design above {BEST} and one that is above "
            f"{LEAST:g} and worse by more than {GAP}; give several benches per specification, so that designs "
            "are right in part, more answers=..., a model that solves some, or by=simulator"
        )


def merged(learned: pl.Reward, simulated: pl.Reward) -> pl.Reward:
    """The learned reward with what the simulator says."""
    parts = {**learned.parts, **simulated.parts, "simulated": simulated.total}
    return replace(learned, parts=parts, solved=simulated.solved)


def reward_part(
    reward: pl.RewardFn, answers: int, children: int, depth: int, temperature: float, lr: float
) -> pl.Recipe:
    """A reward model on traced-back scores of the policy, which stays as it is."""
    sample = pl.Sample(n=answers, temperature=temperature)
    traced = TraceBack(reward, children=children, depth=depth, temperature=temperature)
    return pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(sample, pl.Score(reward=reward), traced),
        learners={
            "reward": pl.Learner(
                credit=pl.Labelled(TRACED, TracedPairs()),
                objective=pl.BradleyTerry(),
                heads=("score",),
                optimiser=pl.AdamW(lr=lr),
            )
        },
        instruction=ASK,
    )


def rl_part(
    reward: pl.RewardFn, by: str, n: int, temperature: float, balanced: bool, minibatches: int
) -> pl.Recipe:
    """REINFORCE++ by the reward model or the simulator."""
    learned = BesideSimulation(pl.Learned("reward", squash=True), reward)
    parent = pl.recipe("reinforce-plus-plus", kl=0.0)
    whiten: Any = parent.learners["policy"].credit
    loss: Any = parent.learners["policy"].objective
    kl = pl.KL("k2", model="behaviour", weight="beta", reduce="tokens")
    return pl.vary(
        parent,
        collect=pl.links(
            pl.Sample(n=n, temperature=temperature),
            pl.Score(reward=learned if by == "model" else reward),
        ),
        update=pl.Plain(minibatches=minibatches),
        instruction=ASK,
        **(
            {
                "credit": pl.chain(BalanceSamples(whiten.links)),
                "objective": loss + kl,
            }
            if balanced
            else {}
        ),
    )


def above(reward_G: np.ndarray) -> Sequence[int]:
    """The places of answers that are imitated."""
    return np.flatnonzero(reward_G > BEST).tolist()


def refine_part(reward: pl.RewardFn, n: int, temperature: float) -> pl.Recipe:
    """Supervised fine-tuning on the policy's own answers that pass."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(
            pl.Sample(n=n, temperature=temperature),
            pl.Score(reward=reward),
            pl.rollout.Pick(above),
        ),
        schedule=pl.Schedule(),
        instruction=ASK,
    )


def build(
    rounds: int = 2,
    by: Literal["model", "simulator"] = "model",
    answers: int = 10,
    children: int = 2,
    depth: int = 2,
    n: int = 4,
    balanced: bool = True,
    minibatches: int = 4,
    temperature: float = 1.0,
    reward_lr: float = 1e-5,
    demonstrations: str = "",
) -> pl.Pipeline:
    """Args:
    by: whose score the policy is paid: the reward model's, or the simulator's, the control that has no
        reward model.
    children: repairs of a design; `depth` 0 is no trace-back.
    balanced: sample-balanced weights; without them it is REINFORCE++.
    minibatches: optimiser steps of a step of the policy; with one, KL is 0.
    reward_lr: learning rate of the reward model.
    """
    pl.check_bounds("verirl: rounds", rounds, least=1)
    pl.check_bounds("verirl: answers", answers, least=2)
    pl.check_bounds("verirl: children", children, least=1)
    pl.check_bounds("verirl: depth", depth, least=0)
    reward = pl.Rewritten(pl.Verified(VERIFIER), unless="testbench", write=pl.rewards.AsDesign())
    parts, start = dict[str, pl.Part](), None
    if demonstrations:
        parts["sft"], start = pl.Part(pl.recipe("sft"), data=demonstrations), pl.Output("sft")
    for i in range(1, rounds + 1):
        models: Mapping[str, pl.Output] = {}
        if by == "model":
            scored = reward_part(reward, answers, children, depth, temperature, reward_lr)
            parts[f"reward{i}"] = pl.Part(scored, model=start)
            models = {"reward": pl.Output(f"reward{i}", "reward")}
        rl = rl_part(reward, by, n, temperature, balanced, minibatches)
        parts[f"rl{i}"], start = pl.Part(rl, model=start, models=models), pl.Output(f"rl{i}")
        if i < rounds:
            refined = refine_part(reward, n, temperature)
            parts[f"refine{i}"] = pl.Part(refined, model=start)
            start = pl.Output(f"refine{i}")
    return pl.Pipeline(parts=parts)


def embedded(answers: int = 8, reward_lr: float = 1e-3, **options: Any) -> pl.Pipeline:
    """On the built-in problem: a few steps of each part."""
    made = build(answers=answers, reward_lr=reward_lr, **options)
    steps = {"reward": 10, "rl": 10, "refine": 4}
    return pl.Pipeline(
        parts={
            name: replace(
                part,
                runnable=pl.vary(
                    part.runnable,
                    schedule=pl.Schedule(prompts=8, steps=steps[name.rstrip("0123456789")]),
                    instruction="",
                ),
            )
            if name != "sft"
            else part
            for name, part in made.parts.items()
        }
    )
