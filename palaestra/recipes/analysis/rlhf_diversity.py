"""Effects of RLHF on generalisation and diversity: what training did to how varied the answers are, and to
how good they are on other problems than those trained on (arXiv:2310.06452). A study: nothing is
trained.

    within a problem     D of its `samples` answers, a mean over problems
    across problems      D of one answer to each problem, a mean over the samples
    D                    distinct n-grams: N_n / (V (1 - ((V - 1) / V)^C_n)), n = 1..5, over tokens
                         spread: 1 - the mean cosine of all pairs of mean last hidden states
    gap                  quality on the problem less that on each of `shifted`
    KL                   mean log-prob of the model's answers, less that of the start, a token

Training makes a distribution sharper, and so does a lower temperature. So the start is sampled at
`temperatures` too: the control is the diversity that it has where it is as good as the model, on the
line between its temperatures. What the model has less than that is lost beyond sharpening.

    palaestra study rlhf-diversity --model runs/mine/checkpoints/step-100 --data F shifted=OTHER.jsonl
    palaestra study rlhf-diversity --model RLHF base=BASE beside=sft=SFT --data F

Quality is the share of right answers, or the mean reward where nobody says what is right.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

READ = 100  # tokens of an answer whose states are read

CARD = pl.Card(
    title="Effects of RLHF on generalisation and diversity",
    paper="arXiv:2310.06452",
    claim="RLHF generalises better than supervised fine-tuning to new inputs, the more so the larger the "
    "shift, and lowers the diversity of outputs on many measures.",
    source="abstract; the measures as the catalogue has them from the released code; the comparison at equal "
    "quality is ours",
    size=pl.Size(
        setting="LLaMA 7B and OPT, summarisation (TL;DR) and instructions; 16 outputs for each of 500 inputs",
    ),
    task="count",
    needs=pl.needs.Requirements(
        models=(pl.studies.BASE,),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "problems": 2, "samples": 3, "temperatures": "[0.5]"},
    ),
    use="It tells what training cost in variety; where one answer is right and nothing else can be said, less "
    "variety is no loss.",
    lacks=(
        "The third measure of the paper, contradiction by a model of natural-language inference, is not here.",
        "Preference against references by a judge: bring it as --reward.",
        "Its models are yours: nothing is trained here but in the built-in example, and reward models are not "
        "looked at by themselves.",
    ),
)


@pl.stage
class Diversity:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with.
        beside: further models as NAME=MODEL, with commas between them.
        shifted: problems unlike the one trained on: files, or built-in tasks, with commas between them.
        tasks: held-out problems of each.
        n: answers to each problem.
        temperature: of the models that are compared.
        temperatures: at which the start is sampled as well.
        present: further models that the run has by these names.
    """

    base: str = ""
    beside: str = ""
    shifted: str = ""
    tasks: int = 64
    n: int = 16
    temperature: float = 1.0
    temperatures: tuple[float, ...] = (0.3, 0.5, 0.7)
    present: tuple[str, ...] = ()
    question: ClassVar[str] = (
        "Are answers less varied after training, and what do they gain elsewhere?"
    )
    check_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=2)
        pl.check_bounds("samples", self.n, least=2)
        if wrong := [x for x in pl.studies.listed(self.beside) if "=" not in x]:
            raise pl.UserError(f"beside={wrong[0]}: write NAME=MODEL, such as beside=sft=DIR")

    async def run(self, ctx: pl.Context) -> pl.Result:
        others = {k: v for k, _, v in (x.partition("=") for x in pl.studies.listed(self.beside))}
        pl.studies.bring_models(ctx, self.base, others)
        power = pl.studies.tell_power(ctx, self.tasks)
        names = ["base", *others, *self.present, "policy"]
        items = {name: await self._answers(ctx, name) for name in names}
        measures = {name: measure(ctx, name, each) for name, each in items.items()}
        cooler = [measure(ctx, "", await self._answers(ctx, "base", t)) for t in self.temperatures]
        gaps: dict[str, dict[str, pl.stats.Interval]] = {}
        for i, problem in enumerate(pl.studies.listed(self.shifted)):
            there = pl.studies.on_problem(ctx, problem)
            each = {n: await self._answers(there, n, draw=f"other {i + 1}") for n in names}
            gaps[problem] = {n: quality_of(x) for n, x in each.items()}
        return pl.studies.publish(ctx, self._report(items, measures, cooler, gaps, power))

    async def _answers(
        self,
        ctx: pl.Context,
        model: str,
        temperature: float | None = None,
        draw: str = "answers",
    ) -> list[pl.studies.Item]:
        heat = self.temperature if temperature is None else temperature
        return await pl.studies.answers(
            ctx,
            model,
            self.tasks,
            self.n,
            temperature=heat,
            draw=f"{draw} at temperature {heat:g}",
        )

    def _report(
        self,
        items: Mapping[str, Sequence[pl.studies.Item]],
        measures: Mapping[str, "Variety"],
        cooler: Sequence["Variety"],
        shifted: Mapping[str, Mapping[str, pl.stats.Interval]],
        power: str,
    ) -> pl.studies.StudyReport:
        base, model = measures["base"], measures["policy"]
        both = [i for i in base.within if i in model.within]
        pair = [base.within[i] for i in both], [model.within[i] for i in both]
        less = pl.stats.paired_difference(*pair)
        equal = at_equal_quality([base, *cooler], model.quality.mean)
        numbers: dict[str, float | pl.stats.Interval] = {
            "moved": mean(np.abs(np.subtract(*pair))),
            "diversity_within": less,
            "diversity_across": mean(model.across) - mean(base.across),
            "spread_within": model.spread_within - base.spread_within,
            "spread_across": model.spread_across - base.spread_across,
            **({"kl": model.kl} if model.kl is not None else {}),
            **(
                {"lost_beyond_sharpening": equal - mean(model.distinct)}
                if equal is not None
                else {}
            ),
        }
        for problem, each in shifted.items():
            gain = each["policy"].mean - each["base"].mean
            numbers[f"gain_on_{problem}"] = gain
        heats = ", ".join(f"{t:g}" for t in (*self.temperatures, self.temperature))
        return pl.studies.StudyReport(
            study="rlhf-diversity",
            question=self.question,
            findings=tell(base, model, less, equal, shifted),
            numbers=numbers,
            protocol={
                "answers": f"{self.n} to each of {len(base.within)} problems at {self.temperature:g}",
                "tokens": "of the start's tokenizer, for all models",
                "control": f"the start at temperatures {heats}",
                "power": power,
            },
            tables=[table(measures), *shifted_tables(measures, shifted)],
            charts=[chart(measures, [base, *cooler])],
            items=[{"model": name, **x} for name, each in items.items() for x in each],
        )


