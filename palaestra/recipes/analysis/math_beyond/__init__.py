"""MATH-Beyond: does training reach problems that the start never solves, or does it only make likelier
what the start could do (arXiv:2510.11653)? A study: nothing is trained.

    unsolved      U = the problems of which the start solves none in n answers
    pass@k        1 - C(n - c, k) / C(n, k) of n answers with c right
    expansion     mean over U of pass@n of the model, less that of the start drawn again
    lost          of the problems that the start solves, the share that the model never does, less
                  the share that the start drawn again never does

U is chosen by luck as well: 0 of n right only says that the start's chance is below 1 - .05^(1/n), with
95% confidence. So the start is drawn a second time, and the model is compared with that draw on
the same random numbers: a model with the start's weights has an expansion and a loss of exactly 0.

    palaestra study math-beyond --model runs/mine/checkpoints/step-100 --data F
    palaestra study math-beyond --model AFTER base=BEFORE --data F

`base` may be left off where the model is a checkpoint of a run. `also=A,B` are further start models: the
report then has the problems that none of them solves (their intersection) and those that one of
them does not (their union). The run folder has unsolved.jsonl, the problems of U as rows for --data.
A gain may be a verifier's mistake: items.jsonl has all answers to the problems that were gained.

Long because two draws of the start, the model and further starts each give numbers, tables and sentences.
"""

from collections.abc import Sequence
from typing import ClassVar

import palaestra as pl
from palaestra.recipes.analysis.math_beyond.report import (
    curves,
    right_table,
    starts_table,
    tables_of,
    tell,
    tell_guess,
    tell_seen,
    unsolved,
)

CARD = pl.Card(
    title="MATH-Beyond",
    paper="arXiv:2510.11653",
    claim="On problems that common open models never solve in 1,024 answers, models after reinforcement "
    "learning solve few: training sharpens what was there more than it expands it.",
    source="abstract; expansion rate and the sets of problems as the catalogue has them; the second draw "
    "of the start is ours",
    size=pl.Size(
        setting="181 problems of DAPO-Math-17K and DeepScaleR, 41 that no model solves; models of up to 8B, "
        "1,024 answers each",
    ),
    task="count",
    needs=pl.needs.Requirements(
        models=(pl.studies.BASE,),
        shows="changed",
        off={"base": "policy"},
        own={"base": "tiny-agent", "problems": 8, "samples": 8},
    ),
    use="It tells expansion from sharpening where the start leaves problems unsolved; where it solves all of "
    "them within n answers take harder problems, or fewer answers.",
    lacks=(
        "The 181 problems are on a hub: bring them with --data.",
        "Gained problems are judged by one verifier; a second one is yours to run on items.jsonl.",
    ),
    grade="B",
)


