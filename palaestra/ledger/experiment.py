"""A paper's claim as a small experiment that can fail: arms, what is measured, what is expected.

`palaestra reproduce ID` runs the `EXPERIMENT` of a method's module in `palaestra.claims`: every arm
with the same budget of sampled tokens, tuned in the same way on seeds of its own, then with the
seeds of two blocks, one cell per (arm, seed). The effect is the mean over seeds of the paired
difference, with its t interval. `palaestra reproduce ID --tier small` runs its `SMALL`, the claim
on a language model of 135 million weights; everything calls that experiment `ID@small`. See
docs/ledger.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any, TypeAlias

from palaestra import catalogue, values
from palaestra.context import Runnable
from palaestra.errors import UserError
from palaestra.ledger.expectations import Expectation, Needs, Veto, check_arms
from palaestra.ledger.files import TIERS, parted
from palaestra.ledger.measures import Area, Final, Logged, Measure, Moving, reads_start
from palaestra.ledger.untrained import Untrained

START = "start"
BLOCKS = (range(0, 5), range(100, 105))  # seeds that decide; the second is fresh to the first
# of an experiment that five seeds a block left open
TWENTY_SEEDS = (range(0, 10), range(100, 110))
FRESH = range(200, 205)  # of `--fresh`
TRIAL = (range(2000, 2005), range(2100, 2105))  # of less than what is declared
TUNING = range(1000, 1002)  # seeds on which settings are chosen, and nothing else

WORDS = (
    "claim",
    "quantity",
    "falsified_if",
    "note",
    "taken_back",
)  # fields that may stand in Markdown

# settings of an arm: values of fields by their paths
Setting: TypeAlias = Mapping[str, Any]


def sections(words: str) -> dict[str, str]:
    """The texts of an experiment in the Markdown file beside a module, by field; see
    `Experiment.words`.
    """
    module, _, tier = words.partition("#")
    file = Path(module).with_suffix(".md")
    texts = dict[str, str]()
    for section in file.read_text(encoding="utf-8").split("\n## ")[1:]:
        head, _, text = section.partition("\n")
        name, _, of = head.rstrip(")").partition(" (")
        field_name = name.lower().replace(" ", "_")
        if field_name not in WORDS:
            raise ValueError(f"{file}: no section {name!r} in an experiment; there are {WORDS}")
        if of == tier:
            texts[field_name] = " ".join(text.split())
    return texts


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A declaration. What it holds decides before anything runs, and its digest stands in the
    result: an experiment that is changed after a first look is another one.

    `expect` compares two arms. Every arm is run; what is no side of the expectation shows whether
    the effect has the reason that the claim gives (`reasons`) and what it costs (`vetoes`,
    `controls`). Arms share every setting that the claim is not about, and each has its best setting
    among the same ones (`tuned`). `tokens` is the budget of a cell, of a pipeline that of each
    part: all tokens that its steps sample count, by whatever model.

    Args:
        claim: as it can be tested here: one sentence with its quantity.
        quantity: what the paper measures, and how much it gains.
        arms: by name; the start is added to them.
        start: where the arms begin, untrained; None = there is none, as nothing is trained.
        expect: the two arms that are compared, with the margin and where it comes from.
        falsified_if: what would refute the claim.
        reasons: arms without what the claim gives as its reason.
        vetoes: by name, what the better arm may not lose.
        measure: taken at the end of a run; `metric` says what it is, with its unit.
        tuned: paths and the values that are tried, of every arm that has the path; each
            combination runs on the tuning seeds.
        constants: the same of single arms, for constants that the paper tuned.
        blocks: the seeds that decide, in two blocks; `TWENTY_SEEDS` where five a block left open what holds,
            which is another declaration: the first look stays beside it. On a real model, whose
            cells take a quarter of an hour, one block of three to five may do.
        tuning_seeds: the seeds of the sweep, which nothing else uses.
        tuning_tokens: the budget of a cell of the sweep, where it is smaller; 0 = `tokens`. What
            leads early need not lead at the end, so it is no less than a third of `tokens`.
        choose: what the best setting has most of; None = of `measure`.
        task: of several there is a cell for each, and the effect is an interquartile mean.
        budget: of a program, what a cell may spend by meter, e.g. {"env_steps": 400_000}: the run
            finds it in `ctx.budget`, counts with `ctx.spend`, and a cell that spends more is no
            evidence. A program that samples nothing has tokens=0.
        exams: further tasks, measured as the held-out ones are, before and after: "evaluations" in
            the summary, by task.
        evaluate: held-out tasks, other ones for each seed where the task has enough of them.
        samples: answers drawn for each held-out task at the end; adds "sampled_after" to the
            summary.
        seconds: of one cell, roughly; said before it starts.
        controls: further numbers of every cell.
        illustration: it shows what a program does and trains nothing: never evidence.
        not_testable: what a test would need that is not here; such an experiment is not run.
        note: what differs from the paper's setting, and what scale would decide.
        taken_back: why the published verdict is no evidence for the paper's claim; it then counts
            for nothing, and its numbers stay.
        words: a module whose Markdown file beside it holds `claim`, `quantity`, `falsified_if`,
            `note` and `taken_back` as sections; "MODULE.py#TIER" reads those that are headed
            "... (TIER)".
    """

    claim: str = ""
    quantity: str = ""
    arms: Mapping[str, Runnable]
    start: Runnable | None = Untrained()
    expect: Expectation
    falsified_if: str = ""
    reasons: tuple[Needs, ...] = ()
    vetoes: Mapping[str, Veto] = field(default_factory=dict)
    measure: Measure = Final()
    metric: str = "held-out accuracy (greedy)"
    tuned: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    blocks: tuple[Sequence[int], ...] = BLOCKS
    tuning_seeds: Sequence[int] = TUNING
    tuning_tokens: int = 0
    choose: Measure | None = None
    task: str | tuple[str, ...] = "chain"
    model: str = "tiny"
    tokens: int = 100_000
    budget: Mapping[str, float] = field(default_factory=dict)
    evaluate: int = 256
    exams: tuple[str, ...] = ()
    samples: int = 0
    seconds: float = 60.0
    controls: Mapping[str, Measure] = field(default_factory=dict)
    illustration: bool = False
    not_testable: str = ""
    note: str = ""
    taken_back: str = ""
    words: str = ""

    @property
    def chooses(self) -> Measure:
        """What the best setting of an arm has most of."""
        return self.choose or self.measure

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.task,) if isinstance(self.task, str) else self.task

    @property
    def every_arm(self) -> dict[str, Runnable]:
        """The arms, the start first."""
        first = {} if self.start is None or START in self.arms else {START: self.start}
        return {**first, **self.arms}

    @property
    def deciding_arms(self) -> list[str]:
        """The arms that the verdict is made of: the two that are compared, those of vetoes, and the
        start where a measure reads it.
        """
        asked = {*self.expect.arms, *(v.against for v in self.vetoes.values())}
        measures = (self.measure, *(v.measure for v in self.vetoes.values()))
        asked |= {START} if any(map(reads_start, measures)) else set()
        return [a for a in self.every_arm if a in asked]

    def is_whole(self, arms: Collection[str], blocks: Sequence[Sequence[int]], tokens: int) -> bool:
        """Whether so much is all that is declared; less is a trial."""
        seeds = [list(b) for b in blocks] == [list(b) for b in self.blocks]
        return seeds and set(arms) >= set(self.every_arm) and tokens >= self.tokens

    @property
    def every_control(self) -> dict[str, Measure]:
        """What is shown of every arm beside the measure."""
        ends: dict[str, Measure] = {"greedy": Final()} if self.evaluate else {}
        if self.samples:
            ends["sampled"] = Final("sampled_after.pass@1.mean")
        area: dict[str, Measure] = {"area": Area()} if self.start is not None else {}
        controls = {**ends, **area, **self.controls}
        return {n: m for n, m in controls.items() if n in self.controls or m != self.measure}

    def settings_of(self, arm: str) -> list[Setting]:
        """What is tried for an arm: every combination of the values of paths that it has."""
        if arm == START:
            return [{}]
        asked = {k: v for k, v in self.tuned.items() if _has(self.every_arm[arm], k)}
        asked |= self.constants.get(arm, {})
        return [dict(zip(asked, chosen, strict=True)) for chosen in product(*asked.values())]

    def sweep(self, arms: Collection[str]) -> dict[str, list[Setting]]:
        """What is tried for each of `arms` that has a choice, beside the start where what is chosen
        by reads it.
        """
        settings = {a: each for a in arms if len(each := self.settings_of(a)) > 1}
        if settings and reads_start(self.chooses):
            settings[START] = self.settings_of(START)
        return settings

    def arm_with(self, arm: str, setting: Setting) -> Any:
        """An arm with one of the settings that are tried."""
        variant: Any = self.every_arm[arm]
        for path, given in setting.items():
            variant = values.override(variant, path, given)
        return variant

    def lacks(self) -> list[str]:
        """What the rules of docs/ledger.md ask for and this experiment does not declare."""
        if self.not_testable or self.illustration:
            return []
        asked = {
            "the paper's quantity": self.quantity,
            "an arm without the claim's reason": self.reasons,
            "where the margin comes from": self.expect.why,
            "settings that each arm is tuned over": self.tuned or self.constants,
            "a measure at the end": not isinstance(self.measure, Moving | Area)
            and not (isinstance(self.measure, Logged) and not self.measure.last),
            "a start": self.start is not None or START in self.arms,
            "a second block of seeds": len(self.blocks) > 1 or self.model != Experiment.model,
        }
        return [what for what, given in asked.items() if not given]

    def __post_init__(self) -> None:
        for name, text in sections(self.words).items() if self.words else ():
            object.__setattr__(self, name, text)
        object.__setattr__(self, "words", "")
        if not (self.claim and self.falsified_if):
            raise UserError("an experiment says its claim, and falsified_if: what would refute it")
        for arm in self.arms:
            if "," in arm:
                raise ValueError(
                    f"the arm {arm!r} has a comma, which parts the names of --arms; call it "
                    "otherwise"
                )
        against = [v.against for v in self.vetoes.values() if v.against]
        without = [r.without for r in self.reasons]
        named = (*self.expect.arms, *without, *against, *self.constants)
        check_arms(named, list(self.every_arm))
        statements = [*without, *self.vetoes, *self.every_control]
        if twice := [n for n in statements if statements.count(n) > 1]:
            raise UserError(f"two controls have the name {twice[0]!r}; call one otherwise")
        if self.tuning_tokens and not self.tokens <= 3 * self.tuning_tokens <= 3 * self.tokens:
            raise UserError(
                f"tuning_tokens={self.tuning_tokens} is no budget between a third of "
                f"tokens={self.tokens} and all of it"
            )
        uses = [set(s) for s in (*self.blocks, self.tuning_seeds, FRESH, *TRIAL)]
        if twice := {s for a, b in combinations(uses, 2) for s in a & b}:
            raise UserError(f"seed {min(twice)} has two uses in blocks and tuning_seeds")
        for path in self.tuned:
            if not any(_has(arm, path) for arm in self.arms.values()):
                raise UserError(f"no arm has the path {path!r} that is to be tuned")


