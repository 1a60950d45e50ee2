"""sAwMIL: do hidden states tell true statements, false ones and those that are neither apart, and from which
layer on? A study: nothing is trained but probes.

    bag        the states of a statement's last `tokens` tokens at one place of the model
    probes     one for each class against the rest, by multiple-instance learning: see `sawmil.margin`
    p          a balanced logistic regression of the three scores
    a(y)       (1 - (p_y - max_other p)) / 2, how odd label y is
    set        the labels with (#{calibration a_i >= a(y)} + 1) / (n + 1) > alpha; the right one is in it with
               a probability of at least 1 - alpha (split conformal prediction)
    wMCC       Matthews' correlation of the statements with one label in their set, times their share

Half of the entities are fitted to, a quarter calibrates the sets, and a quarter is measured: no statement
about an entity is in two of them. The place is chosen by the fitted half. Beside the probe stand what could
explain it away: the same probe with the labels of the fitted half shuffled, the model before training, the
most frequent label, and two simpler probes of the last token (support vectors; difference of means).
That the direction is used, and does not only lie there, is shown by steering: added to the hidden states
it should move log p("true") - log p("false"), and a random one of the same length should not.

    palaestra study sawmil --model DIR --data statements.jsonl
    palaestra study sawmil --model AFTER base=BEFORE --data statements.jsonl read=text

Rows have a statement as `prompt` and true, false or neither as `answer`. Without `entity`, statements are
split one by one; with two `domain`s or more, probes of all others are measured on each. `read=prompt` reads a
statement as the chat template puts it to the model, up to where its answer begins; `read=text` the bare text.

Long because a probe alone shows little, so the study runs its controls beside it: shuffled labels, transfer
between domains, the model before training, and steering; the fit of probes lies in a file of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.sawmil.findings import (
    VERDICTS,
    LabelledStatements,
    VeracityFindings,
    chart,
    last_text,
    methods_table,
    places_table,
    tell,
)
from palaestra.recipes.analysis.sawmil.layer import (
    ProbeSettings,
    VeracitySplit,
    judge_layer,
    split_statements,
)
from palaestra.recipes.analysis.sawmil.margin import METHODS, Method

MOST_PLACES = 16
SHUFFLES = 5  # of the labels of the fitted half
RANDOM = 4  # directions that steering is compared with
EXAMPLES = (
    ("Oslo", "Norway", "true"), ("Lima", "Japan", "false"), ("Zorvia", "Peru", "neither"),
    ("Rome", "Italy", "true"), ("Cairo", "Chile", "false"), ("Belgoria", "Kenya", "neither"),
    ("Paris", "France", "true"), ("Quito", "Nepal", "false"), ("Drolia", "Japan", "neither"),
    ("Tokyo", "Japan", "true"), ("Delhi", "Peru", "false"), ("Murgthia", "Spain", "neither"),
)  # fmt: skip

CARD = pl.Card(
    title="sAwMIL: multiple-instance veracity probes with conformal prediction",
    paper="arXiv:2506.23921",
    claim="The activations of a language model separate true statements, false ones and those that are neither; "
    "the signal is often strongest in the third quarter of the depth.",
    source="abstract and the released code as the catalogue has them; the squared slack, scores of other folds "
    "under the logistic regression and the controls beside it are ours",
    size=pl.Size(
        setting="16 open models, base and chat; cities, medical indications and word definitions",
    ),
    task="statements",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                tuple(f"{city} is in {place}." for city, place, _ in EXAMPLES),
                "a statement, or `messages`, a chat that ends with it",
            ),
            pl.needs.NeededColumn(
                "answer", "any", tuple(x for _, _, x in EXAMPLES), "true, false or neither"
            ),
            pl.needs.NeededColumn(
                "entity",
                "text",
                tuple(city for city, _, _ in EXAMPLES),
                "what the statement is about; statements about one entity stay together",
                otherwise="statements are split one by one",
            ),
        ),
        models=(pl.studies.BASE,),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "alpha": 0.5, "penalty": 1.0, "layers": "[2]"},
    ),
    use="It helps to see whether a model holds more than it says, and where; a probe finds what can be read off, "
    "so look at the controls beside it before calling that knowledge.",
    lacks=(
        "The three data sets of the paper are not shipped: bring them with --data.",
        "Locality, what steering does to other texts, and probes that are not linear are not here.",
        "On the built-in model the label stands at the last place alone, where the answer is made, and a bag adds "
        "nothing to its last token; nothing is shown there of the third quarter of the depth.",
        "The solver has a squared slack, and states of more than 256 numbers are reduced to 256 directions.",
    ),
    grade="B",
)

Read = Literal["prompt", "text"]


@pl.stage
class Veracity:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with, if it is one.
        statements: of the data, at most so many.
        read: as a prompt of a chat, or as bare text.
        tokens: of a bag.
        layers: places, 0 the embeddings; () = all, of a deep model 16 of them.
        alpha: a set may miss the right label so often.
        probe: of the fits.
    """

    base: str = ""
    statements: int = 600
    read: Read = "prompt"
    tokens: int = 10
    layers: tuple[int, ...] = ()
    alpha: float = 0.1
    probe: ProbeSettings = ProbeSettings()
    question: ClassVar[str] = "Do hidden states tell true, false and neither apart?"
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("statements", self.statements, least=12)
        pl.check_bounds("tokens", self.tokens, least=1)
        pl.check_bounds("alpha", self.alpha, least=0.01, most=0.9)
        pl.check_bounds("marked", self.probe.marked, least=1)
        pl.check_bounds("eta", self.probe.eta, least=0.01, most=1)

    async def run(self, ctx: pl.Context) -> pl.Result:
        based = pl.studies.knows_base(ctx, self.base)
        if based:
            pl.studies.bring_models(ctx, self.base)
        rows = read_statements(ctx, self.statements)
        split = split_statements(rows.entities, ctx.seed)
        check_split(rows, split, self.alpha)
        power = pl.studies.tell_power(ctx, len(split.test))
        names = ("base", "policy") if based else ("policy",)
        fits = {name: await self._fits(ctx, name, rows, split) for name in names}
        study = VeracityFindings(rows, split, self.alpha, fits)
        place = study.place("policy")
        studied = ctx.model("policy")
        states = lambda: [b[:, 0] for b in self._states(studied, rows, [place])]
        checks = await ctx.once("checks", lambda: self._checks(ctx.seed, rows, split, states()))
        steering = await ctx.once(
            "steering", lambda: self._steering(ctx.seed, studied, rows, study, place)
        )
        return pl.studies.publish(
            ctx, self._report(study, checks, steering, power, len(studied.layers))
        )

    def _states(
        self, model: Any, rows: "LabelledStatements", places: Sequence[int]
    ) -> list[np.ndarray]:
        """[T, L, D] of each statement."""
        ids = [statement_ids(model, t, self.read) for t in rows.tasks]
        return pl.models.token_states(model, ids, self.tokens, places)

    async def _fits(
        self, ctx: pl.Context, name: str, rows: "LabelledStatements", split: VeracitySplit
    ) -> dict[int, dict[Method, Any]]:
        """Of each place and method what `judge_layer` gives."""
        model = ctx.model(name)
        depth = len(model.layers)
        every = np.unique(np.linspace(0, depth, min(depth + 1, MOST_PLACES)).round().astype(int))
        places = self.layers or tuple(every.tolist())
        fits: dict[int, dict[Method, Any]] = {}
        for place in places:

            def fit(place: int = place) -> dict[Method, Any]:
                bags = [b[:, 0] for b in self._states(model, rows, [place])]
                return {m: judge_layer(bags, rows.labels, split, m, self.probe) for m in METHODS}

            ctx.say(f"{name}: place {place} of {depth}")
            fits[place] = await ctx.once(f"{name}-place-{place}", fit)
        return fits

    def _checks(
        self,
        seed: int,
        rows: "LabelledStatements",
        split: VeracitySplit,
        bags: Sequence[np.ndarray],
    ) -> dict[str, Any]:
        """At the chosen place: with shuffled labels, and by domain from all others."""
        transfer = {}
        domains = sorted({*rows.domains})
        for domain in domains if len(domains) > 1 else ():
            away = lambda at, domain=domain: [i for i in at if rows.domains[i] != domain]
            kept = [k for k, i in enumerate(split.train) if rows.domains[i] != domain]
            there = VeracitySplit(
                away(split.train),
                away(split.calibration),
                [i for i, d in enumerate(rows.domains) if d == domain],
                split.fold[kept],
            )
            if len({rows.labels[i] for i in there.train}) == len(rows.classes):
                transfer[domain] = {
                    "rows": list(there.test),
                    **judge_layer(bags, rows.labels, there, "sawmil", self.probe),
                }
        plain = replace(self.probe, penalty=self.probe.penalty or 1.0)
        shuffled = [
            judge_layer(bags, rows.labels, split, "sawmil", plain, shuffled=seed + k)
            for k in range(SHUFFLES)
        ]
        return {"shuffled": shuffled, "transfer": transfer}

    def _steering(
        self,
        seed: int,
        model: Any,
        rows: "LabelledStatements",
        study: "VeracityFindings",
        place: int,
    ) -> dict[str, float]:
        """Half the change of log p("true") - log p("false") as answers between adding a direction and
        taking it away, in nats, on the measured statements. The step is the distance of the means of
        true and false statements. Of random directions it is the mean of the sizes.
        """
        test = study.split.test
        at = {y: [i for i in study.split.train if rows.labels[i] == y] for y in VERDICTS[:2]}
        if not all(at.values()):
            return {}
        states = self._states(model, rows, [place])
        true, false = (np.mean([states[i][-1, 0] for i in at[y]], axis=0) for y in VERDICTS[:2])
        size = float(np.linalg.norm(true - false))
        fit = study.fits["policy"][place]["sawmil"]
        own = np.array(fit["directions"][rows.classes.index("true")])
        own -= np.array(fit["directions"][rows.classes.index("false")])
        others = pl.rng_of(("direction", seed)).standard_normal((RANDOM, len(own)))

        def gap(direction: np.ndarray, sign: int) -> float:
            vector = sign * size * direction / max(float(np.linalg.norm(direction)), 1e-12)
            with pl.models.steered(model, {place: vector}):
                return true_less_false(model, [rows.tasks[i] for i in test])

        effect: Callable[[np.ndarray], float] = lambda d: (gap(d, 1) - gap(d, -1)) / 2
        return {"own": effect(own), "random": float(np.mean([abs(effect(d)) for d in others]))}

    def _report(
        self,
        study: "VeracityFindings",
        checks: Mapping[str, Any],
        steering: Mapping[str, float],
        power: str,
        depth: int,
    ) -> pl.studies.StudyReport:
        place = study.place("policy")
        best = study.score("policy", place)
        shuffled = [study.judge(fit) for fit in checks["shuffled"]]
        transfer = {
            d: pl.stats.proportion(sum(right), len(right))
            for d, right in ((d, study.right(x)) for d, x in checks["transfer"].items())
        }
        n = len(study.test)
        numbers: dict[str, float | pl.stats.Interval] = {
            "accuracy": pl.stats.proportion(sum(best.right), n),
            "mcc": best.mcc,
            "wmcc": best.wmcc,
            "acceptance": best.acceptance,
            "coverage": best.coverage,
            "place": place,
            "guess": study.guess,
            "accuracy_shuffled": float(np.mean([s.right for s in shuffled])),
            "mcc_shuffled": float(np.mean([s.mcc for s in shuffled])),
            **{f"wmcc_{m}": study.score("policy", place, m).wmcc for m in METHODS[1:]},
            **{f"steering_{k}": v for k, v in steering.items()},
            **{f"accuracy_on_{d}": x for d, x in transfer.items()},
        }
        if "base" in study.fits:
            start = study.score("base", study.place("base"))
            numbers["moved"] = study.moved(place)
            numbers["more"] = pl.stats.paired_share_difference(start.right, best.right)
            numbers["mcc_of_start"] = start.mcc
        return pl.studies.StudyReport(
            study="sawmil",
            question=self.question,
            findings=tell(study, best, shuffled, depth, self.alpha, steering, transfer),
            numbers=numbers,
            protocol={
                "statements": f"{len(study.split.train)} fitted, {len(study.split.calibration)} for the sets, {n} "
                f"measured; none of an entity in two of them; {study.rows.repeats} repeats left out",
                "read": ("as prompts of a chat" if self.read == "prompt" else "as bare text")
                + f", the last {self.tokens} tokens",
                "place": "that of the best correlation on the other folds of the fitted half",
                "power": power,
            },
            tables=[methods_table(study, place), *places_table(study)],
            charts=[chart(study)],
            items=study.lines(place),
        )


