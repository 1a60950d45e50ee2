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

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl

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
STATED = re.compile(
    r"\banswer\s*(?:\*\*)?\s*(?::|\bis\b)[ \t]*(?:\*\*)?[ \t]*(\S[^\n]*)", re.IGNORECASE
)
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
LEAST = 0.005  # a distance that is called a difference
CHANGE = 0.2  # of an item's distance, for what can be seen
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
    question: ClassVar[str] = "Does the model know how people disagree, or the majority alone?"
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
        report = self._report(p_NK, q, fitted, halves, lost, labels, power)
        if remarks:
            told_of = {**report.protocol, "annotations": "; ".join(remarks)}
            report = replace(report, protocol=told_of)
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

    def _report(
        self,
        p_NK: np.ndarray,
        q: Mapping[str, np.ndarray],
        fitted: np.ndarray | None,
        halves: Sequence[float],
        lost: Mapping[str, int],
        labels: Sequence[str],
        power: str,
    ) -> pl.studies.StudyReport:
        models = {"start": q["base"], "model": q["policy"]}
        if fitted is not None:
            models["regression on the start's states"] = fitted
        order = np.argsort(-variance(p_NK), kind="stable")
        parts = {
            "all": np.arange(len(p_NK)),
            "most disputed": order[: max(2, round(self.varied * len(p_NK)))],
        }
        scores = {
            (part, name): score(p_NK[at], each[at])
            for part, at in parts.items()
            for name, each in models.items()
        }
        farther = pl.stats.paired_difference(distance(p_NK, q["base"]), distance(p_NK, q["policy"]))
        before, after = scores["all", "start"], scores["all", "model"]
        floor = [h for h in halves if h == h]
        numbers: dict[str, float | pl.stats.Interval] = {
            "moved": float(np.mean(distance(q["base"], q["policy"]))),
            "distance": after.distance,
            "farther": farther,
            "f1": after.f1,
            **({"varcorr": after.varcorr} if after.varcorr is not None else {}),
            **({"distance_of_halves": float(np.mean(floor))} if floor else {}),
        }
        return pl.studies.StudyReport(
            study="disagreement",
            question=self.question,
            findings=tell(before, after, farther, floor, lost),
            numbers=numbers,
            protocol={
                "answers": READ[self.read].format(self.n, self.temperature),
                "labels": ", ".join(labels),
                "left out": ", ".join(
                    f"{x} items of the {'start' if n == 'base' else 'model'}"
                    for n, x in lost.items()
                ),
                "power": power,
            },
            tables=[scores_table(scores)],
        )


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


def last_text(task: pl.Task) -> str:
    return task.prompt[-1].content


def shares_of(tasks: Sequence[pl.Task]) -> tuple[list[np.ndarray], list[str]]:
    """The share of each label among the annotations of every item, and the labels in the order of their
    names, see `said_labels`. Raises UserError for an item without annotations.
    """
    labels_by_task = said_labels(tasks)
    if empty := [t.id for t, each in zip(tasks, labels_by_task, strict=True) if not each]:
        raise pl.UserError(
            f"item {empty[0]!r} has no annotations; each row has a list of what annotators answered, "
            '"annotations": ["yes", "no", "yes"]'
        )
    labels = sorted({x for each in labels_by_task for x in each})
    if len(labels) < 2:
        raise pl.UserError(f"all annotations are {labels[0]!r}: nobody disagrees")
    return [
        np.array([each.count(x) / len(each) for x in labels]) for each in labels_by_task
    ], labels


def said_labels(tasks: Sequence[pl.Task]) -> list[list[str]]:
    """What annotators answered to each item, without empty ones. Of spellings that differ in case alone
    the commonest stands for all, of a tie the first by name.
    """
    annotations = [plain_annotations(t.meta.get("annotations") or ()) for t in tasks]
    counts = Counter(x for each in annotations for x in each)
    spelling: dict[str, str] = {}
    for x in sorted(counts, key=lambda x: (-counts[x], x)):
        spelling.setdefault(x.casefold(), x)
    return [[spelling[x.casefold()] for x in each] for each in annotations]


def plain_annotations(annotations: Sequence[Any]) -> list[str]:
    """As texts, without those that are empty or null."""
    return [text for x in annotations if x is not None and (text := str(x).strip())]


def annotation_remarks(tasks: Sequence[pl.Task]) -> list[str]:
    """What was done to annotations before they were counted, in sentences."""
    given = [t.meta.get("annotations") or () for t in tasks]
    plain = [x for each in given for x in plain_annotations(each)]
    lines: list[str] = []
    if empty := sum(map(len, given)) - len(plain):
        lines.append(f"{empty} annotations are empty and left out")
    alike: dict[str, set[str]] = {}
    for x in plain:
        alike.setdefault(x.casefold(), set()).add(x)
    if several := [sorted(s) for s in alike.values() if len(s) > 1]:
        spellings = ", ".join(" = ".join(map(repr, s)) for s in several)
        lines.append(f"labels that differ in upper and lower case are one: {spellings}")
    return lines