def _has(arm: Any, path: str) -> bool:
    """Whether a path ends a path of an arm. Raises UserError for one that ends several."""
    known = [p for p, _ in values.walk(arm) if p == path or p.endswith(f".{path}")]
    return bool(known) and values.find(arm, path) in known


def tiers_of(method: str) -> list[str]:
    """The names of a method's further experiments, such as `muldimif@small`."""
    claim = catalogue.entry_of(method).claim
    module = importlib.import_module(claim) if claim else None
    return [f"{method}@{tier}" for tier, name in TIERS.items() if hasattr(module, name)]


def experiment_of(method: str) -> Experiment:
    """The experiment of a method's claim, that of a tier as `muldimif@small`, or the `EXPERIMENT`
    of a user's recipe file. Raises UserError where there is none.
    """
    if catalogue.is_own_file(method):
        experiment = getattr(catalogue.find(method), "EXPERIMENT", None)
        if not isinstance(experiment, Experiment):
            raise UserError(
                f"{method} defines no EXPERIMENT; compare it with: palaestra compare grpo {method}"
            )
        return experiment
    name, tier = parted(method)
    entry = catalogue.entry_of(name)
    if not entry.claim:
        raise UserError(f"{name} has no experiment: no claim of it is written in palaestra.claims")
    experiment = getattr(
        importlib.import_module(entry.claim), TIERS[tier] if tier else "EXPERIMENT", None
    )
    if experiment is None:
        raise UserError(
            f"{name} has no experiment of the tier {tier}; without --tier it runs on {Experiment.model}"
        )
    return experiment
