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
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import palaestra as pl

MOST_SHOWN, MOST_LETTERS = 20, 200  # problems of a kind, and letters of each, on the page

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
    `temperature`, three times: the start, the start again, and the model.
    """

    base: str = ""
    also: str = ""
    tasks: int = 128
    n: int = 64
    temperature: float = 1.0
    question: ClassVar[str] = "Did training reach problems that the start never solves?"
    check_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=2)

    async def run(self, ctx: pl.Context) -> pl.Result:
        named = {f"base {i + 2}": source for i, source in enumerate(pl.studies.listed(self.also))}
        pl.studies.bring_models(ctx, self.base, named)
        power = pl.studies.tell_power(ctx, self.tasks)
        first, again, after = [
            await self._answers(ctx, model, draw)
            for model, draw in (("base", "first"), ("base", "again"), ("policy", "again"))
        ]
        others = [await self._answers(ctx, name, "first") for name in named]
        trained = pl.studies.trained_prompts(ctx)
        seen = [x["prompt"] in trained for x in after] if trained else []
        report = self.report(first, again, after, others, power, seen)
        if ctx.out is not None:
            pl.studies.keep_rows(ctx.folder / "unsolved.jsonl", [first[i] for i in unsolved(first)])
        return pl.studies.publish(ctx, report)

    async def _answers(self, ctx: pl.Context, model: str, draw: str) -> list[pl.studies.Item]:
        return await pl.studies.answers(
            ctx, model, self.tasks, self.n, temperature=self.temperature, draw=draw
        )

    def report(
        self,
        first: Sequence[pl.studies.Item],
        again: Sequence[pl.studies.Item],
        after: Sequence[pl.studies.Item],
        others: Sequence[Sequence[pl.studies.Item]] = (),
        power: str = "",
        seen: Sequence[bool] = (),
    ) -> pl.studies.StudyReport:
        """What the draws show: the start's, its second one, the model's, and those of other starts. `seen`
        are the problems that the model was trained on, () = not known.
        """
        n = self.n
        shares = {
            name: pl.studies.right_shares(x) for name, x in (("start", again), ("model", after))
        }
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
        numbers = {
            "unsolved": len(hard),
            "changed": sum(changed) / len(changed),
            "sharper": sharper,
            **({"expansion": expansion, **rates} if hard else {}),
            **({"lost": lost} if solved else {}),
        }
        return pl.studies.StudyReport(
            study="math-beyond",
            question=self.question,
            findings=tell(
                len(first), len(hard), n, expansion, lost, sharper, tell_seen(seen, shares)
            ),
            numbers=numbers,
            protocol={
                "problems": f"{len(first)} of them, {n} answers each at temperature {self.temperature:g}",
                "draws": "the start twice, the model once with the random numbers of the start's second draw",
                "never solved": f"0 of {n} right: the chance is below {bound(n):.2%}, with 95% confidence",
                "power": power,
            },
            tables=[
                right_table(shares, seen),
                *tables_of(again, after, before, now),
                *starts_table([first, *others]),
            ],
            charts=[curves(again, after, n)],
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


def unsolved(items: Sequence[pl.studies.Item]) -> list[int]:
    """The places of problems without a right answer."""
    return [i for i, share in enumerate(pl.studies.right_shares(items)) if not share]


def tell(
    problems: int,
    hard: int,
    n: int,
    expansion: pl.stats.Interval,
    lost: pl.stats.Interval,
    sharper: pl.stats.Interval,
    trained: str = "",
) -> list[str]:
    """The findings as sentences, the answer first; `trained` is what `tell_seen` says."""
    points = lambda x: pl.studies.tell_interval(x, signed=True)
    single = f"one answer is right {how_often(sharper)}"
    if not hard:
        answer = (
            f"These problems cannot tell: the start solves all {problems} within {n} answers. Take harder "
            "ones, or fewer answers."
        )
    elif expansion.low > 0:
        answer = f"Expansion: the model solves problems that the start does not, and {single}."
    elif sharper.low > 0:
        answer = f"Sharpening: {single}, and no problem is seen to be solved that the start never solves."
    elif sharper.high < 0:
        answer = f"Worse: {single}."
    else:
        answer = f"No difference is seen: {single}."
    rest = [
        f"Of {hard} problems that the start never solved in {n} answers the model solves {points(expansion)} "
        "more than the start drawn again.",
        f"Of the {problems - hard} that it did solve the model never solves {points(lost)} more.",
    ]
    sentences = rest[0 if hard else 1 :][: None if hard < problems else 1]
    return [" ".join(x for x in (answer, trained) if x), *sentences]


def how_often(gain: pl.stats.Interval) -> str:
    """A difference of shares in words, more often or less."""
    if gain.mean >= 0:
        return f"{pl.studies.tell_interval(gain, signed=True)} more often"
    less = replace(gain, mean=-gain.mean, low=-gain.high, high=-gain.low)
    return f"{pl.studies.tell_interval(less, signed=True)} less often"


def tell_seen(seen: Sequence[bool], shares: Mapping[str, Sequence[float]]) -> str:
    """How many problems the model was trained on, and what is measured on the others; "" = on none."""
    if not any(seen):
        return ""
    if all(seen):
        return (
            "It was trained on all of these problems, so they do not show what it does on others."
        )
    others = [i for i, known in enumerate(seen) if not known]
    start, model = ([shares[k][i] for i in others] for k in ("start", "model"))
    gain = pl.stats.paired_share_difference(start, model)
    return (
        f"It was trained on {sum(seen)} of these {len(seen)} problems; on the other {len(others)} one answer "
        f"is right {how_often(gain)}."
    )


def right_table(
    shares: Mapping[str, Sequence[float]], seen: Sequence[bool]
) -> pl.studies.StudyTable:
    """The share of right answers of the start and of the model: of all problems, of those that the model
    was trained on, and of the others.
    """
    everything = range(len(shares["start"]))
    kinds = [("all", list(everything))]
    if seen:
        kinds += [
            (name, [i for i in everything if seen[i] == known])
            for name, known in (("trained on", True), ("not trained on", False))
        ]
    rows: list[tuple[str, ...]] = []
    for name, those in kinds:
        if not those:
            continue
        start, model = ([shares[k][i] for i in those] for k in ("start", "model"))
        cells = [pl.studies.tell_interval(pl.stats.bounded_interval(x)) for x in (start, model)]
        gain = pl.stats.paired_share_difference(start, model)
        cells.append(pl.studies.tell_interval(gain, signed=True))
        rows.append((name, str(len(those)), *cells))
    columns = ("problems", "number", "start", "model", "difference")
    return pl.studies.StudyTable("How often one answer is right", columns, rows)


def kinds_table(before: Sequence[float], now: Sequence[float]) -> list[pl.studies.StudyTable]:
    """How many problems are solved by both, by one, and by none."""
    pairs = list(zip(before, now, strict=True))
    count = lambda a, b: str(sum((x, y) == (a, b) for x, y in pairs))
    rows = [
        ("kept", "solved by both", count(1, 1)),
        ("gained", "by the model alone", count(0, 1)),
        ("lost", "by the start alone", count(1, 0)),
        ("never", "by neither", count(0, 0)),
    ]
    note = (
        "Solved means that at least one of the answers is right, so a problem may count as kept that is solved "
        "more or less often than before. The start's second draw, on all problems."
    )
    return [pl.studies.StudyTable("Problems by who solves them", ("", "", "problems"), rows, note)]


def tables_of(
    again: Sequence[pl.studies.Item],
    after: Sequence[pl.studies.Item],
    before: Sequence[float],
    now: Sequence[float],
) -> list[pl.studies.StudyTable]:
    """What moved, and how long answers are."""
    moved = moved_table(again, after, before, now)
    return [*kinds_table(before, now), *moved, lengths_table(again, after)]


def moved_table(
    again: Sequence[pl.studies.Item],
    after: Sequence[pl.studies.Item],
    before: Sequence[float],
    now: Sequence[float],
) -> list[pl.studies.StudyTable]:
    """Which problems were gained and which lost, the first of each, with an answer before and after;
    nothing where none was.
    """
    rows: list[tuple[str, ...]] = []
    for kind, outcome in (("gained", (0, 1)), ("lost", (1, 0))):
        pairs = zip(again, after, before, now, strict=True)
        moved = [(x, y) for x, y, a, b in pairs if (a, b) == outcome]
        rows += [
            (
                kind,
                str(y["id"]),
                shortened(str(y["prompt"])),
                "" if y["gold"] is None else shortened(str(y["gold"])),
                shortened(example(x)),
                shortened(example(y)),
            )
            for x, y in moved[:MOST_SHOWN]
        ]
    note = (
        f"At most {MOST_SHOWN} of each. Of the one that solved it the first right answer is shown, of the other its "
        "first one; items.jsonl has all problems, with all answers of the model."
    )
    columns = ("", "problem", "its end", "right answer", "start", "model")
    return (
        [pl.studies.StudyTable("Which were gained and lost", columns, rows, note)] if rows else []
    )


def example(item: pl.studies.Item) -> str:
    """The first right answer, or the first one where none is right."""
    right = [t for t, r in zip(item["texts"], item["right"], strict=True) if r]
    return str([*right, *item["texts"]][0])


def shortened(prompt: str) -> str:
    """The end of a prompt in one line."""
    line = " ".join(prompt.split())
    return line if len(line) <= MOST_LETTERS else f"...{line[-MOST_LETTERS:]}"


def lengths_table(
    again: Sequence[pl.studies.Item], after: Sequence[pl.studies.Item]
) -> pl.studies.StudyTable:
    """Tokens of an answer before and after training: the mean, of right ones too, and how many were cut."""
    rows: list[tuple[str, ...]] = []
    for name, items in (("start", again), ("model", after)):
        tokens = [n for x in items for n in x["tokens"]]
        right = [n for x in items for n, r in zip(x["tokens"], x["right"], strict=True) if r]
        cut = sum(sum(x["cut"]) for x in items)
        cells = [f"{sum(some) / len(some):.1f}" if some else "" for some in (tokens, right)]
        rows.append((name, *cells, f"{cut} of {len(tokens)}"))
    columns = ("answers of the", "tokens", "tokens of right ones", "cut")
    return pl.studies.StudyTable("How long the answers are", columns, rows)


def starts_table(starts: Sequence[Sequence[pl.studies.Item]]) -> list[pl.studies.StudyTable]:
    """What several start models leave unsolved; nothing for one."""
    if len(starts) < 2:
        return []
    sets = [{*unsolved(items)} for items in starts]
    rows = [(f"base {i + 1}" if i else "base", str(len(s))) for i, s in enumerate(sets)]
    rows += [
        ("at least one of them", str(len(set.union(*sets)))),
        ("all of them", str(len(set.intersection(*sets)))),
    ]
    return [pl.studies.StudyTable("Problems never solved", ("by", "problems"), rows)]


def curves(
    again: Sequence[pl.studies.Item], after: Sequence[pl.studies.Item], n: int
) -> pl.studies.StudyChart:
    """pass@k of both over k = 1, 2, 4, ... n."""
    ks = [1 << i for i in range(n.bit_length()) if 1 << i <= n]
    lines = []
    for name, items in (("start", again), ("model", after)):
        points = [pl.stats.bounded_interval(pl.studies.passed(items, k)) for k in ks]
        lines.append(
            pl.studies.StudyLine(
                name,
                ks,
                [p.mean for p in points],
                [p.low for p in points],
                [p.high for p in points],
            )
        )
    return pl.studies.StudyChart(
        "Problems solved within k answers",
        "answers",
        "problems solved",
        lines,
        share=True,
        log_x=True,
    )


def build(
    base: str = "",
    also: str = "",
    problems: int = 128,
    samples: int = 64,
    temperature: float = 1.0,
) -> BeyondStart:
    """`base` is the model before training, "" = what the run of the model began with; `also` further
    ones, with commas between them. `samples` answers to each of `problems` problems."""
    return BeyondStart(base, also, problems, samples, temperature)


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
