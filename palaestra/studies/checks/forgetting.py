"""Did training cost the model what it knew of other things? A study: nothing is trained.

    likelihood   log p of the right answer to a question as the whole reply, in nats a token with the end of
                 the reply: before, after, and the change, a mean over questions
    choice       the right answer is likelier than each of three wrong ones, which are right answers to
                 other questions of the same kind; who guesses is right one time in four. Of answers that
                 differ in length the mean over tokens is compared
    accuracy     of `elsewhere`: the share of right sampled answers, as that problem's reward says

The questions are those of `elsewhere`, a file or a built-in task; without one, 256 of common knowledge that
come with the package (capitals, past tenses, opposites, chemical symbols, what comes next).

    palaestra study forgetting --model AFTER --base BEFORE
    palaestra study forgetting --model AFTER --base BEFORE elsewhere=OTHER.jsonl
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from palaestra.card import Card
from palaestra.context import Context
from palaestra.errors import UserError
from palaestra.models.score import score_pairs
from palaestra.run.evaluation import chosen_tasks
from palaestra.run.texts import WrittenText, spell_texts
from palaestra.stats import (
    Interval,
    mean_interval,
    paired_difference,
    paired_share_difference,
    proportion,
)
from palaestra.studies.items import answers, right_shares
from palaestra.studies.models import bring_models, on_problem
from palaestra.studies.page import publish
from palaestra.studies.power import least_difference, least_shift
from palaestra.studies.report import StudyReport, StudyTable, tell_interval
from palaestra.toys.facts import EVERY
from palaestra.types import Message, Result, need_at_least, rng_of, stage, value_class

CARD = Card(title="What training cost elsewhere")
MODELS = {"start": "base", "model": "policy"}
OPTIONS = 4  # the right answer among them
BUILT_IN = "common knowledge"


@value_class
class OtherQuestion:
    """A question with its answer; `kind` groups those whose answers can stand for one another."""

    id: str
    kind: str
    prompt: tuple[Message, ...]
    answer: str


@stage
class Forgetting:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with.
        elsewhere: a file or a built-in task; "" = common knowledge.
        tasks: questions, at most.
        n: sampled answers to each of `elsewhere`; 0 = likelihoods alone.
        template: the chat template of both models; see `hold_template`.
    """

    base: str = ""
    elsewhere: str = ""
    tasks: int = 256
    n: int = 8
    template: str = "own"
    question: ClassVar[str] = "What did training cost on other questions?"
    check_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need_at_least(self, tasks=2, n=0)

    async def run(self, ctx: Context) -> Result:
        held = bring_models(ctx, self.base, template=self.template)
        there = on_problem(ctx, self.elsewhere) if self.elsewhere else None
        some = common_knowledge(self.tasks) if there is None else questions_of(there, self.tasks)
        n = len(some)
        power = (
            f"with {n} questions a change of the likelihood is seen four times out of five where it is "
            f"{least_shift(n):.2f} of the standard deviation of the changes, and one of the choices where it is "
            f"{100 * least_difference(n):.0f} points, if one in five changes"
        )
        ctx.say(power)
        options = options_of(some, ctx.seed)
        scores = {name: score_options(ctx.model(m), some, options) for name, m in MODELS.items()}
        shares: dict[str, list[float]] = {}
        if there is not None and self.n:
            for name, model in MODELS.items():
                made = await answers(there, model, self.tasks, self.n, draw="elsewhere")
                shares[name] = right_shares(made)
        protocol = {
            "questions": f"{n} of {self.elsewhere or BUILT_IN}",
            "templates": held,
            "power": power,
        }
        return publish(ctx, self.report(some, options, scores, shares, protocol))

    def report(
        self,
        some: Sequence[OtherQuestion],
        options: Sequence[Sequence[str]],
        scores: Mapping[str, Sequence[Sequence[float]]],
        shares: Mapping[str, Sequence[float]],
        protocol: Mapping[str, str],
    ) -> StudyReport:
        """What the log-probabilities of the options show, the right one first, and the shares of
        right samples.
        """
        own = {name: [x[0] for x in each] for name, each in scores.items()}
        chosen = {
            name: [float(len(x) > 1 and x[0] > max(x[1:])) for x in each]
            for name, each in scores.items()
        }
        told = [i for i, x in enumerate(options) if len(x) > 1]
        chance = float(np.mean([1 / len(options[i]) for i in told])) if told else np.nan
        change = paired_difference(own["start"], own["model"])
        pick = {n: [x[i] for i in told] for n, x in chosen.items()}
        lost = paired_share_difference(pick["start"], pick["model"])
        numbers: dict[str, float | Interval] = {
            "likelihood": change,
            "choice": lost,
            "chance": chance,
            "changed": float(np.mean(np.abs(np.subtract(own["start"], own["model"])))),
        }
        if shares:
            numbers["accuracy"] = paired_share_difference(shares["start"], shares["model"])
        return StudyReport(
            study="forgetting",
            question=self.question,
            findings=tell(self.elsewhere or BUILT_IN, change, lost, pick, chance, numbers),
            numbers=numbers,
            protocol=protocol,
            tables=tables(some, own, chosen, told, chance, shares),
            items=[
                {
                    "id": q.id,
                    "kind": q.kind,
                    "answer": q.answer,
                    "options": list(options[i]),
                    **{name: list(each[i]) for name, each in scores.items()},
                }
                for i, q in enumerate(some)
            ],
        )


