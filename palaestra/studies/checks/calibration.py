"""Is the model as often right as it is sure? A study: nothing is trained.

    confidence   of a problem: the share of its sampled answers that are equal to the most frequent one
                 (confidence=samples), or the model's probability of its greedy answer with the end of the
                 reply (confidence=probability), which is of use where an answer has no working
    right        whether that answer is
    ECE          sum over ten bins of n_m / N |share right - mean confidence| (arXiv:1706.04599, eq. 3)
    sureness     mean confidence less the share right: above 0 is overconfidence; unlike ECE it has no bias
    Brier        mean (confidence - right)^2

The ECE of a few answers is above 0 by chance alone, so beside it stands that of a model which is right
exactly as often as it is sure, with the same confidences.

    palaestra study calibration --model AFTER --base BEFORE --data F
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from palaestra.card import Card
from palaestra.context import Context
from palaestra.models.score import score_pairs
from palaestra.run.texts import WrittenText, spell_texts
from palaestra.stats import Interval, mean_interval, paired_difference, proportion
from palaestra.studies.confidence import bins_of, error_difference, error_interval, voted
from palaestra.studies.items import Item, answers, right_shares
from palaestra.studies.models import bring_models
from palaestra.studies.page import publish
from palaestra.studies.power import tell_mean_power
from palaestra.studies.report import StudyChart, StudyLine, StudyReport, StudyTable, tell_interval
from palaestra.types import Result, need_at_least, stage

CARD = Card(title="Calibration before and after training")
MODELS = {"start": "base", "model": "policy"}

Confidence = Literal["samples", "probability"]
SURE: Mapping[Confidence, str] = {
    "samples": "the share of samples equal to the most frequent answer; whether that is right",
    "probability": "the model's probability of its greedy answer, with the end of the reply",
}
Counted = tuple[list[float], list[float]]  # confidences, and outcomes


@stage
class CalibrationStudy:
    """The study; see the module. `n` answers to each of `tasks` problems.

    Args:
        base: the model before training; "" = what the run of the model began with.
        template: the chat template of both models; see `hold_template`.
    """

    base: str = ""
    tasks: int = 128
    n: int = 16
    confidence: Confidence = "samples"
    template: str = "own"
    question: ClassVar[str] = "Is the model as often right as it is sure?"
    check_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need_at_least(self, tasks=2, n=2)

    async def run(self, ctx: Context) -> Result:
        held = bring_models(ctx, self.base, template=self.template)
        power = tell_mean_power(ctx, self.tasks, "sureness")
        items = {name: await self._answers(ctx, model) for name, model in MODELS.items()}
        for each in items.values():
            right_shares(each)  # which says what is missing
        counted = {
            name: [
                x if self.confidence == "samples" else (sure, x[1])
                for x, sure in zip(map(voted, each), self._sure(ctx, name, each), strict=True)
            ]
            for name, each in items.items()
        }
        lines = [
            {
                "problem": a["problem"],
                "id": a["id"],
                **{n: {"confidence": c[i][0], "right": c[i][1]} for n, c in counted.items()},
            }
            for i, a in enumerate(items["model"])
        ]
        asked = f"{self.n} answers each at temperature 1"
        greedy = "one greedy answer each"
        protocol = {
            "answers": f"{len(lines)} problems, {asked if self.confidence == 'samples' else greedy}",
            "confidence": SURE[self.confidence],
            "templates": held,
            "power": power,
        }
        columns = {n: ([c for c, _ in x], [r for _, r in x]) for n, x in counted.items()}
        return publish(ctx, self.report(columns, protocol, lines, ctx.seed))

    async def _answers(self, ctx: Context, model: str) -> list[Item]:
        greedy = self.confidence == "probability"
        draw = "greedy" if greedy else "answers"
        n, heat = (1, 0.0) if greedy else (self.n, 1.0)
        return await answers(ctx, model, self.tasks, n, temperature=heat, draw=draw)

    def _sure(self, ctx: Context, name: str, items: Sequence[Item]) -> list[float]:
        """The probability of each first answer; zeros where it is not asked for."""
        if self.confidence == "samples":
            return [0.0] * len(items)
        task = lambda x: tuple(ctx.bench.tasks.task("test", x["problem"]).prompt)
        written = [WrittenText(x["texts"][0], task(x), x["cut"][0]) for x in items]
        model = ctx.model(MODELS[name])
        return [
            float(np.exp(np.sum(x))) for x in score_pairs(model, spell_texts(model, written)[0])
        ]

    def report(
        self,
        counted: Mapping[str, Counted],
        protocol: Mapping[str, str] | None = None,
        items: Sequence[Item] = (),
        seed: int = 0,
    ) -> StudyReport:
        """What confidences and outcomes of the start and the model show."""
        key = ("calibration", seed)
        errors = {n: error_interval(c, r, (*key, n)) for n, (c, r) in counted.items()}
        more = error_difference(counted["start"], counted["model"], key)
        gap = {n: [c - r for c, r in zip(*x, strict=True)] for n, x in counted.items()}
        brier = {n: [g * g for g in each] for n, each in gap.items()}
        sure = paired_difference(gap["start"], gap["model"])
        worse = paired_difference(brier["start"], brier["model"])
        changed = [abs(a - b) for a, b in zip(gap["start"], gap["model"], strict=True)]
        numbers: dict[str, float | Interval] = {
            "ece": errors["model"][0],
            "ece_of_start": errors["start"][0],
            "ece_expected": errors["model"][1],
            "more_ece": more,
            "more_sure": sure,
            "more_brier": worse,
            "changed": float(np.mean(changed)),
        }
        rows = [
            (
                name,
                tell_interval(errors[name][0]),
                f"{errors[name][1]:.1%}",
                tell_interval(mean_interval(gap[name]), signed=True),
                f"{np.mean(counted[name][0]):.1%}",
                f"{np.mean(counted[name][1]):.1%}",
                tell_interval(mean_interval(brier[name]), share=False),
            )
            for name in counted
        ]
        columns = (
            "of", "ECE", "ECE of an ideal one", "sureness", "confidence", "right", "Brier score",
        )  # fmt: skip
        return StudyReport(
            study="calibration",
            question=self.question,
            findings=tell(errors, more, sure, mean_interval(gap["model"]), worse),
            numbers=numbers,
            protocol=protocol or {},
            tables=[StudyTable("Sure and right", columns, rows)],
            charts=[chart(counted)],
            items=items,
        )


def tell(
    errors: Mapping[str, tuple[Interval, float]],
    more: Interval,
    sure: Interval,
    gap: Interval,
    worse: Interval,
) -> list[str]:
    """The findings as sentences, the answer first."""
    way = "as often right as it is sure, as far as is seen,"
    way = "overconfident" if gap.low > 0 else "underconfident" if gap.high < 0 else way
    change = "not seen to be calibrated better or worse than its start"
    if more.low > 0 or more.high < 0:
        change = f"calibrated {'worse' if more.low > 0 else 'better'} than its start"
    points = lambda x: tell_interval(x, signed=True)
    return [
        f"The model is {way} and {change}: calibration error {tell_interval(errors['model'][0])}, the start's "
        f"{tell_interval(errors['start'][0])}, difference {points(more)}; an ideal model would show "
        f"{errors['model'][1]:.1%} with these confidences.",
        f"Confidence less share of right answers: {points(gap)}; training changed that by {points(sure)}.",
        f"The Brier score, lower is better, moved by {tell_interval(worse, share=False, signed=True)}.",
    ]


def chart(counted: Mapping[str, Counted]) -> StudyChart:
    """The share of right answers over confidence, bin by bin."""
    lines = [StudyLine("as right as sure", [0.0, 1.0], [0.0, 1.0])]
    for name, (confidence, right) in counted.items():
        c_N, r_N = np.asarray(confidence), np.asarray(right)
        at = [np.flatnonzero(bins_of(c_N) == m) for m in sorted({*bins_of(c_N).tolist()})]
        shares = [proportion(float(r_N[i].sum()), len(i)) for i in at]
        lines.append(
            StudyLine(
                name,
                [float(c_N[i].mean()) for i in at],
                [x.mean for x in shares],
                [x.low for x in shares],
                [x.high for x in shares],
            )
        )
    return StudyChart("Right answers by confidence", "confidence", "right", lines, share=True)


def build(
    base: str = "",
    problems: int = 128,
    samples: int = 16,
    confidence: Confidence = "samples",
    template: str = "own",
) -> CalibrationStudy:
    """`base` is the model before training, "" = what the run of the model began with. `samples` answers to
    each of `problems` problems; `confidence` is the share of equal ones among them, or the
    "probability" of the greedy answer; `template` is the chat template of both."""
    return CalibrationStudy(base, problems, samples, confidence, template)
