"""Can LLMs capture human annotation disagreement? Whether a model says the whole distribution of what people
answered, or the majority alone (arXiv:2506.19467). A study: nothing is trained.

    p_i       share of each label among the annotations of item i
    q_i       by `read`: "sampled", its share among `samples` answers; "stated", as the model says in
              percent; "scored", its probability as the answer, among those of the labels
    VarCorr   correlation over items of sum_k p (1 - p) and sum_k q (1 - q)
    distance  mean total variation, 1/2 sum_k |p - q|; for two labels |p - q|
    F1        of the majority, a mean over labels; items with a tie are left out

VarCorr does not see scale: q = (0, .05, .95, 1) follows p = (0, .4, .5, 1) almost perfectly, and is far from
it. So both are told, for all items and for those on which annotators disagree most (the `varied` share).
The floor is what annotators themselves reach: the distance of two halves of them, from items that have two
or more.

    palaestra study disagreement --model AFTER base=BEFORE --data items.jsonl
    palaestra study disagreement --model AFTER base=BEFORE --data items.jsonl read=stated

Labels that differ in upper and lower case are one, and empty annotations do not count; both are told. An
answer is read behind its thinking: what it states (a box, "Answer:") comes before what it names. One that
names no label, or several, is left out and counted. `shots` items that stand first in
the data are shown with what each annotator said. Beside the models stands a small regression of p on
the start's hidden states, fitted on half of the items and measured on the others: what can be read off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.disagreement.measures import (
    annotation_remarks,
    halves_distance,
    last_text,
    regression,
    sampled_shares,
    scored_shares,
    shares_of,
    stated_shares,
)
from palaestra.recipes.analysis.disagreement.report import QUESTION, findings, tell_reach

CARD = pl.Card(
    title="Can LLMs capture human annotation disagreement?",
    paper="arXiv:2506.19467",
    claim="Models, and most of all those trained with verifiable rewards to reason, predict the majority of "
    "annotators well and their disagreement badly; few of them beat a fine-tuned small encoder.",
    source="abstract and the released code as the catalogue has them; names of measures from memory",
    size=pl.Size(
        setting="60 set-ups of Qwen, Llama and DeepSeek models on hate speech, emotions and preferences; "
        "1,000 items and 200 of high variance each, 10 answers at temperature .7",
    ),
    task="opinions",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "annotations",
                "texts",
                (
                    ["yes", "yes", "no"],
                    ["no", "no", "no"],
                    ["no", "yes", "no"],
                    ["yes", "yes", "yes"],
                ),
                "what each annotator answered",
            ),
        ),
        models=(pl.studies.BASE,),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "items": 4, "read": "scored"},
    ),
    use="It helps where people disagree for good reasons, as on tone or preference; where they disagree by "
    "mistake, the majority is what counts.",
    lacks=(
        "The hate speech and emotion data of the paper are not shipped: they contain hateful text.",
        "Forced longer reasoning is an instruction in your prompts; nothing here adds it.",
        "The regression is linear on a frozen model, where the paper fine-tunes an encoder.",
    ),
    grade="B",
)

Read = Literal["sampled", "stated", "scored"]
READ: Mapping[Read, str] = {  # how it was measured, for people
    "sampled": "{} at temperature {:g}",
    "stated": "percentages as stated",
    "scored": "probabilities of the labels",
}
ASK = "Many people were asked this. Of 100 of them, how many answered what? Answer with a line for each: "


@pl.stage
class Disagreement:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with.
        tasks: items.
        n: answers to each.
        temperature: of the answers.
        read: how a model's shares are read; percentages are asked for once an item and greedily.
        shots: items at the front of the data that are shown with their annotations, and not measured.
        varied: share of the items that counts as those on which people disagree most.
    """

    base: str = ""
    tasks: int = 200
    n: int = 10
    temperature: float = 0.7
    read: Read = "sampled"
    shots: int = 0
    varied: float = 0.25
    question: ClassVar[str] = QUESTION
    check_up: ClassVar[bool] = False
    brings_reward: ClassVar[bool] = True  # annotations judge

    def __post_init__(self) -> None:
        pl.check_bounds("items", self.tasks, least=4)
        pl.check_bounds("samples", self.n, least=2)
        pl.check_bounds("varied", self.varied, least=0, most=1)

    async def run(self, ctx: pl.Context) -> pl.Result:
        pl.studies.bring_models(ctx, self.base)
        tasks = [
            ctx.bench.tasks.task("test", i)
            for i in pl.run.chosen_tasks(ctx.bench, self.tasks + self.shots)
        ]
        if len(tasks) - self.shots < 2:
            raise pl.UserError(
                f"shots={self.shots} of {len(tasks)} items leaves {max(0, len(tasks) - self.shots)} to "
                "measure, and two are needed; show fewer, or bring more"
            )
        power = tell_reach(ctx, len(tasks) - self.shots)
        shares, labels = shares_of(tasks)
        for line in (remarks := annotation_remarks(tasks)):
            ctx.say(line)
        there = ctx.with_bench(
            replace(
                ctx.bench,
                tasks=AskedItems(tasks, self.shots, labels if self.read == "stated" else ()),
            )
        )
        read = {
            name: await self._read(there, name, len(tasks) - self.shots, labels)
            for name in ("base", "policy")
        }
        measured = range(self.shots, len(tasks))
        readable = [
            i for i in measured if all(r[i - self.shots] is not None for r in read.values())
        ]
        if len(readable) < 2:
            raise pl.UserError(
                f"only {len(readable)} of {len(measured)} items were answered with one of the labels "
                f"({', '.join(labels)}) by both models; say in the prompts how to answer"
            )
        p_NK = np.array([shares[i] for i in readable])
        q = {n: np.array([r[i - self.shots] for i in readable]) for n, r in read.items()}
        halves = [halves_distance(tasks[i].meta["annotations"], labels) for i in readable]
        fitted = regression(ctx.model("base"), [tasks[i] for i in readable], p_NK)
        lost = {n: sum(r[i - self.shots] is None for i in measured) for n, r in read.items()}
        protocol = {
            "answers": READ[self.read].format(self.n, self.temperature),
            "labels": ", ".join(labels),
            "left out": ", ".join(
                f"{x} items of the {'start' if n == 'base' else 'model'}" for n, x in lost.items()
            ),
            "power": power,
        }
        if remarks:
            protocol["annotations"] = "; ".join(remarks)
        report = findings(p_NK, q, fitted, halves, lost, self.varied, protocol)
        lines = [
            {"id": tasks[i].id, "annotations": list(shares[i]), "labels": labels}
            | {n: list(map(float, each[k])) for n, each in q.items()}
            for k, i in enumerate(readable)
        ]
        return pl.studies.publish(ctx, replace(report, items=lines))

    async def _read(
        self, ctx: pl.Context, model: str, tasks: int, labels: Sequence[str]
    ) -> list[np.ndarray | None]:
        """[labels] of each item; None where no answer says one."""
        if self.read == "scored":
            asked = [ctx.bench.tasks.task("test", i) for i in range(tasks)]
            return [*scored_shares(ctx.model(model), asked, labels)]
        stated = self.read == "stated"
        n, heat = (1, 0.0) if stated else (self.n, self.temperature)
        items = await pl.studies.answers(ctx, model, tasks, n, temperature=heat, judged=False)
        if stated:
            return [stated_shares(x["texts"][0] if x["texts"] else "", labels) for x in items]
        return [sampled_shares(x["texts"], labels) for x in items]


