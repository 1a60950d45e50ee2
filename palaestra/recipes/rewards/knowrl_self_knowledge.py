"""KnowRL (self-knowledge): a model writes tasks, says several times whether it can do each, and is
rewarded where it agrees with itself.

    r_i = 1 if v_i is the majority of the k verdicts on x, else 0;   c(x) = its share of all k       (arXiv:2510.11407)

Introspection: from a few examples of a pool the model writes a task x that it is sure it can, or
cannot, do (asked for at random, half each). Self-analysis: k = 8 verdicts on x, "can" or "cannot";
one that cannot be read has reward 0 and counts in k. A tie is no majority: 0 for all. REINFORCE++
(advantages normalised over the batch) on the verdicts alone; tasks with c >= 0.75 join the pool of
examples, which starts with the tasks of the data (the paper's 50 + 50 that people verified; column
`can`).

No label is used, so a constant verdict earns everything and has no gradient left: watch the parts
`can` and `asked` (the majority is the class that was asked for).

Deviation: of data without that column the verdicts are on the model's own answers, whose truth the
reward of the data knows: parts `truthful` and `right`. Models too small to write tasks learn so.

Long because one step has two stages of the same model: it writes a task or an answer, and then the group gives
verdicts on it; both kinds of data have prompts of their own, and agreed tasks come back as examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import palaestra as pl

CARD = pl.Card(
    title="KnowRL: introspection + consensus rewarding",
    paper="arXiv:2510.11407",
    claim="Rewarding consensus about what it can do teaches a model the limits of its knowledge "
    "without supervision.",
    source="second-hand review and README for loop, k, seeds, REINFORCE++; reward per verdict, "
    "ties, threshold inferred",
    size=pl.Size(
        setting="LLaMA-3.1-8B, Qwen-2.5-7B; k = 8, batch 16; 50 + 50 seed tasks; 10 to 15 prompts "
        "give 50 to 60 tasks an iteration",
        model="llama-3.1-8b",
        prompts=16,
        samples=8,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Translate a letter into French.", "Say what I had for breakfast today."),
                "the description of a task; the paper has a hundred",
            ),
            pl.needs.NeededColumn(
                "can",
                "true or false",
                (True, False),
                "whether a language model can do the task, as people say",
                otherwise="the model answers the prompt and judges its own answer, which is not in "
                "the paper",
            ),
        ),
        shows="part/shots",
        off={"draw.shots": 0},
        own={"k": 2, "schedule.prompts": 4},
    ),
    use="It helps where a model should know its limits and nothing is labelled; a verdict that never "
    "changes earns everything, so watch the parts can and asked.",
    lacks=("An external benchmark of what can and cannot be done.",),
    grade="A",
)


@pl.stage
class OwnTasks:
    """The model writes tasks, and says whether it can do them."""

    labels: ClassVar[tuple[str, str]] = ("can", "cannot")

    def ask(self, task: pl.Task, can: bool) -> pl.Task:
        shots: Sequence[pl.curriculum.Note] = task.meta.get("shots", ())
        examples = [f"- {note.text}" for note in shots if note.facts["can"] == can] or [
            f"- {pl.tasks.question_text(task)}"
        ]
        wish = "you are sure that you can do" if can else "you are sure that you cannot do"
        asked = f"Write one task that {wish}, unlike these:\n" + "\n".join(examples)
        return replace(task, prompt=(pl.Message(role="user", content=asked),))

    def analyse(self, task: pl.Task, text: str, can: bool) -> pl.Task:
        asked = f"Can you do this task? Think, then end with [[can]] or [[cannot]].\n{text}"
        return replace(task, prompt=(pl.Message(role="user", content=asked),))

    def read(self, text: str) -> str | None:
        return pl.verifiers.read_verdict(text, self.labels)


@pl.stage
class OwnAnswers:
    """The model answers the task, step by step where it should be right and at once where not, and
    judges the answer.
    """

    labels: ClassVar[tuple[str, str]] = ("right", "wrong")

    def ask(self, task: pl.Task, can: bool) -> pl.Task:
        return pl.tasks.add_instruction(
            task, pl.tasks.THINK_STEPWISE if can else pl.tasks.ANSWER_AT_ONCE
        )

    def analyse(self, task: pl.Task, text: str, can: bool) -> pl.Task:
        return replace(task, prompt=pl.tasks.judging_task(task, text, can).prompt)

    def read(self, text: str) -> str | None:
        label = pl.tasks.final_answer(text)
        return label if label in self.labels else None


def form_of(task: pl.Task) -> OwnTasks | OwnAnswers:
    """A task of data with the column `can` is an example of a task; any other is a problem to
    answer.
    """
    return OwnTasks() if "can" in task.meta else OwnAnswers()


@pl.declare(
    columns=(
        ("wrote", str, "what the model wrote"),
        "asked",
        ("truth", bool, "whether the model solved its problem"),
    )
)
@pl.stage
class Introspect:
    """Puts what the model wrote in place of the task: the group then is about the
    verdicts on it.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        form = form_of(group.task)
        can = bool(pl.rng_of((*key, "class")).random() < 0.5)
        wrote = await pl.Sample(n=1)(ctx, key, pl.Group(task=form.ask(group.task, can)))
        text = pl.response_text(wrote.episodes[0]) if wrote.valid else ""
        meta: dict[str, Any] = {**group.task.meta, "wrote": text, "asked": can}
        if isinstance(form, OwnAnswers) and ctx.bench.reward is not None and wrote.valid:
            (reward,) = await ctx.bench.reward(ctx, replace(wrote, task=group.task))
            meta |= (
                {} if isinstance(reward, pl.Fault) else {"truth": reward.total >= pl.SOLVED_TOTAL}
            )
        return pl.Group(task=replace(form.analyse(group.task, text, can), meta=meta))