@dataclass(frozen=True, slots=True)
class Variety:
    """Of one model's answers: their quality; distinct n-grams of each problem's answers, by problem, and
    of each sample's answers to all problems; the spread of states likewise, means; and the divergence from
    the start, None where it cannot be told.
    """

    quality: pl.stats.Interval
    within: Mapping[int, float]
    across: list[float]
    spread_within: float = math.nan
    spread_across: float = math.nan
    kl: float | None = None

    @property
    def distinct(self) -> list[float]:
        """Of the problems, in their order."""
        return list(self.within.values())


def mean(values: Any) -> float:
    return float(np.mean(values))


def quality_of(items: Sequence[pl.studies.Item]) -> pl.stats.Interval:
    """The mean over problems that have an answer."""
    return pl.stats.unbounded_interval([q for q in pl.studies.quality(items) if q == q])


def measure(ctx: pl.Context, name: str, items: Sequence[pl.studies.Item]) -> Variety:
    """Of a model's answers; without a name only what texts alone say."""
    start = ctx.model("base")
    spell: Callable[[str], tuple[int, ...]] = lambda text: tuple(
        start.tokenizer.encode(text, add_special_tokens=False)
    )
    several = [x for x in items if len(x["texts"]) > 1]
    if not several:
        raise pl.UserError(
            "no problem has two answers that could be sampled; diversity is of several"
        )
    ids = [[spell(t) for t in x["texts"]] for x in several]
    columns = list(zip(*ids, strict=False))  # of each sample, one answer a problem
    size = len(start.tokenizer)
    plain = Variety(
        quality_of(items),
        {
            x["problem"]: pl.studies.distinct_ngrams(each, size)
            for x, each in zip(several, ids, strict=True)
        },
        [pl.studies.distinct_ngrams(each, size) for each in columns],
    )
    if not name:
        return plain
    states = [
        pl.models.activations(
            start, [t[:READ] or (0,) for t in each], [len(start.layers)], at="mean"
        )[:, 0]
        for each in ids
    ]
    return replace(
        plain,
        spread_within=mean([pl.studies.spread(each) for each in states]),
        spread_across=mean(
            [pl.studies.spread(np.array(each)) for each in zip(*states, strict=False)]
        )
        if len(states) > 1
        else math.nan,
        kl=divergence(ctx, name, several),
    )


def divergence(ctx: pl.Context, name: str, items: Sequence[pl.studies.Item]) -> float | None:
    """The mean over answers of log p of the model less that of the start, in nats an answer; None
    where an episode has more than a question and an answer.
    """
    if not isinstance(ctx.bench.world, pl.worlds.Question):
        return None
    written = [
        pl.run.WrittenText(text, tuple(ctx.bench.tasks.task("test", x["problem"]).prompt))
        for x in items
        for text in x["texts"]
    ]
    sums = [
        [
            float(np.sum(each))
            for each in pl.models.score_pairs(model, pl.run.spell_texts(model, written)[0])
        ]
        for model in (ctx.model(name), ctx.model("base"))
    ]
    return mean(sums[0]) - mean(sums[1])


