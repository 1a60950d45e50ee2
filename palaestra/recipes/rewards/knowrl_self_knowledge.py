"""KnowRL (self-knowledge): what a model says that it can do, rewarded by agreement with itself.

    r_i = 1 if v_i is the majority of the k verdicts on x, else 0;   c(x) = its share of all k       (arXiv:2510.11407)

Introspection: from a few examples of a pool the model writes a task x that it is sure it can, or cannot, do (asked for at
random, half each). Self-analysis: k = 8 verdicts on x, "can" or "cannot"; one that cannot be read has reward 0 and counts in
k. A tie is no majority: 0 for all. REINFORCE++ (advantages normalised over the batch) on the verdicts alone; tasks with c >=
0.75 join the pool of examples, which starts with the tasks of the data (the paper's 50 + 50 that people verified; column
`can`).

No label is used, so a constant verdict earns everything and has no gradient left: watch the parts `can` and `asked`
(the majority is the class that was asked for). Of data without that column the verdicts are on the model's own answers,
whose truth the bench knows: parts `truthful` and `right`. `oracle=True` pays that truth.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

from palaestra.card import Card, Size
from palaestra.catalogue import recipe
from palaestra.context import Context, Draw
from palaestra.credit.links import Center, Scale, chain
from palaestra.curriculum.draw import Shuffled
from palaestra.errors import Fault
from palaestra.objective.policy import Clipped
from palaestra.rewards.intrinsic import majority_answer
from palaestra.rewards.verify import response_text
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Recipe
from palaestra.toys.base import final_answer
from palaestra.toys.formats import ANSWER_AT_ONCE, THINK_STEPWISE, add_instruction, judging_task, question_text
from palaestra.types import Example, Group, Groups, Key, Message, Reward, State, Task, rng_of, stage
from palaestra.values import vary
from palaestra.verifiers.answers.judgement import read_verdict

CARD = Card(
    title="KnowRL: introspection + consensus rewarding",
    paper="arXiv:2510.11407",
    claim="Rewarding consensus about what it can do teaches a model the limits of its knowledge without supervision.",
    source="second-hand review and README for loop, k, seeds, REINFORCE++; reward per verdict, ties, threshold inferred",
    size=Size(
        setting="LLaMA-3.1-8B, Qwen-2.5-7B; k = 8, batch 16; 50 + 50 seed tasks; 10 to 15 prompts give 50 to 60 tasks an "
        "iteration",
        model="llama-3.1-8b",
        prompts=16,
        samples=8,
    ),
)
Shots: TypeAlias = list[tuple[str, bool]]  # a task in words, and whether it can be done


@stage
class OwnTasks:
    """The model writes tasks, and says whether it can do them."""

    labels: ClassVar[tuple[str, str]] = ("can", "cannot")

    def ask(self, task: Task, can: bool) -> Task:
        shots: Shots = task.meta.get("shots", [])
        shown = [f"- {text}" for text, known in shots if known == can] or [f"- {question_text(task)}"]
        wish = "you are sure that you can do" if can else "you are sure that you cannot do"
        asked = f"Write one task that {wish}, unlike these:\n" + "\n".join(shown)
        return replace(task, prompt=(Message(role="user", content=asked),))

    def analyse(self, task: Task, text: str, can: bool) -> Task:
        asked = f"Can you do this task? Think, then end with [[can]] or [[cannot]].\n{text}"
        return replace(task, prompt=(Message(role="user", content=asked),))

    def read(self, text: str) -> str | None:
        return read_verdict(text, self.labels)


@stage
class OwnAnswers:
    """The model answers the task, step by step where it should be right and at once where not, and judges the answer."""

    labels: ClassVar[tuple[str, str]] = ("right", "wrong")

    def ask(self, task: Task, can: bool) -> Task:
        return add_instruction(task, THINK_STEPWISE if can else ANSWER_AT_ONCE)

    def analyse(self, task: Task, text: str, can: bool) -> Task:
        return replace(task, prompt=judging_task(task, text, can).prompt)

    def read(self, text: str) -> str | None:
        found = final_answer(text)
        return found if found in self.labels else None


def form_of(task: Task) -> OwnTasks | OwnAnswers:
    """A task of data with the column `can` is an example of a task; any other is a problem to answer."""
    return OwnTasks() if "can" in task.meta else OwnAnswers()


@stage
class Introspect:
    """Puts what the model wrote in place of the task: the group then is about the verdicts on it."""

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        form = form_of(group.task)
        can = bool(rng_of((*key, "class")).random() < 0.5)
        wrote = await Sample(n=1)(ctx, key, Group(task=form.ask(group.task, can)))
        text = response_text(wrote.episodes[0]) if wrote.valid else ""
        meta: dict[str, Any] = {**group.task.meta, "wrote": text, "asked": can}
        if isinstance(form, OwnAnswers) and ctx.bench.reward is not None and wrote.valid:
            (found,) = await ctx.bench.reward(ctx, replace(wrote, task=group.task))
            meta |= {} if isinstance(found, Fault) else {"truth": found.total >= 1}
        return Group(task=replace(form.analyse(group.task, text, can), meta=meta))


@stage
class Consensus:
    """1 for the majority's verdict; with `oracle`, for the true one."""

    oracle: bool = False

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward]:
        form = form_of(group.task)
        yes, no = form.labels
        verdicts = [form.read(response_text(e)) for e in group.episodes]
        best, share = majority_answer(verdicts)
        meta = group.task.meta
        told = {"consensus": share, "asked": float(best is not None and (best == yes) == meta.get("asked"))}
        truth = (yes if meta["truth"] else no) if "truth" in meta else None
        wanted = truth if self.oracle else best
        return [
            Reward(
                total=float(v is not None and v == wanted),
                parts={
                    **told,
                    "can": float(v == yes),
                    "truthful": float(v is not None and v == truth),
                    "right": float(truth == yes),
                    "right and said so": float(v == truth == yes),
                    "wrong and said so": float(v == truth == no),
                },
            )
            for v in verdicts
        ]


