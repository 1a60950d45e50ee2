"""MulDimIF: instructions with several constraints, and the number that is kept as the reward.

    r = sum_j c_j(y)                 c_j in {0, 1}, checked by programs; evaluation is 1 only if all are kept (arXiv:2505.07591)

in four categories (content, format, language, length) and four levels, by the number of different
kinds of constraints. The sum is a count and no share: under a group's own scale both are the same,
over a batch prompts with more constraints weigh more. GRPO: 32 samples, temperature 0.7, KL 0.001
(k3) as a loss. `every=True` is the reward of the evaluation.

A reply is what follows the thinking. An empty or degenerate one keeps nothing (ours: it would keep
each "at most"). End tokens are cut off as whole suffixes: the released code strips a set of
characters, which eats letters of the text (`variant="released"`). Constraints are read from the
column `constraints`; `palaestra.verifiers.text.constraints` makes prompts of them, with levels and
conflicts.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="Multi-dimensional constraint framework for instruction following",
    paper="arXiv:2505.07591",
    claim="RL on the number of constraints that are kept makes models follow instructions with "
    "several constraints.",
    source="released code (Junjie-Ye/MulDimIF: reward_manager/muldimif.py, evaluation.py, "
    "run_grpo.sh); levels second-hand",
    size=pl.Size(
        setting="six LLMs up to 14B, 7,906 prompts, 32 samples, batch 32, lr 1e-6, KL 0.001, 8,192 "
        "tokens, one epoch",
        model="qwen2.5-14b",
        prompts=32,
        samples=32,
        tokens=8192,
        lr=1e-6,
    ),
)


@pl.stage
class AsConstraints:
    """Each character of the reference is a constraint: the answer must have it in that place."""

    def __call__(self, text: str, task: pl.Task) -> pl.rewards.VerifierInput:
        wanted = [["content", "keyword", word] for word in place_letters(str(task.answer))]
        answer = pl.tasks.final_answer(text)
        return (
            "" if answer is None else " ".join(place_letters(answer)),
            None,
            {"constraints": wanted},
        )


def place_letters(answer: str) -> list[str]:
    """`TF` as p0xT, p1xF."""
    return [f"p{i}x{c if c.isalnum() else ord(c)}" for i, c in enumerate("".join(answer.split()))]


def build(
    every: bool = False,
    n: int = 32,
    kl: float = 0.001,
    temperature: float = 0.7,
    variant: Literal["paper", "released"] = "paper",
) -> pl.Recipe:
    name = "constraints" if variant == "paper" else "constraints(released=True)"
    reward = pl.Rewritten(
        pl.Verified(name, paper=not every), unless="constraints", write=AsConstraints()
    )
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=n, temperature=temperature), pl.Score(reward=reward)),
    )
