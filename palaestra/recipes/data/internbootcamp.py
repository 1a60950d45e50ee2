"""InternBootcamp: many families of puzzles, each with a generator and a verifier, as one training
set.

The score of a reply (arXiv:2508.08636; InternLM/InternBootcamp, bootcamp/base.py), j what the
family's verifier says of the last answer in it:

    0                        where the thinking is not once in <think></think> at its start (`thinking`)
    0                        where no answer is found
    1                        j is the full score
    j                        j lies between
    form                     the answer is wrong
    min(s c / 256, s a / 128)     of a score s where the reply has c < 256 characters, or a < 128 behind
                             </think>   (`short`)

Training is GRPO on a mixture of families. With the defaults of the released code (`form` 0, no price of
brevity, no tags) the score is the verifier's own, and nothing else differs from GRPO: what is new is the
number of families, and what is measured of them. A family is a value of the column `domain` of a user's
file, or a part of a mixture, of reasoning-gym's (extra gym) or the built-in ones:

    palaestra train internbootcamp --model smollm2 --task 'rg:chain_sum+rg:letter_counting+rg:gcd'

Their verifiers know rules where many answers are right. The evaluation, before the first step and after the
last one, is of every family's held-out problems, of the mixture `unseen` of families that are not trained
on, and of the verifiers: each family is audited on `audited` of its problems, how many count as solved by
the reference answer, by what solves nothing (empty replies, the question again, talk to a judge), and by
the reference with one character changed. Of the last some may be right answers too, or near enough where
a verifier has a tolerance or pays by parts.

Deviations: a verifier that fails is an error of the episode and never a score, where the released
code gives `form`; a verifier's number 0 and False are one thing here, and there only False earns
`form`. The released `short` reads a as 0 where no </think> stands, so such replies are worth nothing;
so here. Writing environments by language models is not built: the registry is the user's.
What SmolLM2 makes of it stands in docs/runs.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="InternBootcamp: verifiable task scaling (1000+ environments)",
    paper="arXiv:2508.08636",
    claim="Training on more families of verifiable tasks raises accuracy on families that were not "
    "trained on.",
    source="released code (InternLM/InternBootcamp, bootcamp/base.py) and the abstract",
    size=pl.Size(
        setting="a 32B model on more than 1,000 environments; gains over two orders of magnitude of "
        "tasks",
        model="qwen2.5-32b",
    ),
    task="add(d=4)+bool(d=4)+sort(d=4)",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "domain",
                "text",
                ("sums", "puzzles"),
                "the family of a record",
                otherwise="all records are one family",
            ),
        ),
        shows="part/form",
        off={"form": 0.0},
        own={"form": 0.1, "audited": 2, "schedule.prompts": 4, "collect.links.0.n": 2},
    ),
    use="It helps to see whether more kinds of tasks carry over to kinds that were not trained on; on one "
    "family it is GRPO.",
    lacks=(
        "The 1,000 environments are not there; reasoning-gym has about a hundred.",
        "No agents write environments and their verifiers, and records of a file have no "
        "generator.",
        "Bootcamp-Eval, the benchmark of the paper, is not there; `unseen` measures families of your "
        "own choice.",
        "Task scaling, the accuracy by the number of families that are trained on, is not one run: "
        "train on mixtures of several sizes and compare them on one `unseen`.",
    ),
    grade="C",
)
SHORT, SHORT_ANSWER = 256, 128  # characters of a reply, and behind its thinking


def is_thought_once(text: str) -> bool:
    """Whether a reply begins with its thinking, once, and does not end with it."""
    once = text.count("<think>") == text.count("</think>") == 1
    return once and text.startswith("<think>") and not text.endswith("</think>")


def bootcamp_score(
    judged: float | None,
    text: str,
    *,
    form: float = 0.0,
    short: bool = False,
    thinking: bool = False,
) -> float:
    """The score of a reply; `judged` is the verifier's, in [0, 1], None where no answer is found."""
    if judged is None or (thinking and not is_thought_once(text)):
        return 0.0
    score = judged if judged > 0 else form
    answer = text.rpartition("</think>")[2] if "</think>" in text else ""
    if short and (len(text) < SHORT or len(answer) < SHORT_ANSWER):
        return min(score * len(text) / SHORT, score * len(answer) / SHORT_ANSWER)
    return score