def at_equal_quality(heats: Sequence[Variety], quality: float) -> float | None:
    """Distinct n-grams of the start at the temperature at which it has this quality, on the line
    between two neighbouring temperatures; None where it has it at none.

    Args:
        heats: of the start, the hottest first; of several crossings the first counts.
    """
    for hot, cold in itertools.pairwise(heats):
        q0, q1 = hot.quality.mean, cold.quality.mean
        d0, d1 = mean(hot.distinct), mean(cold.distinct)
        if min(q0, q1) <= quality <= max(q0, q1):
            return d0 + (d1 - d0) * (quality - q0) / (q1 - q0) if q1 != q0 else d0
    return None


def tell(
    base: Variety,
    model: Variety,
    less: pl.stats.Interval,
    equal: float | None,
    shifted: Mapping[str, Mapping[str, pl.stats.Interval]],
) -> list[str]:
    """The findings as sentences, the answer first."""
    way = "less" if less.high < 0 else "more" if less.low > 0 else "not measurably less or more"
    first = (
        f"Answers to one problem are {way} varied after training: {mean(model.distinct):.3f} of distinct "
        f"n-grams against {mean(base.distinct):.3f}, {pl.studies.tell_interval(less, share=False, signed=True)}."
    )
    if equal is None:
        control = "The start reaches the model's quality at no temperature that was tried, so nothing is matched."
    else:
        control = (
            f"The start as good as the model, at a lower temperature, has {equal:.3f}: "
            f"{equal - mean(model.distinct):+.3f} is lost beyond sharpening."
        )
    lines = [
        f"On {problem} the model gets {each['policy'].mean:.3f}, the start {each['base'].mean:.3f}."
        for problem, each in shifted.items()
    ]
    return [first, control, *lines]


def table(measures: Mapping[str, Variety]) -> pl.studies.StudyTable:
    """All measures of all models."""
    columns = (
        "model",
        "quality",
        "distinct, one problem",
        "across problems",
        "spread, one problem",
        "across problems",
        "KL, nats an answer",
    )
    rows = [
        (
            called(name),
            pl.studies.tell_interval(m.quality, share=False),
            f"{mean(m.distinct):.3f}",
            f"{mean(m.across):.3f}",
            f"{m.spread_within:.3f}",
            f"{m.spread_across:.3f}",
            "" if m.kl is None else f"{m.kl:.2f}",
        )
        for name, m in measures.items()
    ]
    return pl.studies.StudyTable("How varied the answers are", columns, rows)


def shifted_tables(
    measures: Mapping[str, Variety], shifted: Mapping[str, Mapping[str, pl.stats.Interval]]
) -> list[pl.studies.StudyTable]:
    """Quality on the other problems, and how much less it is than on the one trained on."""
    if not shifted:
        return []
    rows = [
        (
            called(name),
            problem,
            pl.studies.tell_interval(each[name], share=False),
            f"{m.quality.mean - each[name].mean:+.3f}",
        )
        for problem, each in shifted.items()
        for name, m in measures.items()
    ]
    return [
        pl.studies.StudyTable("On other problems", ("model", "problem", "quality", "gap"), rows)
    ]


def called(name: str) -> str:
    return {"base": "start", "policy": "model"}.get(name, name)


def chart(measures: Mapping[str, Variety], cooler: Sequence[Variety]) -> pl.studies.StudyChart:
    """Diversity against quality: the start's line over temperatures, and a point for each model."""
    line = pl.studies.StudyLine(
        "start, by temperature",
        [m.quality.mean for m in cooler],
        [mean(m.distinct) for m in cooler],
    )
    points = [
        pl.studies.StudyLine(called(n), [m.quality.mean], [mean(m.distinct)])
        for n, m in measures.items()
        if n != "base"
    ]
    return pl.studies.StudyChart(
        "Variety against quality", "quality", "distinct n-grams", [line, *points]
    )


def build(
    base: str = "",
    beside: str = "",
    shifted: str = "",
    problems: int = 64,
    samples: int = 16,
    temperature: float = 1.0,
    temperatures: tuple[float, ...] = (0.3, 0.5, 0.7),
) -> Diversity:
    """`base` is the model before training, "" = what the run of the model began with; `beside` are
    further models as NAME=MODEL, `shifted` other problems: files, or built-in tasks; commas stand
    between several."""
    return Diversity(base, beside, shifted, problems, samples, temperature, temperatures)


def embedded(problems: int = 64, samples: int = 16, steps: int = 30) -> pl.Pipeline:
    """The built-in model after `steps` steps of imitation and after as many of GRPO, on sums to reach;
    both are asked for chains of sums too."""
    schedule = pl.Schedule(prompts=32, steps=steps)
    taught, trained = (pl.vary(pl.recipe(name), schedule=schedule) for name in ("sft", "grpo"))
    study = Diversity("tiny", "", "chain", problems, samples, present=("taught",))
    return pl.Pipeline(
        parts={
            "taught": pl.warm(taught),
            "trained": pl.warm(trained),
            "study": pl.Part(
                study, model=pl.Output("trained"), models={"taught": pl.Output("taught")}
            ),
        }
    )