def common_knowledge(most: int) -> list[OtherQuestion]:
    """At most so many of the built-in questions, of each kind as many, in a fixed order."""
    order = rng_of(("common knowledge",)).permutation(len(EVERY))[:most]
    return [
        OtherQuestion(
            id=f"{EVERY[i][0]}-{i}",
            kind=EVERY[i][0],
            prompt=(Message(role="user", content=EVERY[i][1]),),
            answer=EVERY[i][2],
        )
        for i in sorted(int(i) for i in order)
    ]


def questions_of(ctx: Any, most: int) -> list[OtherQuestion]:
    """The held-out problems that have an answer. Raises UserError where none does."""
    tasks = [ctx.bench.tasks.task("test", i) for i in chosen_tasks(ctx.bench, most)]
    kept = [
        OtherQuestion(id=t.id, kind=t.domain, prompt=tuple(t.prompt), answer=str(t.answer))
        for t in tasks
        if t.answer is not None and str(t.answer).strip()
    ]
    if len(kept) < 2:
        raise UserError(
            "elsewhere: no two of its problems have an answer whose likelihood can be read"
        )
    return kept


def options_of(some: Sequence[OtherQuestion], seed: int) -> list[list[str]]:
    """For each question its answer, and up to three other answers of its kind, drawn once for both models."""
    made: list[list[str]] = []
    for q in some:
        others = sorted({o.answer for o in some if o.kind == q.kind} - {q.answer})
        rng = rng_of(("options", seed, q.id))
        at = rng.permutation(len(others))[: OPTIONS - 1]
        made.append([q.answer, *(others[int(i)] for i in at)])
    return made


def score_options(
    model: Any, some: Sequence[OtherQuestion], options: Sequence[Sequence[str]]
) -> list[list[float]]:
    """The mean log-probability a token of each option as the reply."""
    written = [
        WrittenText(o, q.prompt) for q, each in zip(some, options, strict=True) for o in each
    ]
    pairs, cut = spell_texts(model, written)
    if cut or len(pairs) != len(written):
        raise UserError(f"{model.name} has no room for some questions; take shorter ones")
    means = iter([float(np.mean(x)) for x in score_pairs(model, pairs)])
    return [[next(means) for _ in each] for each in options]


def tell(
    where: str,
    change: Interval,
    lost: Interval,
    pick: Mapping[str, Sequence[float]],
    chance: float,
    numbers: Mapping[str, float | Interval],
) -> list[str]:
    """The findings as sentences, the answer first."""
    signed = lambda x, share=True: tell_interval(x, share=share, signed=True)
    way = (
        "less likely after training" if change.high < 0
        else "likelier after training" if change.low > 0
        else "not seen to be more or less likely after training"
    )  # fmt: skip
    lines = [f"Right answers to {where} are {way}: {signed(change, False)} nats a token."]
    if pick["model"]:
        start = proportion(sum(pick["start"]), len(pick["start"]))
        unknown = "" if start.low > chance else (
            " The start is not seen to do better than chance here, so this set cannot show that choices were "
            "forgotten: give elsewhere= questions that it can answer."
        )  # fmt: skip
        lines.append(
            f"Among {OPTIONS} options the right one is the likeliest for {np.mean(pick['model']):.1%} of the questions, "
            f"before {tell_interval(start)}, {signed(lost)}; chance is {chance:.1%}.{unknown}"
        )
    if isinstance(accuracy := numbers.get("accuracy"), Interval):
        lines.insert(
            0, f"On {where} one sampled answer is right {signed(accuracy)} more often than before."
        )
    return lines


def tables(
    some: Sequence[OtherQuestion],
    own: Mapping[str, Sequence[float]],
    chosen: Mapping[str, Sequence[float]],
    told: Sequence[int],
    chance: float,
    shares: Mapping[str, Sequence[float]],
) -> list[StudyTable]:
    """Likelihood and choice by kind; sampled answers where there are any."""
    kinds = sorted({q.kind for q in some})
    groups = {"all": list(range(len(some)))} | (
        {k: [i for i, q in enumerate(some) if q.kind == k] for k in kinds} if len(kinds) > 1 else {}
    )
    rows: list[tuple[str, ...]] = []
    for name, those in groups.items():
        pair = [[own[m][i] for i in those] for m in MODELS]
        asked = [i for i in those if i in {*told}]
        picks = [[chosen[m][i] for i in asked] for m in MODELS]
        rows.append((
            name, str(len(those)), *(f"{np.mean(x):.3f}" for x in pair),
            tell_interval(paired_difference(pair[0], pair[1]), share=False, signed=True),
            *(f"{np.mean(x):.1%}" if x else "" for x in picks),
            tell_interval(paired_share_difference(picks[0], picks[1]), signed=True) if asked else "",
        ))  # fmt: skip
    columns = (
        "",
        "questions",
        "nats, start",
        "model",
        "change",
        "chosen, start",
        "model",
        "change",
    )
    made = [
        StudyTable(
            "Right answers elsewhere", columns, rows,
            f"Nats a token of the right answer; how often it is the likeliest of the options, chance {chance:.1%}.",
        )
    ]  # fmt: skip
    if shares:
        each = [tell_interval(mean_interval(list(shares[m]))) for m in MODELS]
        more = paired_share_difference(shares["start"], shares["model"])
        row = (*each, tell_interval(more, signed=True))
        made.append(StudyTable("Sampled answers elsewhere", ("start", "model", "change"), [row]))
    return made


def build(
    base: str = "",
    elsewhere: str = "",
    questions: int = 256,
    judged: int = 8,
    template: str = "own",
) -> Forgetting:
    """`base` is the model before training, "" = what the run of the model began with. `elsewhere` is a file
    or a built-in task, "" = common knowledge; `judged` answers to each of its questions are sampled
    too, 0 = none; `template` is the chat template of both models."""
    return Forgetting(base, elsewhere, questions, judged, template)
