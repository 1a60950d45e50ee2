"""Effects of RLHF on generalisation and diversity: what training did to how varied the answers are, and to
how good they are on other problems than those trained on (arXiv:2310.06452). A study: nothing is
trained.

    within a problem     D of its `samples` answers, a mean over problems
    across problems      D of one answer to each problem, a mean over the samples
    D                    distinct n-grams: N_n / (V (1 - ((V - 1) / V)^C_n)), n = 1..5, over tokens
                         spread: 1 - the mean cosine of all pairs of mean last hidden states
    gap                  quality on the problem less that on each of `shifted`
    KL                   mean log-prob of the model's answers, less that of the start, in nats an answer

Training makes a distribution sharper, and so does a lower temperature. So the start is sampled at
`temperatures` too: the control is the diversity that it has where it is as good as the model, on the
line between its temperatures, from the hottest to the coldest. What the model has less than that is lost
beyond sharpening; the interval of it covers the choice of the problems, for quality as for diversity.

    palaestra study rlhf-diversity --model runs/mine/checkpoints/step-100 --data F shifted=OTHER.jsonl
    palaestra study rlhf-diversity --model RLHF base=BASE beside=sft=SFT --data F

Quality is the share of right answers, or the mean reward where nobody says what is right.
"""

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
    grade="A",
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
        shifted = {p: pl.studies.on_problem(ctx, p) for p in pl.studies.listed(self.shifted)}
        power = pl.studies.tell_power(ctx, self.tasks)
        names = ["base", *others, *self.present, "policy"]
        items = {name: await self._answers(ctx, name) for name in names}
        measures = {name: measure(ctx, name, each) for name, each in items.items()}
        heats = {
            t: measure(ctx, "", await self._answers(ctx, "base", t))
            for t in self.temperatures
            if t != self.temperature
        }
        heats[self.temperature] = measures["base"]
        line = [heats[t] for t in sorted(heats, reverse=True)]
        gaps: dict[str, dict[str, pl.stats.Interval]] = {}
        for i, (problem, there) in enumerate(shifted.items()):
            each = {n: await self._answers(there, n, draw=f"other {i + 1}") for n in names}
            gaps[problem] = {n: quality_of(x) for n, x in each.items()}
        return pl.studies.publish(ctx, self._report(items, measures, line, gaps, power))

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
        heats: Sequence["Variety"],
        shifted: Mapping[str, Mapping[str, pl.stats.Interval]],
        power: str,
    ) -> pl.studies.StudyReport:
        base, model = measures["base"], measures["policy"]
        both = [i for i in base.within if i in model.within]
        pair = [base.within[i] for i in both], [model.within[i] for i in both]
        less = pl.stats.paired_difference(*pair)
        lost = lost_beyond_sharpening(heats, model)
        numbers: dict[str, float | pl.stats.Interval] = {
            "moved": mean(np.abs(np.subtract(*pair))),
            "diversity_within": less,
            "diversity_across": mean(model.across) - mean(base.across),
            "spread_within": model.spread_within - base.spread_within,
            "spread_across": model.spread_across - base.spread_across,
            **({"kl": model.kl} if model.kl is not None else {}),
            **({"lost_beyond_sharpening": lost} if lost is not None else {}),
        }
        for problem, each in shifted.items():
            gain = each["policy"].mean - each["base"].mean
            numbers[f"gain_on_{problem}"] = gain
        control = sorted({*self.temperatures, self.temperature}, reverse=True)
        return pl.studies.StudyReport(
            study="rlhf-diversity",
            question=self.question,
            findings=tell(base, model, less, lost, shifted),
            numbers=numbers,
            protocol={
                "answers": f"{self.n} to each of {len(base.within)} problems at {self.temperature:g}",
                "tokens": "of the start's tokenizer, for all models",
                "control": f"the start at temperatures {', '.join(f'{t:g}' for t in control)}",
                "power": power,
            },
            tables=[table(measures), *shifted_tables(measures, shifted)],
            charts=[chart(measures, heats)],
            items=[{"model": name, **x} for name, each in items.items() for x in each],
        )