@pl.stage
class BootcampScore:
    """What the bench pays, as a score with a part for form and a price of brevity. Whether an answer
    is right is said by the bench alone.
    """

    form: float = 0.0
    short: bool = False
    thinking: bool = False

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        if ctx.bench.reward is None:
            raise pl.UserError(
                f"{ctx.bench.name} pays by itself, and a family of puzzles is judged by a verifier; use "
                "--task or --data with answers"
            )
        found = await pl.judge_group(ctx, ctx.bench.reward, group)
        pairs = zip(found, group.episodes, strict=True)
        return [
            r if isinstance(r, pl.Fault) else self.score(r, pl.response_text(e)) for r, e in pairs
        ]

    def score(self, judged: pl.Reward, text: str) -> pl.Reward:
        answered = judged.total > 0 or finds_answer(text)
        total = bootcamp_score(
            min(1.0, judged.total) if answered else None,
            text,
            form=self.form,
            short=self.short,
            thinking=self.thinking,
        )
        form = total if judged.total <= 0 else 0.0
        parts = {**judged.parts, "verified": judged.total, "form": form}
        return replace(judged, total=total, parts=parts)


def finds_answer(text: str) -> bool:
    """Whether a reply states an answer: in a box or in tags, announced, or on its last line."""
    return pl.stated_answer(text) is not None or pl.tasks.final_answer(text) is not None


def change_one(answer: str, rng: np.random.Generator) -> str:
    """The answer with one of its letters or digits changed into another one; one more digit where
    it has none.
    """
    places = [i for i, c in enumerate(answer) if c.isascii() and c.isalnum()]
    if not places:
        return f"{answer}1"
    at = places[int(rng.integers(len(places)))]
    alphabet = "0123456789" if answer[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    others = [c for c in alphabet if c != answer[at].lower()]
    return answer[:at] + str(rng.choice(others)) + answer[at + 1 :]


@pl.stage
class VerifierAudit:
    """An evaluator: what each family's verifier pays. Nothing is sampled.

    By domain the shares of `tasks` held-out problems that count as solved by the reference ("gold"),
    by the reference with a character changed ("changed"), and by a reply that solves nothing, the
    most of these ("nothing").
    """

    tasks: int = 8

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        if ctx.bench.reward is None:
            return {}
        parts = pl.curriculum.arms_of(ctx.bench.tasks)
        audits = {part.name: await self.audit(ctx, part, len(parts) > 1) for part in parts}
        return {name: shares for name, shares in audits.items() if shares}

    async def audit(self, ctx: pl.Context, part: pl.Tasks, mixed: bool) -> dict[str, float]:
        size = part.test_size if isinstance(part, pl.abilities.HeldOutSize) else None
        numbers = range(self.tasks if size is None else min(self.tasks, size))
        if not numbers:  # no record of this family is held out
            return {}
        tasks = [
            pl.tasks.part_task(part, "test", i) if mixed else part.task("test", i) for i in numbers
        ]

        def gold(task: pl.Task) -> str:
            return pl.tasks.demonstration(part, task, pl.rng_of(("audit", task.id)), "guess")

        def changed(task: pl.Task) -> str:
            wrong = change_one(str(task.answer), pl.rng_of(("audit", task.id, "changed")))
            return gold(replace(task, answer=wrong))

        assert ctx.bench.reward is not None
        paid = await pl.judges.attack_reward(
            ctx.bench.reward,
            tasks,
            gold=gold,
            above=pl.SOLVED_TOTAL - 1e-9,
            also={"changed": changed},
            ctx=ctx,
        )
        nothing = [v for k, v in paid.items() if k not in ("gold", "changed")]
        return {"gold": paid["gold"], "changed": paid["changed"], "nothing": max(nothing)}


def build(
    form: float = 0.0,
    short: bool = False,
    thinking: bool = False,
    audited: int = 8,
    unseen: str = "",
    n: int = 64,
) -> pl.Recipe:
    """`form` is paid for a wrong answer in its place, `short` lowers the pay of brief replies. `unseen`
    are families that `n` held-out problems are taken of and none is trained on, as --task names them.
    """
    score = pl.Score(reward=BootcampScore(form, short, thinking))
    audit = {"audit": VerifierAudit(audited)} if audited else {}
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), score),
        evaluate=audit | ({"unseen": pl.run.Exam(unseen, n)} if unseen else {}),
    )


def embedded(unseen: str = "chain(modulo=9)", **options: Any) -> pl.Recipe:
    """On the embedded problem: ten steps of eight prompts, and a family that is not trained on."""
    return pl.vary(build(unseen=unseen, **options), schedule=pl.Schedule(prompts=8, steps=10))