def statement_ids(model: Any, task: pl.Task, read: Read) -> Sequence[int]:
    """The tokens whose states are read."""
    if read == "text":
        return model.tokenizer.encode(last_text(task) or " ", add_special_tokens=False)
    (pair,), _ = pl.run.spell_texts(model, [pl.run.WrittenText("x", tuple(task.prompt))])
    return pair[0]


def true_less_false(model: Any, tasks: Sequence[pl.Task]) -> float:
    """The mean of log p("true") - log p("false") as the whole answer, in nats."""
    written = [pl.run.WrittenText(x, tuple(t.prompt)) for t in tasks for x in VERDICTS[:2]]
    pairs, _ = pl.run.spell_texts(model, written)
    sums = np.array([float(np.sum(x)) for x in pl.models.score_pairs(model, pairs)])
    return float((sums[::2] - sums[1::2]).mean())


def read_statements(ctx: pl.Context, most: int) -> LabelledStatements:
    """The statements of the data, each once.

    Raises:
        UserError: a label that is none, or two for one statement; fewer than two labels.
    """
    labels: dict[str, str] = {}
    tasks: list[pl.Task] = []
    numbers = list(pl.run.chosen_tasks(ctx.bench, most))
    for i in numbers:
        task = ctx.bench.tasks.task("test", i)
        label = str(task.answer).strip().casefold()
        if label not in VERDICTS:
            raise pl.UserError(
                f"statement {task.id!r} has the answer {task.answer!r}; write true, false or neither"
            )
        text = "\n".join(str(m.content) for m in task.prompt)
        if labels.setdefault(text, label) != label:
            raise pl.UserError(
                f"{text!r} is called {labels[text]} in one row and {label} in another"
            )
        if len(tasks) < len(labels):
            tasks.append(task)
    if len({*labels.values()}) < 2:
        raise pl.UserError(
            f"all statements are {next(iter(labels.values()), 'missing')}; a probe tells labels apart"
        )
    return LabelledStatements(
        tasks,
        list(labels.values()),
        [str(t.meta.get("entity") or last_text(t)) for t in tasks],
        [t.domain for t in tasks],
        len(numbers) - len(tasks),
    )


