"""Critique-Coder: GRPO on coding problems, a fifth of which ask for a critique of a solution
instead of a solution.

For 20% of the problems, chosen once per problem, the policy is shown a candidate solution and says
whether it is right. It learns from both kinds in every batch:

    solve      r = share of the unit tests that pass
    critique   r = weight * [label = c*],   c* = T if the candidate passes more than 80% of the tests, else F

A critique ends with \\conclusion{T} or \\conclusion{F}; its text is not scored (arXiv:2509.22824;
TIGER-AI-Lab/Critique-Coder, reward_manager/crl.py). Candidates come from the column `solutions` of
the data, else from the model `writer` (the start of the policy by default); they are drawn so that
c* is balanced. `weight` is 0.8 in a first stage of shorter answers (paper; the released code has no
such factor): division by the group's standard deviation removes it.

`variant="released"`: the share of the first 10 tests unless all pass, and a label that reads any
capital T as true, then any capital F as false, anywhere in the reply: "NOT SURE" is true. The
paper's arm takes exactly T or F behind the thinking, and several different labels count as none. Of
code the last Python block is run, where the released reward joins all of them.

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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Write a Python function f(x) that returns x + 1.", "Write f(x), twice x."),
                "the problem",
            ),
            pl.needs.NeededColumn(
                "tests",
                "texts",
                (["assert f(1) == 2", "assert f(-1) == 0"], ["assert f(1) == 2"]),
                "unit tests, each a Python statement that runs behind the code of a reply",
                otherwise="the problem is no code, and its `answer` is compared",
            ),
            pl.needs.NeededColumn(
                "solutions",
                "texts",
                (
                    ["```python\ndef f(x): return x + 1\n```", "```python\ndef f(x): pass\n```"],
                    ["```python\ndef f(x): return x ** 2\n```"],
                ),
                "candidate solutions by another model, which critiques are about",
                otherwise="the model `writer` writes them",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "writer of candidates",
                "writer",
                "writes the solutions that critiques are about, where the data has none",
                otherwise="the start of the policy writes them",
            ),
        ),
        shows="part/criticised",
        off={"share": 0.0},
        own={"share": 0.5, "schedule.prompts": 4, "collect.links.0.n": 2},
    ),
    use="It helps where unit tests are reliable and candidates are right about as often as wrong; "
    "with candidates of one kind a constant label earns the reward.",
    lacks=(
        "Problems are not filtered by the length and number of their tests.",
        "BBEH and LiveCodeBench are not evaluated.",
        "The writer of candidates is a folder or an id of the hub; an endpoint cannot write them.",
    ),
    grade="A",
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

    The candidate is the first that has the label which a fair coin asks for, else the first, of the
    task's `solutions`, or of `candidates` answers of `model`.
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
        written = await self.write_candidates(ctx, key, group)
        scored = (await pl.Score(reward=self.reward)(ctx, key, written)).valid
        texts = [(pl.response_text(e), e.total > LEAST) for e in scored]
        usable = [(text, right) for text, right in texts if is_usable(text, group.task)]
        if not usable:
            return group
        wanted = bool(rng.random() < 0.5)
        text, right = next((x for x in usable if x[1] == wanted), usable[0])
        return replace(group, task=critique(group.task, text, right))

    async def write_candidates(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        """The task's own solutions as episodes, in an order by chance, or those of the model."""
        texts = [str(text) for text in group.task.meta.get("solutions") or ()]
        if not texts:
            sample = pl.Sample(n=self.candidates, model=self.model)
            return await sample(ctx, (*key, "candidates"), group)
        order = pl.rng_of(("solutions", ctx.seed, group.task.id)).permutation(len(texts))
        recorded = (
            pl.recorded_episode(ctx, "policy", group.task.prompt, texts[i], 0.0) for i in order
        )
        return replace(group, episodes=tuple(replace(e, reward=None) for e in recorded))


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
    """`weight` for the right label of a critique, else 0. The part "criticised" is the share of
    critiques among the answers of a step.
    """

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
        return pl.Reward(total=self.weight * right, parts={"critique": right, "criticised": 1.0})


def released_verdict(text: str) -> bool | None:
    """The released parser: the last label anywhere, true for any capital T in it, else false for
    any capital F.
    """
    labels = CONCLUSION.findall(text)
    return (
        None if not labels else True if "T" in labels[-1] else False if "F" in labels[-1] else None
    )


def build(
    share: float = 0.2, variant: Variant = "paper", stage_one: int = 0, writer: str = "policy"
) -> pl.Recipe:
    """`share` of critiques; until the step `stage_one` they are worth 0.8. `writer` is a folder or
    a hub id, "policy" the start.
    """
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
        references={"start": writer},
    )