@dataclass(frozen=True, slots=True)
class Variety:
    """Of one model's answers: their quality; distinct n-grams of each problem's answers, by problem, and
    of each sample's answers to all problems; the quality by problem, of those with distinct n-grams; the
    spread of states, means; and the divergence from the start, None where it cannot be told.
    """

    quality: pl.stats.Interval
    within: Mapping[int, float]
    across: list[float]
    qualities: Mapping[int, float]
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
        start.tokenizer.encode(text, add_special_tokens=False, verbose=False)
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
        {
            x["problem"]: q
            for x, q in zip(items, pl.studies.quality(items), strict=True)
            if len(x["texts"]) > 1
        },
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
    where an episode has more than a question and an answer. Of an answer that was cut the end is not
    counted, which the model did not write.
    """
    if not isinstance(ctx.bench.world, pl.worlds.Question):
        return None
    written = [
        pl.run.WrittenText(text, tuple(ctx.bench.tasks.task("test", x["problem"]).prompt), cut)
        for x in items
        for text, cut in zip(x["texts"], x["cut"], strict=True)
    ]
    sums = [
        [
            float(np.sum(each))
            for each in pl.models.score_pairs(model, pl.run.spell_texts(model, written)[0])
        ]
        for model in (ctx.model(name), ctx.model("base"))
    ]
    return mean(sums[0]) - mean(sums[1])


def lost_beyond_sharpening(heats: Sequence[Variety], model: Variety) -> pl.stats.Interval | None:
    """How many distinct n-grams the model has less than the start at the temperature at which it is as
    good, on the line between two neighbouring temperatures; None where it is so at none.

    With mean diversities D and qualities Q of the hotter (0) and colder (1) one and of the model (m):

        w = (Q_m - Q_0) / (Q_1 - Q_0),   lost = D_0 + w (D_1 - D_0) - D_m

    and the t interval of the linearised terms of the problems, whose mean is `lost` itself:

        d_0 + w (d_1 - d_0) - d_m + (D_1 - D_0) (q_m - q_0 - w (q_1 - q_0)) / (Q_1 - Q_0)

    Of two that are equally good w = 0, and the second part is left out.

    Args:
        heats: of the start, the hottest first; of several crossings the first counts.
        model: all are compared on the problems that each of them has.
    """
    both = [i for i in model.within if all(i in x.within for x in heats)]
    d_HN, q_HN = (
        np.array([[of[i] for i in both] for of in each])
        for each in ([x.within for x in heats], [x.qualities for x in heats])
    )
    d_N, q_N = (np.array([of[i] for i in both]) for of in (model.within, model.qualities))
    if not both:
        return None
    for d0_N, d1_N, q0_N, q1_N in zip(d_HN, d_HN[1:], q_HN, q_HN[1:], strict=False):
        hot, cold, quality = q0_N.mean(), q1_N.mean(), q_N.mean()
        if min(hot, cold) <= quality <= max(hot, cold):
            w = (quality - hot) / (cold - hot) if cold != hot else 0.0
            terms_N = d0_N + w * (d1_N - d0_N) - d_N
            if cold != hot:
                slope = (d1_N - d0_N).mean() / (cold - hot)
                terms_N = terms_N + slope * (q_N - q0_N - w * (q1_N - q0_N))
            return pl.stats.mean_interval(terms_N.tolist())
    return None


def tell(
    base: Variety,
    model: Variety,
    less: pl.stats.Interval,
    lost: pl.stats.Interval | None,
    shifted: Mapping[str, Mapping[str, pl.stats.Interval]],
) -> list[str]:
    """The findings as sentences, the answer first."""
    way = "less" if less.high < 0 else "more" if less.low > 0 else "not measurably less or more"
    first = (
        f"Answers to one problem are {way} varied after training: {mean(model.distinct):.3f} of distinct "
        f"n-grams against {mean(base.distinct):.3f}, {pl.studies.tell_interval(less, share=False, signed=True)}."
    )
    if lost is None:
        control = "The start reaches the model's quality at no temperature that was tried, so nothing is matched."
    else:
        seen = "is lost" if lost.low > 0 else "is gained" if lost.high < 0 else "is no seen loss"
        control = (
            f"The start as good as the model, at another temperature, has {mean(model.distinct) + lost.mean:.3f}: "
            f"{pl.studies.tell_interval(lost, share=False, signed=True)} {seen} beyond sharpening."
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


def chart(measures: Mapping[str, Variety], heats: Sequence[Variety]) -> pl.studies.StudyChart:
    """Diversity against quality: the start's line over temperatures, and a point for each model."""
    line = pl.studies.StudyLine(
        "start, by temperature",
        [m.quality.mean for m in heats],
        [mean(m.distinct) for m in heats],
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