@pl.stage
class Consensus:
    """1 for the majority's verdict; with `oracle`, for the true one."""

    oracle: bool = False

    async def __call__(self, ctx: pl.Context | None, group: pl.Group) -> list[pl.Reward]:
        form = form_of(group.task)
        yes, no = form.labels
        verdicts = [form.read(pl.response_text(e)) for e in group.episodes]
        best, share = pl.rewards.majority_answer(verdicts)
        meta = group.task.meta
        shares = {
            "consensus": share,
            "asked": float(best is not None and (best == yes) == meta.get("asked")),
        }
        truth = (yes if meta["truth"] else no) if "truth" in meta else None
        wanted = truth if self.oracle else best
        return [
            pl.Reward(
                total=float(v is not None and v == wanted),
                parts={
                    **shares,
                    "can": float(v == yes),
                    "shots": float(len(meta.get("shots", ()))),
                    "truthful": float(v is not None and v == truth),
                    "right": float(truth == yes),
                    "right and said so": float(v == truth == yes),
                    "wrong and said so": float(v == truth == no),
                },
            )
            for v in verdicts
        ]


@pl.declare(columns=(("shots", tuple, "remembered tasks, with what the model said of them"),))
@pl.stage
class ShownExamples:
    """Tasks with `shots` examples of the pool: those that `Remember` kept, and the data's own with
    a column `can`.
    """

    draw: pl.Draw = pl.Shuffled()
    shots: int = 8

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        recalled = pl.curriculum.Recalled(put_shots, self.shots, self.draw, verified_examples)
        return recalled(ctx, key, n, state)


def put_shots(task: pl.Task, notes: Sequence[pl.curriculum.Note]) -> pl.Task:
    return replace(task, meta={**task.meta, "shots": tuple(notes)})


def verified_examples(task: pl.Task) -> list[pl.curriculum.Note]:
    """The task itself, where people said whether it can be done."""
    can = pl.needs.truth_of(task.meta.get("can"))
    return (
        []
        if can is None
        else [pl.curriculum.Note(text=pl.tasks.question_text(task), facts={"can": can})]
    )


@pl.stage
class Remember:
    """Keeps the newest `most` different tasks with a consensus of at least `least`, with the
    majority's verdict.
    """

    least: float = 0.75
    most: int = 100

    def __call__(
        self, seen: pl.Groups, examples: Mapping[str, list[pl.Example]], state: pl.State
    ) -> pl.State:
        return pl.curriculum.Memorise(self.agreed, self.most)(seen, examples, state)

    def agreed(self, group: pl.Group) -> list[pl.curriculum.Note]:
        """The task that the model wrote, if its verdicts agree on it."""
        form = form_of(group.task)
        best, share = pl.rewards.majority_answer(
            [form.read(pl.response_text(e)) for e in group.valid]
        )
        text = str(group.task.meta.get("wrote", "")).strip()
        if not text or best is None or share < self.least:
            return []
        return [pl.curriculum.Note(text=text, facts={"can": best == form.labels[0]})]


def build(k: int = 8, least: float = 0.75) -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        draw=ShownExamples(),
        collect=pl.links(Introspect(), pl.Sample(n=k), pl.Score(reward=Consensus())),
        credit=pl.chain(pl.Center("batch"), pl.Scale("batch")),
        objective=pl.Clipped(reduce="tokens"),
        observe=Remember(least),
    )