@pl.stage
class BeyondStart:
    """The study; see the module. `n` answers to each of `tasks` problems at a
    `temperature`, three times: the start, the start again, and the model, all asked with a `template`, see
    `pl.studies.hold_template`. Guesses are 1 of `answers`, 0 = of as many as the problems have.
    """

    base: str = ""
    also: str = ""
    tasks: int = 128
    n: int = 64
    temperature: float = 1.0
    template: str = "own"
    answers: int = 0
    question: ClassVar[str] = "Did training reach problems that the start never solves?"
    check_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=2)

    async def run(self, ctx: pl.Context) -> pl.Result:
        named = {f"base {i + 2}": source for i, source in enumerate(pl.studies.listed(self.also))}
        held = pl.studies.bring_models(ctx, self.base, named, self.template)
        power = pl.studies.tell_power(ctx, self.tasks)
        first, again, after = [
            await self._answers(ctx, model, draw)
            for model, draw in (("base", "first"), ("base", "again"), ("policy", "again"))
        ]
        others = [await self._answers(ctx, name, "first") for name in named]
        trained = pl.studies.trained_prompts(ctx)
        seen = [x["prompt"] in trained for x in after] if trained else []
        report = self.report(first, again, after, others, power, seen, held)
        if ctx.out is not None:
            pl.studies.keep_rows(ctx.folder / "unsolved.jsonl", [first[i] for i in unsolved(first)])
        return pl.studies.publish(ctx, report)

    async def _answers(self, ctx: pl.Context, model: str, draw: str) -> list[pl.studies.Item]:
        return await pl.studies.answers(
            ctx, model, self.tasks, self.n, temperature=self.temperature, draw=draw
        )

    def _protocol(self, problems: int) -> dict[str, str]:
        """How it was asked, and what "never solved" means."""
        n = self.n
        return {
            "problems": f"{problems} of them, {n} answers each at temperature {self.temperature:g}",
            "draws": "the start twice, the model once with the random numbers of the start's second draw",
            "never solved": f"0 of {n} right: the chance is below {bound(n):.2%}, with 95% confidence",
        }

    def report(
        self,
        first: Sequence[pl.studies.Item],
        again: Sequence[pl.studies.Item],
        after: Sequence[pl.studies.Item],
        others: Sequence[Sequence[pl.studies.Item]] = (),
        power: str = "",
        seen: Sequence[bool] = (),
        held: str = "",
    ) -> pl.studies.StudyReport:
        """What the draws show: the start's, its second one, the model's, and those of other starts. `seen`
        are the problems that the model was trained on, () = not known; `held` says of the templates.
        """
        n = self.n
        shares = {"start": pl.studies.right_shares(again), "model": pl.studies.right_shares(after)}
        before, now = ([float(s > 0) for s in shares[k]] for k in ("start", "model"))
        hard = unsolved(first)
        solved = sorted({*range(len(first))} - {*hard})
        expansion = pl.stats.paired_share_difference(
            [before[i] for i in hard], [now[i] for i in hard]
        )
        lost = pl.stats.paired_share_difference(
            [1 - before[i] for i in solved], [1 - now[i] for i in solved]
        )
        sharper = pl.stats.paired_share_difference(shares["start"], shares["model"])
        changed = [abs(a - b) for a, b in zip(shares["start"], shares["model"], strict=True)]
        rates = {
            name: pl.stats.proportion(sum(solves[i] for i in hard), len(hard))
            for name, solves in (("expansion_rate", now), ("expansion_rate_of_start", before))
        }
        possible = pl.studies.possible_answers(first, self.answers)
        guess = {k: pl.studies.guessed(possible, k) for k in (1, n)} if possible else {}
        guesses = {"guess": guess[1], "guess_within_n": guess[n]} if guess else {}
        numbers = {
            "unsolved": len(hard),
            "changed": sum(changed) / len(changed),
            "sharper": sharper,
            "within_n": pl.stats.paired_share_difference(before, now),
            **guesses,
            **({"expansion": expansion, **rates} if hard else {}),
            **({"lost": lost} if solved else {}),
        }
        return pl.studies.StudyReport(
            study="math-beyond",
            question=self.question,
            findings=tell(
                len(first), len(hard), n, expansion, lost, sharper, tell_seen(seen, shares)
            )
            + tell_guess(possible, n),
            numbers=numbers,
            protocol={**self._protocol(len(first)), "templates": held, "power": power},
            tables=[
                right_table(shares, seen, guess.get(1)),
                *tables_of(again, after, before, now),
                *starts_table([first, *others]),
            ],
            charts=[curves(again, after, n, possible)],
            items=items_of(first, again, after, seen),
        )


def items_of(
    first: Sequence[pl.studies.Item],
    again: Sequence[pl.studies.Item],
    after: Sequence[pl.studies.Item],
    seen: Sequence[bool],
) -> list[pl.studies.Item]:
    """The model's answers, with what the start's two draws made of the same problem."""
    hard = set(unsolved(first))
    return [
        {
            **a,
            "first": x["right"],
            "start": b["right"],
            "start_tokens": b["tokens"],
            "unsolved": i in hard,
            **({"trained": seen[i]} if seen else {}),
        }
        for i, (x, b, a) in enumerate(zip(first, again, after, strict=True))
    ]


def bound(n: int) -> float:
    """The greatest chance under which 0 of n right answers happen one time out of twenty."""
    return 1 - 0.05 ** (1 / n)


def build(
    base: str = "",
    also: str = "",
    problems: int = 128,
    samples: int = 64,
    temperature: float = 1.0,
    template: str = "own",
    answers: int = 0,
) -> BeyondStart:
    """`base` is the model before training, "" = what the run of the model began with; `also` further
    ones, with commas between them. `samples` answers to each of `problems` problems. `template` is the
    chat template of all of them: own, base (the start's for all) or a file. Beside stands who guesses
    among `answers`, 0 = among the right answers of these problems."""
    return BeyondStart(base, also, problems, samples, temperature, template, answers)


def embedded(problems: int = 256, samples: int = 16, steps: int = 40) -> pl.Pipeline:
    """The built-in model before and after `steps` steps of GRPO on sums to reach."""
    trained = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(steps=steps))
    return pl.Pipeline(
        parts={
            "trained": pl.warm(trained),
            "study": pl.Part(
                BeyondStart("tiny", tasks=problems, n=samples), model=pl.Output("trained")
            ),
        }
    )