def named_label(text: str, labels: Sequence[str]) -> str | None:
    """The label that an answer states or is, else the only one that it names as a word; None = none, or
    several. Thinking is not read, and a label inside another one ("fair" of "not fair") is not named.
    """
    text = pl.verifiers.strip_thinking(text)
    box = pl.verifiers.boxed_answer(text)
    stated = [*([box] if box else []), *STATED.findall(text)[-1:], text]
    for each in stated:
        plain = each.strip().strip(".!\"'*_` ").casefold()
        for label in labels:
            if plain == label.casefold():
                return label
    for each in stated:
        if named := _names(each, labels):
            return named.pop() if len(named) == 1 else None
    return None


def _names(text: str, labels: Sequence[str]) -> set[str]:
    """The labels that stand in a text as words, apart from those whose every place lies in that of
    a longer one.
    """
    spans = {
        x: [m.span() for m in re.finditer(rf"(?<!\w){re.escape(x)}(?!\w)", text, re.IGNORECASE)]
        for x in labels
    }
    every = [s for each in spans.values() for s in each]
    inside = lambda s: any(o[0] <= s[0] and s[1] <= o[1] and o != s for o in every)
    return {x for x, each in spans.items() if not all(map(inside, each))}


def sampled_shares(texts: Sequence[str], labels: Sequence[str]) -> np.ndarray | None:
    """[labels] of the answers that name one."""
    named = [x for x in (named_label(t, labels) for t in texts) if x is not None]
    return np.array([named.count(x) / len(named) for x in labels]) if named else None


def stated_shares(text: str, labels: Sequence[str]) -> np.ndarray | None:
    """[labels] as an answer states them in lines of "label: N%", at sum 1; None where a label has no
    number, or all are 0.
    """
    percents: dict[str, float] = {}
    for line in pl.verifiers.strip_thinking(text).splitlines():
        for part in line.split(","):
            number = PERCENT.search(part)
            label = named_label(PERCENT.sub("", part).strip(" :-*"), labels)
            if number and label:
                percents[label] = min(100.0, float(number[1]))
    total = sum(percents.values())
    if len(percents) < len(labels) or not total:
        return None
    return np.array([percents[x] / total for x in labels])


def scored_shares(model: Any, tasks: Sequence[pl.Task], labels: Sequence[str]) -> list[np.ndarray]:
    """[labels] of each item: the probability of each label as the whole answer, at sum 1."""
    written = [pl.run.WrittenText(x, tuple(t.prompt)) for t in tasks for x in labels]
    pairs, _ = pl.run.spell_texts(model, written)
    logp = np.array([float(np.sum(x)) for x in pl.models.score_pairs(model, pairs)])
    logp_NK = logp.reshape(len(tasks), len(labels))
    p_NK = np.exp(logp_NK - logp_NK.max(1, keepdims=True))
    return [*(p_NK / p_NK.sum(1, keepdims=True))]


def variance(p_NK: np.ndarray) -> np.ndarray:
    """[N] sum_k p (1 - p)."""
    return (p_NK * (1 - p_NK)).sum(1)


def distance(p_NK: np.ndarray, q_NK: np.ndarray) -> list[float]:
    """Of each item the total variation."""
    return (np.abs(p_NK - q_NK).sum(1) / 2).tolist()


def varcorr(p_NK: np.ndarray, q_NK: np.ndarray) -> float | None:
    """The correlation of the two variances over items; None where one of them does not vary."""
    a_N, b_N = variance(p_NK), variance(q_NK)
    if len(a_N) < 2 or np.ptp(a_N) < 1e-12 or np.ptp(b_N) < 1e-12:
        return None
    return float(np.corrcoef(a_N, b_N)[0, 1])


def majority_f1(p_NK: np.ndarray, q_NK: np.ndarray) -> tuple[float, int]:
    """The mean over labels of the F1 of the model's likeliest label against the majority's, and how many
    items count: those without a tie among the annotations. Labels that neither names are left out.
    """
    top = np.sort(p_NK, axis=1)
    clear = top[:, -1] > top[:, -2]
    gold_N, said_N = p_NK[clear].argmax(1), q_NK[clear].argmax(1)
    scores: list[float] = []
    for k in range(p_NK.shape[1]):
        both, either = (
            ((gold_N == k) & (said_N == k)).sum(),
            (gold_N == k).sum() + (said_N == k).sum(),
        )
        if either:
            scores.append(float(2 * both / either))
    return float(np.mean(scores)) if scores else np.nan, int(clear.sum())