def check_split(rows: LabelledStatements, split: VeracitySplit, alpha: float) -> None:
    """Raises UserError for statements that are too few to fit, or for sets that could leave nothing out."""
    fitted = [rows.labels[i] for i in split.train]
    if short := [c for c in rows.classes if fitted.count(c) < 2]:
        raise pl.UserError(
            f"only {fitted.count(short[0])} statements that are {short[0]} are among the {len(fitted)} that "
            "probes are fitted to; bring more entities"
        )
    if 1 / (len(split.calibration) + 1) > alpha or not split.test:
        raise pl.UserError(
            f"{len(split.calibration)} statements for the sets and {len(split.test)} to measure are too few at "
            f"alpha={alpha:g}: bring statements about more entities, or take a larger alpha"
        )


def build(
    base: str = "",
    statements: int = 600,
    read: Read = "prompt",
    tokens: int = 10,
    layers: tuple[int, ...] = (),
    alpha: float = 0.1,
    penalty: float = 0.0,
    marked: int = 2,
    eta: float = 0.1,
) -> Veracity:
    """`base` is the model before training, "" = what the run of the model began with, if it is one. The
    last `tokens` tokens of a statement are a bag, of which the last `marked` may hold the signal. Sets miss
    the label at most `alpha` of the time; `penalty` 0 = by cross-validation."""
    probe = ProbeSettings(penalty=penalty, marked=marked, eta=eta)
    return Veracity(base, statements, read, tokens, layers, alpha, probe)


def embedded(statements: int = 400, steps: int = 200) -> pl.Pipeline:
    """The built-in model learns a made-up map in `steps` steps, and is probed beside what it was."""
    taught = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=64, steps=steps),
    )
    return pl.Pipeline(
        parts={
            "map": pl.warm(taught),
            "study": pl.Part(
                Veracity("tiny", statements, probe=ProbeSettings(penalty=1.0)),
                model=pl.Output("map"),
            ),
        }
    )
