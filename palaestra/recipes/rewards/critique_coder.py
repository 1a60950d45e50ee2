"""Critique-Coder: one policy solves and criticises, both in every batch of GRPO.

A share of the prompts, 20%, chosen once per problem, becomes a question about a candidate solution
by another model:

    solve      r = share of the unit tests that pass
    critique   r = weight * [label = c*],   c* = T if the candidate passes more than 80% of the tests, else F

The critique ends with \\conclusion{T} or \\conclusion{F}; its text is not scored (arXiv:2509.22824;
TIGER-AI-Lab/Critique-Coder, reward_manager/crl.py). Candidates are drawn so that c* is balanced.
`weight` is 0.8 in a first stage of shorter answers (paper; the released code has no such factor):
after division by the group's standard deviation it changes nothing.

`variant="released"`: the share of the first 10 tests unless all pass, and a label that reads any
capital T as true, then any capital F as false, anywhere in the reply: "NOT SURE" is true. The
paper's arm takes exactly T or F behind the thinking, and several different labels are none. Of code
the last Python block is run, where the released reward joins all of them.

Tasks with the column `tests` are code. Any other task keeps its own check, and its candidates are
judged `= right` or `= wrong`.
"""

import re
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="Critique-Coder: critique RL",
    paper="arXiv:2509.22824",
    claim="Replacing a fifth of the coding problems by critiques of solutions makes a better coder "
    "than solving alone.",
    source="released code (TIGER-AI-Lab/Critique-Coder); the mix, the 80% and the 0.8 from two "
    "public summaries",
    size=pl.Size(
        setting="Qwen3-4B and 8B, 128 prompts x 8, minibatches of 64, lr 1e-6, temperature 0.6, "
        "top-p 0.95, top-k 20 (not built), 16k then 32k tokens, no KL; candidates of "
        "Qwen3-Coder-30B-A3B",
        model="qwen3-8b",
        prompts=128,
        samples=8,
        tokens=32768,
        lr=1e-6,
        arguments={"update.minibatches": 2},
    ),
)
Variant = Literal["paper", "released"]
CONCLUSION = re.compile(r"\\conclusion\{([^{}]{0,100})\}")
ASK = (
    "Is this solution right? Write a critique and end it with \\conclusion{T} if it is, "
    "\\conclusion{F} if not."
)
LEAST = 0.8  # share of tests above which a candidate counts as right


@pl.declare(columns=("label",))
@pl.stage
class Criticise:
    """Plays `n` episodes of each task; a share of the tasks becomes questions about a candidate,
    judged by `reward`, before.

    The candidate is, of `candidates` by `model`, the first that has the label which a fair coin
    asks for, else the first.
    """

    n: int = 8
    share: float = 0.2
    candidates: int = 2
    model: str = "start"
    reward: pl.RewardFn | None = None

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return await pl.Sample(n=self.n)(ctx, key, await self.ask_critique(ctx, key, group))

    async def ask_critique(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        """The group, or the question about a candidate in its place."""
        rng = pl.rng_of(("critique", ctx.seed, group.task.id))
        if rng.random() >= self.share:
            return group
        sampled = await pl.Sample(n=self.candidates, model=self.model)(
            ctx, (*key, "candidates"), group
        )
        scored = (await pl.Score(reward=self.reward)(ctx, key, sampled)).valid
        found = [
            (pl.response_text(e), e.total > LEAST)
            for e in scored
            if is_usable(pl.response_text(e), group.task)
        ]
        wanted = bool(rng.random() < 0.5)
        text, right = next((f for f in found if f[1] == wanted), found[0]) if found else ("", False)
        return replace(group, task=critique(group.task, text, right)) if found else group


def is_usable(text: str, task: pl.Task) -> bool:
    """A candidate with something in it: a block of code where the task wants one."""
    blocks = pl.verifiers.code_blocks(text) if "tests" in task.meta else [text]
    return any(b.strip() for b in blocks)


def critique(task: pl.Task, text: str, right: bool) -> pl.Task:
    """The question about a candidate. Its text is untrusted, but only what the policy says is read
    for a label.
    """
    if "tests" not in task.meta:
        made = pl.tasks.judging_task(task, text, right)
        return replace(made, id=f"{task.id}/critique", meta={"label": right})
    question = "\n\n".join([task.prompt[-1].content, f"Solution:\n{text}", ASK])
    prompt = (*task.prompt[:-1], pl.Message(role="user", content=question))
    return replace(
        task, id=f"{task.id}/critique", prompt=prompt, answer="FT"[right], meta={"label": right}
    )


@pl.declare(reads_columns=("label",))
@pl.stage
class CritiqueLabel:
    """`weight` for the right label of a critique, else 0."""

    weight: Any = 1.0
    variant: Variant = "paper"

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        if task.answer not in ("T", "F"):
            right = pl.tasks.exact_match(text, task)
        elif self.variant == "paper":
            right = pl.Verified("label").judge(text, task).total
        else:
            right = float(released_verdict(text) == task.meta["label"])
        return pl.Reward(total=self.weight * right, parts={"critique": right})


def released_verdict(text: str) -> bool | None:
    """The released parser: the last label anywhere, true for any capital T in it, else false for
    any capital F.
    """
    found = CONCLUSION.findall(text)
    return None if not found else True if "T" in found[-1] else False if "F" in found[-1] else None


def build(share: float = 0.2, variant: Variant = "paper", stage_one: int = 0) -> pl.Recipe:
    """`share` of critiques; until the step `stage_one` they are worth 0.8."""
    solve = pl.Where(
        "tests", pl.Verified("code-partial" if variant == "paper" else "code-partial(first=10)")
    )
    weight = pl.Jump(0.8, 1.0, stage_one) if variant == "paper" and stage_one else 1.0
    reward = pl.Where("label", CritiqueLabel(weight, variant), solve)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            Criticise(share=share, reward=solve),
            pl.Score(reward=reward),
            pl.rollout.MuteTruncated(),
        ),
        credit=pl.chain(pl.Center("group"), pl.Scale("group")),
        objective=pl.Clipped(high=0.3, reduce="tokens"),
        references={"start": "policy"},
    )