@stage
class ShownExamples:
    """Tasks with `shots` examples of the pool: those that `Remember` kept, and the data's own with a column `can`."""

    draw: Draw = Shuffled()
    shots: int = 8

    def __call__(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, state = self.draw(ctx, key, n, state)
        seeds = [(question_text(t), bool(t.meta["can"])) for t in tasks if "can" in t.meta]
        pool: Shots = [*state.get("pool", []), *seeds]
        order = rng_of((*key, "shots")).permutation(len(pool))[: self.shots]
        shots = [pool[i] for i in order]
        return [replace(t, meta={**t.meta, "shots": shots}) for t in tasks], state


@stage
class Remember:
    """Keeps the newest `most` different tasks with a consensus of at least `least`, with the majority's verdict."""

    least: float = 0.75
    most: int = 100

    def __call__(self, seen: Groups, examples: Mapping[str, list[Example]], state: State) -> State:
        pool = dict(state.get("pool", []))
        for g in seen:
            form = form_of(g.task)
            best, share = majority_answer([form.read(response_text(e)) for e in g.valid])
            text = str(g.task.meta.get("wrote", "")).strip()
            if text and best is not None and share >= self.least:
                pool[text] = best == form.labels[0]
        return state | {"pool": list(pool.items())[-self.most :]}


def build(k: int = 8, oracle: bool = False, least: float = 0.75) -> Recipe:
    return vary(
        recipe("grpo"),
        draw=ShownExamples(),
        collect=links(Introspect(), Sample(n=k), Score(reward=Consensus(oracle))),
        credit=chain(Center("batch"), Scale("batch")),
        objective=Clipped(reduce="tokens"),
        observe=Remember(least),
    )