class AskedItems:
    """The items of a study as they are asked: behind `shots` shown ones, and for percentages where
    `labels` are given.
    """

    def __init__(self, tasks: Sequence[pl.Task], shots: int, labels: Sequence[str]) -> None:
        self.tasks, self.shots, self.labels = tasks[shots:], tasks[:shots], labels
        self.size = len(self.tasks)
        self.name = "items"

    def split_size(self, split: str) -> int:
        return self.size

    def task(self, split: str, index: int) -> pl.Task:
        task = self.tasks[index]
        examples = "".join(
            f"{last_text(t)}\n{', '.join(map(str, t.meta['annotations']))}\n\n" for t in self.shots
        )
        ask = f"\n{ASK}{', '.join(f'{x}: N%' for x in self.labels)}" if self.labels else ""
        *before, last = task.prompt
        asked = replace(last, content=f"{examples}{last.content}{ask}")
        return replace(task, prompt=(*before, asked))


def build(
    base: str = "",
    items: int = 200,
    samples: int = 10,
    temperature: float = 0.7,
    read: Read = "sampled",
    shots: int = 0,
    varied: float = 0.25,
) -> Disagreement:
    """`base` is the model before training, "" = what the run of the model began with. `samples` answers
    to each of `items` items are read as `read` says; `shots` items are shown."""
    return Disagreement(base, items, samples, temperature, read, shots, varied)


def embedded(items: int = 200, samples: int = 16, steps: int = 180) -> pl.Pipeline:
    """The built-in model first imitates single annotators in `steps` steps, then is paid for the
    majority's answer in a third as many."""
    taught = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=64, steps=steps),
    )
    paid = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=32, steps=max(1, steps // 3)))
    study = Disagreement(tasks=items, n=samples, temperature=1.0)
    return pl.Pipeline(
        parts={
            "annotators": pl.warm(taught),
            "majority": pl.Part(paid, model=pl.Output("annotators")),
            "study": pl.Part(
                study, model=pl.Output("majority"), models={"base": pl.Output("annotators")}
            ),
        }
    )
