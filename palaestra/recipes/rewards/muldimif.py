"""MulDimIF: a prompt has several constraints that programs can check, and the reward is the number
of them that a reply keeps.

    r = sum_j c_j(y)                 c_j in {0, 1}, checked by programs; evaluation is 1 only if all are kept (arXiv:2505.07591)

in four categories (content, format, language, length) and four levels, by the number of different
kinds of constraints. The sum is a count and no share: under a group's own scale both are the same,
over a batch prompts with more constraints weigh more. GRPO: 32 samples, temperature 0.7, KL 0.001
(k3) as a loss. `every=True` is the reward of the evaluation.

A reply is what follows the thinking. An empty or degenerate one keeps nothing (ours: it would keep
each "at most"). End tokens are cut off as whole suffixes: the released code strips a set of
characters, which eats letters of the text (`variant="released"`). Constraints are read from the
column `constraints`, a list of [category, kind, value ...] such as ["length", "words", "at most", 50];
`palaestra.verifiers.text.constraints` lists the kinds and makes prompts of them, with levels and
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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "constraints",
                "any",
                (
                    [["length", "words", "at most", 50], ["language", "lowercase"]],
                    [["content", "keyword", "rain"], ["length", "words", "at most", 80]],
                ),
                "what the reply must keep, each a list of category, kind and values",
            ),
        ),
        shows="part/share",
        own={"n": 2, "schedule.prompts": 4},
    ),
    use="It helps where instructions have several demands that a program can check and the model keeps "
    "some of them; demands of taste or content need a judge.",
    lacks=(
        "Prompts are rewritten by no model: a pattern puts the constraints into words.",
        "The 1,200 test prompts of the paper, and its analysis of attention modules.",
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
    return rewarded(verifier(every, variant), n, kl, temperature)


def verifier(every: bool, variant: Literal["paper", "released"] = "paper") -> pl.Verified:
    name = "constraints" if variant == "paper" else "constraints(released=True)"
    return pl.Verified(name, paper=not every)


def rewarded(reward: pl.RewardFn, n: int, kl: float, temperature: float) -> pl.Recipe:
    """The method's learner under a reward."""
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=n, temperature=temperature), pl.Score(reward=reward)),
    )


def embedded(
    every: bool = False, n: int = 32, kl: float = 0.001, temperature: float = 0.7
) -> pl.Recipe:
    """On the embedded problem, each character of whose answer is a constraint."""
    places = pl.Rewritten(verifier(every), unless="constraints", write=AsConstraints())
    return rewarded(places, n, kl, temperature)
