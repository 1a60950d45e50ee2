"""What the page "which curriculum, when" compares: every way to choose what is drawn and every way
to help, on three starts, at equal sampled tokens.

Every arm is tuned in the same way, has 8 prompts a step and 8 answers to each, unless the way is
another number of them, and is otherwise as its row has it. What the project's rows differ in beside
their idea (losses, penalties, minibatches) stays as it is: a row is compared whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation

LONGEST = 96  # tokens of an answer
STEPS = 400  # more than the budget pays for
TASKS = 136  # of a curriculum in the order of difficulty: about as many as the budget pays for
MEASURED = 96  # where two answers to each measure it first: a fifth of the budget
UNIFORM, CEILING, TWICE = (
    "uniform",
    "mixed only with twice the tokens",
    "uniform with twice the tokens",
)
RATE = "parts.{}.runnable.learners.policy.optimiser.lr"


def shaped(learned: pl.Recipe) -> pl.Recipe:
    return pl.vary(learned, schedule=replace(learned.schedule, prompts=8, steps=STEPS))


def only_mixed() -> pl.Recipe:
    """Draws until there are 8 groups whose rewards differ."""
    learned = pl.vary(pl.recipe("grpo"), pool=pl.Mixed(8))
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=STEPS, rounds=64))


def samplers(difficulty: Callable[[pl.Task], float]) -> dict[str, pl.Recipe]:
    """Ways to choose what is drawn, how often it is tried, and what is kept."""
    ordered = pl.EasyToHard(tasks=TASKS, batches=1, difficulty=difficulty)
    measured = pl.recipe("adcl-egsr", tasks=MEASURED, probe=2, expert="", say="")
    return {
        UNIFORM: shaped(pl.recipe("grpo")),
        "mixed only": only_mixed(),
        "easy to hard": shaped(pl.vary(pl.recipe("grpo"), draw=ordered)),
        "probed": shaped(pl.vary(pl.recipe("grpo"), draw=pl.ProbedArms(every=5, tasks=2))),
        "dump": shaped(pl.recipe("dump")),
        "sec": shaped(pl.recipe("sec")),
        "pcl": shaped(pl.recipe("pcl")),
        "adcl": shaped(measured),
        "reinforce-ada": shaped(pl.recipe("reinforce-ada")),
        "dars": shaped(pl.recipe("dars")),
        "eframe": shaped(pl.recipe("eframe")),
        "pf-ppo": shaped(pl.recipe("pf-ppo")),
    }


def helpers() -> dict[str, pl.Recipe]:
    """Ways to help: a hint, an example, a critique, a start of the reply, a demonstration."""
    begun: dict[str, Any] = {"unit": "steps", "place": "start", "form": 0.0}
    return {
        "ghpo": shaped(pl.recipe("ghpo", **begun)),
        "nurl": shaped(pl.recipe("nurl", kind="steps", place="start")),
        "guide": shaped(pl.recipe("guide", size=8)),
        "icpo": shaped(pl.recipe("icpo", fades=40)),
        "critique-grpo": shaped(pl.recipe("critique-grpo", kind="verdict", length=LONGEST)),
        "ampo": shaped(pl.recipe("ampo", choice="random", length=LONGEST)),
        "rl-plus": shaped(pl.recipe("rl-plus", length=LONGEST)),
        "srft": shaped(pl.recipe("srft", per=4.0)),
        "amft": shaped(pl.recipe("amft", every=2, warmup=2, gain_rate=0.2, entropy_rate=0.2)),
    }


def numbers(task: pl.Task) -> float:
    """How many numbers a chain has, by the length of its question."""
    return float(len(task.prompt[-1].content))


def chain(n: int) -> str:
    """Chains of n numbers modulo 9."""
    return f"chain(modulo=9,operands=({n},{n}),max_tokens={LONGEST})"


def behind(taught: pl.Part | None, *arms: pl.Runnable) -> pl.Pipeline:
    """What makes the start, if anything, then an arm, and another that goes on from there."""
    parts = {} if taught is None else {"sft": taught}
    before = "sft" if taught is not None else ""
    for name, rl in zip(("rl", "more"), arms, strict=False):
        parts[name] = pl.Part(rl, model=pl.Output(before) if before else None)
        before = name
    return pl.Pipeline(parts=parts)


def study(
    taught: pl.Part | None, difficulty: Callable[[pl.Task], float], *, what: str, **given: Any
) -> pl.Experiment:
    """All arms from one start, which `taught` makes, or which is the model as it is."""
    arms = {n: behind(taught, rl) for n, rl in (samplers(difficulty) | helpers()).items()}
    # each of two parts has the budget
    longer = {TWICE: shaped(pl.recipe("grpo")), CEILING: only_mixed()}
    arms |= {name: behind(taught, rl, rl) for name, rl in longer.items()}
    arms["imitation"] = behind(taught, imitation(40, prompts=8, lr=1e-4))
    rates: dict[str, Mapping[str, Any]] = {a: {RATE.format("rl"): RATES} for a in arms}
    for name in longer:
        rates[name] = {RATE.format(part): RATES for part in ("rl", "more")}
    return pl.Experiment(
        claim=f"On {what}, training on groups whose rewards differ alone, with twice the tokens to find "
        "them, gives a held-out accuracy at least 3 points above uniform draws: what is drawn matters.",
        quantity="no paper's: the most that a choice of tasks can gain here, as a scale for all others",
        start=behind(taught, pl.Untrained()),
        arms=arms,
        expect=pl.Greater(CEILING, UNIFORM, by=0.03, why="less than this no reader would act on"),
        falsified_if="rejection whose samples cost nothing gains less than 3 points",
        reasons=(pl.Needs(TWICE, "the choice, and not the tokens"),),
        measure=pl.Final("sampled_after.pass@1.mean"),
        metric="held-out accuracy (temperature 1)",
        constants=rates,
        tokens=40_000,
        tuning_tokens=14_000,
        evaluate=192,
        samples=4,
        seconds=25.0,
        controls={
            "groups with a gradient": pl.Logged("groups_mixed", last=0),
            "length": pl.Logged("length"),
        },
        **given,
    )
