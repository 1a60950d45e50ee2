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

Beside stands best of n: of every `best_of` answers of the start the one with the highest reward, the first of
equals, which is what training could be replaced by where the reward can be asked. Its KL is the upper bound
log n - (n - 1) / n (arXiv:2401.01879).

    palaestra study rlhf-diversity --model runs/mine/checkpoints/step-100 --data F shifted=OTHER.jsonl
    palaestra study rlhf-diversity --model RLHF base=BASE beside=sft=SFT --data F

Quality is the share of right answers, or the mean reward where nobody says what is right.

Long because every model is measured at several temperatures, on several problem sets, and beside best of n.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.rlhf_diversity.measures import (
    Variety,
    best_name,
    lost_beyond_sharpening,
    mean,
    measure,
    measure_best,
    quality_of,
)
from palaestra.recipes.analysis.rlhf_diversity.report import (
    chart,
    shifted_tables,
    table,
    tell,
    tell_best,
)

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
        own={
            "base": "tiny-agent",
            "problems": 2,
            "samples": 3,
            "temperatures": "[0.5]",
            "best_of": 2,
        },
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
        best_of: answers of the start of which the best is taken; 0 = best of n is left out.
        template: the chat template of all models; see `pl.studies.hold_template`.
    """

    base: str = ""
    beside: str = ""
    shifted: str = ""
    tasks: int = 64
    n: int = 16
    temperature: float = 1.0
    temperatures: tuple[float, ...] = (0.3, 0.5, 0.7)
    present: tuple[str, ...] = ()
    best_of: int = 4
    template: str = "own"
    question: ClassVar[str] = (
        "Are answers less varied after training, and what do they gain elsewhere?"
    )
    check_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=2)
        pl.check_bounds("samples", self.n, least=2)
        pl.check_bounds("best_of", self.best_of, least=0)
        if wrong := [x for x in pl.studies.listed(self.beside) if "=" not in x]:
            raise pl.UserError(f"beside={wrong[0]}: write NAME=MODEL, such as beside=sft=DIR")

    async def run(self, ctx: pl.Context) -> pl.Result:
        others = {k: v for k, _, v in (x.partition("=") for x in pl.studies.listed(self.beside))}
        held = pl.studies.bring_models(ctx, self.base, others, self.template)
        shifted = {p: pl.studies.on_problem(ctx, p) for p in pl.studies.listed(self.shifted)}
        power = pl.studies.tell_mean_power(ctx, self.tasks, "diversity")
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
        if self.best_of > 1:
            many = await self._answers(ctx, "base", draw="best of n", n=self.n * self.best_of)
            measures[best_name(self.best_of)] = measure_best(ctx, many, self.best_of)
        return pl.studies.publish(ctx, self._report(items, measures, line, gaps, (power, held)))

    async def _answers(
        self,
        ctx: pl.Context,
        model: str,
        temperature: float | None = None,
        draw: str = "answers",
        n: int = 0,
    ) -> list[pl.studies.Item]:
        heat = self.temperature if temperature is None else temperature
        return await pl.studies.answers(
            ctx,
            model,
            self.tasks,
            n or self.n,
            temperature=heat,
            draw=f"{draw} at temperature {heat:g}",
        )

    def _report(
        self,
        items: Mapping[str, Sequence[pl.studies.Item]],
        measures: Mapping[str, "Variety"],
        heats: Sequence["Variety"],
        shifted: Mapping[str, Mapping[str, pl.stats.Interval]],
        notes: tuple[str, str],
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
        if (best := measures.get(best_name(self.best_of))) is not None:
            numbers["quality_of_best"] = best.quality
            numbers["diversity_of_best"] = mean(best.distinct)
        for problem, each in shifted.items():
            gain = each["policy"].mean - each["base"].mean
            numbers[f"gain_on_{problem}"] = gain
        control = sorted({*self.temperatures, self.temperature}, reverse=True)
        return pl.studies.StudyReport(
            study="rlhf-diversity",
            question=self.question,
            findings=[*tell(base, model, less, lost, shifted), *tell_best(measures, self.best_of)],
            numbers=numbers,
            protocol={
                "answers": f"{self.n} to each of {len(base.within)} problems at {self.temperature:g}",
                "tokens": "of the start's tokenizer, for all models",
                "control": f"the start at temperatures {', '.join(f'{t:g}' for t in control)}",
                "power": notes[0],
                "templates": notes[1],
            },
            tables=[table(measures), *shifted_tables(measures, shifted)],
            charts=[chart(measures, heats)],
            items=[{"model": name, **x} for name, each in items.items() for x in each],
        )


def build(
    base: str = "",
    beside: str = "",
    shifted: str = "",
    problems: int = 64,
    samples: int = 16,
    temperature: float = 1.0,
    temperatures: tuple[float, ...] = (0.3, 0.5, 0.7),
    best_of: int = 4,
    template: str = "own",
) -> Diversity:
    """`base` is the model before training, "" = what the run of the model began with; `beside` are
    further models as NAME=MODEL, `shifted` other problems: files, or built-in tasks; commas stand
    between several. `best_of` answers of the start compete for each of those of best of n; `template`
    is the chat template of all models: own, base (the start's for all) or a file."""
    return Diversity(
        base, beside, shifted, problems, samples, temperature, temperatures, (), best_of, template
    )


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
