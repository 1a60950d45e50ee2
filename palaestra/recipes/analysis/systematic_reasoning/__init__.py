"""Systematic relational reasoning: does a model compose relations along longer paths, and does it combine
what several paths say, than it ever saw (arXiv:2503.23487)? A study: nothing is trained.

    k, b       b paths without a common edge, of k relations each, lead from one thing to another
    value      of a path: the composition of its relations, the set of those that are possible
    answer     the one relation that all paths allow. b = 1: the path determines it; b > 1: each path
               alone allows several
    cells      accuracy for each k and b, beside three guesses:
        chance         1 / the number of relations (13 of intervals, 8 of regions)
        most frequent  always the label that is the answer most often
        shortest path  one of the relations that a shortest path allows, at random: mean of 1 / |set|
    boundary   the greatest k up to which, at one b, accuracy is above the best guess with 95% confidence
    shallow    of wrong answers where b > 1, the share that some one path alone allows

    palaestra study systematic-reasoning --model M [--base B]
    palaestra study systematic-reasoning --model M --task "relations(calculus='rcc8',table='whole')" ks=[2,4,8]
    palaestra study systematic-reasoning --model M --data problems.jsonl calculus=rcc8

The table of compositions is in the prompt or not, as `table` of the problem says: "whole", "needed" (the
entries that the paths need) or "none". Problems of a user are rows with `edges`, a list of [from, relation,
to], and `query`, the pair that is asked for: k is then the length of a shortest path, b the number of paths
that are found one after another without a common edge (against the direction of edges, with the converse of
their relation, where none leads along it), and answers that contradict path consistency are told and left out.
"""

from dataclasses import replace
from typing import Any, ClassVar

import palaestra as pl
from palaestra.recipes.analysis.systematic_reasoning.findings import report
from palaestra.recipes.analysis.systematic_reasoning.relations import AskedRelation, read_item

CARD = pl.Card(
    title="Systematic relational reasoning of large reasoning models",
    paper="arXiv:2503.23487",
    claim="Reasoning models compose relations along one path better than language models without reasoning; where "
    "several paths have to be combined both fail, and answer as a single path allows.",
    source="abstracts of both versions; the guesses and the sampling of problems as the catalogue has them",
    size=pl.Size(
        setting="open and closed language and reasoning models on STaR: RCC-8 and the interval algebra, zero-shot, "
        "with examples and fine-tuned",
    ),
    task="relations",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("0 b 1, 1 m 2: 0 ? 2", "0 d 1, 1 b 2: 0 ? 2", "0 o 1, 1 di 2, 0 b 2: 0 ? 2"),
                "what the model is asked",
            ),
            pl.needs.NeededColumn("answer", "text", ("b", "b", "b"), "the relation"),
            pl.needs.NeededColumn(
                "edges",
                "any",
                (
                    [[0, "b", 1], [1, "m", 2]],
                    [[0, "d", 1], [1, "b", 2]],
                    [[0, "o", 1], [1, "di", 2], [0, "b", 2]],
                ),
                "the graph, as [from, relation, to]",
            ),
            pl.needs.NeededColumn(
                "query", "any", ([0, 2], [0, 2], [0, 2]), "the pair whose relation is asked for"
            ),
        ),
        models=(replace(pl.studies.BASE, otherwise="the model is measured alone"),),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "problems": 2, "samples": 1},
    ),
    use="It tells whether a model that reasons does so step by step; a model that never saw the names of the "
    "relations needs the table in the prompt.",
    lacks=(
        "The STaR problems themselves are not shipped: bring them with --data.",
        "Fine-tuning on small k and b is training: palaestra train sft --task 'relations(k=2)', and study what it "
        "made.",
        "Relations have their usual short names or single letters, where the paper writes whole numbers.",
    ),
    grade="A",
)  # fmt: skip


