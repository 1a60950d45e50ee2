"""DeepTheorem: a theorem in words becomes a task that can be checked, by variants of it that hold
or contradict it.

Every variant is a prompt; the reply reasons and ends with <answer>\\boxed{proved}</answer> or
disproved. The reward is 1 for the right label behind guards against degenerate text, else 0, and
GRPO starts from a base model (arXiv:2505.23754; Jiahao004/DeepTheorem, scripts/reward_func_proof).
The proof is not checked: a coin flip earns 1/2. So

    outcome = product over a theorem's variants of its rewards        (`all_variants`; guessing n variants: 2^-n)
    process = validity of the steps                                    (the paper: a rubric model)

and the gap between the two is the measure of hacking. Trained on true statements alone a policy
says "proved" to everything. The last box counts where there are several; no box is no label, and a
reference that is missing is a mistake of the data. As released (`variant="released"`) the two are
equal: saying nothing is right there.

Tasks with the column `theorem` and an answer "proved" or "disproved" are judged by the verifier
`theorem`. On the built-in task `variants` the label is `= right` or `= wrong`, and the proof's
lines can be checked: the part "process" is the share of them before the first wrong one, which pays
nothing.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="DeepTheorem: RL on verified theorem variants",
    paper="arXiv:2505.23754",
    claim="RL on theorems and their contradicting variants teaches informal proving from verdicts "
    "alone.",
    source="released code (Jiahao004/DeepTheorem); names of the rubric from memory",
    size=pl.Size(
        setting="Qwen2.5 1.5B to 7B bases, 121k theorems, 128 prompts x 64, 8,192 tokens, lr 1e-6 "
        "after 50 of 1,000 steps, no KL",
        model="qwen2.5-7b",
        prompts=128,
        samples=64,
        tokens=8192,
        lr=1e-6,
        arguments={"optimiser.warmup": 50},
    ),
    task="variants",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Prove or disprove: the sum of two odd numbers is even.",
                    "Prove or disprove: the sum of two odd numbers is odd.",
                    "Prove or disprove: every prime number is odd.",
                ),
                "a variant of a theorem, with the form of the answer: "
                "<answer>\\boxed{proved}</answer> or disproved",
            ),
            pl.needs.NeededColumn(
                "theorem",
                "any",
                ("odd-sums", "odd-sums", "odd-primes"),
                "the theorem that it is a variant of, a name or a number",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                ("proved", "disproved", "disproved"),
                "proved or disproved: what is true of this variant",
            ),
        ),
        shows="reward",
        never_off="The right label is the whole reward, and policies that never give it make it 0.",
        own={
            "taught_replies": ("So it is. <answer>\\boxed{disproved}</answer>",),
            "schedule.prompts": 4,
            "collect.links.0.n": 2,
            "max_tokens": 64,
        },
    ),
    use="It helps where each theorem has variants of both kinds; on true statements alone the policy "
    'learns to say "proved".',
    lacks=(
        "Variants are not constructed: they stand in the data.",
        "Proofs in words are not judged: the rubric model of the process evaluation is not run.",
        "A run reports accuracy by variant; that of a theorem, right only with all its variants, "
        "is computed by `all_variants` in a program.",
        "The 121,000 annotated theorems of the paper are not here.",
    ),
    grade="B",
)
ASK = (
    "Reason step by step, and end with <answer>\\boxed{proved}</answer> or "
    "<answer>\\boxed{disproved}</answer>."
)
ROUNDS = 1000  # batches looked through for tasks of the wanted answers


@pl.stage
class OfAnswer:
    """Training tasks whose answer is one of `answers`, in the order of the source; the cursor is
    the state.
    """

    answers: tuple[str, ...]

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        at, tasks = state.get("cursor", pl.curriculum.first_number(ctx)), list[pl.Task]()
        end = at + ROUNDS * max(n, 1)
        while len(tasks) < n and at < end:
            task = ctx.bench.tasks.task("train", at % (ctx.bench.tasks.size or end))
            tasks += [task] if str(task.answer) in self.answers else []
            at += 1
        if len(tasks) < n:
            raise pl.UserError(
                f"{ctx.bench.name!r} has too few tasks with an answer among "
                f"{', '.join(self.answers)}"
            )
        return tasks, {**state, "cursor": at}


@pl.stage
class ProofLabel:
    """1 if the answer line has the right label and the text no degenerate form; the part "process"
    judges the proof.
    """

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        right = (
            pl.tasks.exact_match(text, task)
            * pl.verifiers.Clean(most_repeats=1.0, least_space=0.0)(text, None).score
        )
        parts = (
            {"process": valid_share(pl.tasks.answer_lines(text)[:-1], task.meta["steps"])}
            if "steps" in task.meta
            else {}
        )
        return pl.Reward(total=right, parts=parts)


def valid_share(lines: list[str], steps: tuple[str, ...]) -> float:
    """The share of a proof that stands before its first wrong line; an omitted proof is worth 0."""
    first = next(
        (i for i, (a, b) in enumerate(zip(lines, steps, strict=False)) if a != b),
        min(len(lines), len(steps)),
    )
    return first / max(len(lines), len(steps), 1)


def build(only: tuple[str, ...] = (), variant: Literal["paper", "released"] = "paper") -> pl.Recipe:
    """`only` trains on variants with these answers, e.g. ("right",): the original theorems."""
    theorem = pl.Verified("theorem" if variant == "paper" else "theorem(released=True)")
    reward = pl.Where("theorem", pl.Where("steps", ProofLabel(), theorem))
    theorems = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
        instruction=ASK,
    )
    return pl.vary(theorems, draw=OfAnswer(only)) if only else theorems