@dataclass(frozen=True, slots=True)
class DisagreementScore:
    """Of one model on some items."""

    varcorr: float | None
    distance: float
    f1: float
    n: int


def score(p_NK: np.ndarray, q_NK: np.ndarray) -> DisagreementScore:
    f1, n = majority_f1(p_NK, q_NK)
    return DisagreementScore(varcorr(p_NK, q_NK), float(np.mean(distance(p_NK, q_NK))), f1, n)


def halves_distance(annotations: Sequence[Any], labels: Sequence[str]) -> float:
    """The expected distance of two halves of the annotators, NaN for fewer than two: a mean over the
    cuts of their circle.
    """
    labels_given = [x.casefold() for x in plain_annotations(annotations)]
    labels = [x.casefold() for x in labels]
    half = len(labels_given) // 2
    if not half:
        return np.nan
    share = lambda part: np.array([[part.count(x) / len(part) for x in labels]])
    turned = [labels_given[i:] + labels_given[:i] for i in range(len(labels_given))]
    return float(np.mean([distance(share(t[:half]), share(t[half : 2 * half]))[0] for t in turned]))


def regression(model: Any, tasks: Sequence[pl.Task], p_NK: np.ndarray) -> np.ndarray | None:
    """[N, K] ridge regression of the shares on the model's last states of the prompts: each half of the
    items from a fit on the other; None for fewer than 8 items.
    """
    if len(tasks) < 8:
        return None
    states_ND = pl.models.activations(
        model, [last_text(t) or " " for t in tasks], [len(model.layers)]
    )[:, 0]
    states_ND = (states_ND - states_ND.mean(0)) / (states_ND.std(0) + 1e-6)
    q_NK = np.zeros_like(p_NK)
    for held in (np.arange(len(tasks)) % 2 == 0, np.arange(len(tasks)) % 2 == 1):
        x_MD, mean_K = states_ND[~held], p_NK[~held].mean(0)
        gram = x_MD @ x_MD.T + x_MD.shape[1] * np.eye(len(x_MD))
        q_NK[held] = mean_K + states_ND[held] @ x_MD.T @ np.linalg.solve(gram, p_NK[~held] - mean_K)
    q_NK = np.clip(q_NK, 1e-9, None)
    return q_NK / q_NK.sum(1, keepdims=True)


def scores_table(scores: Mapping[tuple[str, str], DisagreementScore]) -> pl.studies.StudyTable:
    """By items and who says the shares."""
    return pl.studies.StudyTable(
        "How well disagreement is said",
        ("items", "by", "VarCorr", "distance", "F1 of the majority", "n"),
        [
            (part, name, tell_number(s.varcorr), f"{s.distance:.3f}", f"{s.f1:.3f}", str(s.n))
            for (part, name), s in scores.items()
        ],
        note="The regression is fitted on half of the items at a time and measured on the others.",
    )


def tell_reach(ctx: pl.Context, n: int) -> str:
    """The sentence about the difference in distance that is seen, which is also said at the terminal."""
    least = pl.studies.least_difference(n, CHANGE**2)
    line = (
        f"with {n} items a difference of {least:.3f} in the distance of two models is seen four times out of "
        f"five, if changes of single items have a standard deviation of {CHANGE:g}"
    )
    ctx.say(line)
    return line


def tell_number(x: float | None) -> str:
    return "?" if x is None else f"{x:.3f}"


def tell(
    before: DisagreementScore,
    after: DisagreementScore,
    farther: pl.stats.Interval,
    floor: Sequence[float],
    lost: Mapping[str, int],
) -> list[str]:
    """The findings as sentences, the answer first."""
    gap = pl.studies.tell_interval(farther, share=False, signed=True)
    if farther.low > LEAST and after.f1 > before.f1:
        first = (
            "Training made the picture of annotators worse, and a better majority score hides it"
        )
    elif farther.low > LEAST:
        first = "Training made the picture of annotators worse"
    elif farther.high < -LEAST:
        first = "Training made the picture of annotators better"
    else:
        first = f"No difference of over {LEAST:g} in the picture of annotators is seen"
    lines = [
        f"{first}: the distance from their shares is {after.distance:.3f} after and {before.distance:.3f} "
        f"before, {gap}; F1 of the majority is {after.f1:.3f} and {before.f1:.3f}.",
        f"VarCorr is {tell_number(after.varcorr)} after and {tell_number(before.varcorr)} before.",
    ]
    if floor:
        lines.append(f"Two halves of the annotators are {np.mean(floor):.3f} apart.")
    if any(lost.values()):
        lines.append(
            f"{max(lost.values())} items had no answer that names one label, and are left out."
        )
    return lines


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