@pl.stage
class SystematicReasoning:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with, or none.
        calculus: of problems of a user.
        ks, bs: lengths and numbers of paths of the problems that are made.
        tasks: held-out problems of each cell; of a user's, of all.
        n: answers to each.
        temperature: of the answers; 0 = greedy.
    """

    base: str = ""
    calculus: str = "interval"
    ks: tuple[int, ...] = (2, 3, 4, 6)
    bs: tuple[int, ...] = (1, 2, 3)
    tasks: int = 48
    n: int = 1
    temperature: float = 0.0
    question: ClassVar[str] = "How long a path, and how many paths, can the model reason along?"
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=1)
        if self.calculus not in ("interval", "rcc8"):
            raise pl.UserError(f"calculus={self.calculus}: it is interval or rcc8")
        if not self.ks or not self.bs:
            raise pl.UserError("ks and bs name at least one length and one number of paths")

    async def run(self, ctx: pl.Context) -> pl.Result:
        names = ["policy", *(["base"] if bring_base(ctx, self.base) else [])]
        tasks = ctx.bench.tasks
        power = pl.studies.tell_power(ctx, self.tasks)
        if isinstance(tasks, pl.toys.Relations):
            cells = {(k, b): replace(tasks, k=k, b=b) for b in self.bs for k in self.ks}
            name = tasks.calculus
        else:
            cells, name = {(0, 0): tasks}, self.calculus
        asked: list[AskedRelation] = []
        for (k, b), source in cells.items():
            there = ctx.with_bench(replace(ctx.bench, tasks=source))
            items = {
                model: await pl.studies.answers(
                    there,
                    model,
                    self.tasks,
                    self.n,
                    temperature=self.temperature,
                    draw=f"k={k} b={b}",
                )
                for model in names
            }
            labels = source.labels if isinstance(source, pl.toys.Relations) else None
            asked += [
                read_item(there, name, i, {m: items[m][at] for m in names}, labels)
                for at, i in enumerate(x["problem"] for x in items["policy"])
            ]
        good = [x for x in asked if x.consistent]
        if wrong := len(asked) - len(good):
            ctx.say(
                f"{wrong} of {len(asked)} problems contradict path consistency, and are left out"
            )
        if not good:
            raise pl.UserError(
                f"no problem has an answer that follows from its edges in the calculus {name}; calculus=rcc8 or "
                "interval names the other one"
            )
        answers = f"{self.n} to each of {len(good)} problems at temperature {self.temperature:g}"
        protocol = {"calculus": name, "answers": answers, "power": power}
        if wrong:
            protocol["left out"] = f"{wrong} problems that contradict path consistency"
        whole = report(good, names)
        return pl.studies.publish(ctx, replace(whole, question=self.question, protocol=protocol))


def bring_base(ctx: Any, base: str) -> bool:
    """Whether there is a model before training to compare with, which is added to the context."""
    if "base" not in ctx.models and (base or pl.studies.start_of(ctx.model("policy").name)):
        pl.studies.bring_models(ctx, base)
    return "base" in ctx.models


# ---- what the answers show


def build(
    base: str = "",
    calculus: str = "interval",
    ks: tuple[int, ...] = (2, 3, 4, 6),
    bs: tuple[int, ...] = (1, 2, 3),
    problems: int = 48,
    samples: int = 1,
    temperature: float = 0.0,
) -> SystematicReasoning:
    """`base` is the model before training, "" = what the run of the model began with, if that is known.
    `samples` answers to `problems` held-out problems of each length `ks` and number of paths `bs`; or to so
    many problems of --data, of a `calculus` that is interval or rcc8."""
    return SystematicReasoning(base, calculus, ks, bs, problems, samples, temperature)


SHORT = "relations(letters=true,k={k},b={b})"


def embedded(steps: int = 120, problems: int = 32) -> pl.Pipeline:
    """The built-in model imitates worked compositions for `steps` steps, along one path of 2 or 3
    relations and two of 2, and is measured on longer and on more paths."""
    taught = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=2e-3, warmup=5),
        schedule=pl.Schedule(prompts=48, steps=steps),
    )
    seen = "+".join(SHORT.format(k=k, b=b) for k, b in ((2, 1), (3, 1), (2, 2)))
    return pl.Pipeline(
        parts={
            "taught": pl.warm(taught, task=seen),
            "study": pl.Part(
                SystematicReasoning("tiny", ks=(2, 3, 4), bs=(1, 2), tasks=problems),
                model=pl.Output("taught"),
                task=SHORT.format(k=2, b=1),
            ),
        }
    )
