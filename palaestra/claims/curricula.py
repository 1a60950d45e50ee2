"""What the page "which curriculum, when" compares: every way to choose what is drawn and every way
to help, on three starts, at equal sampled tokens.

Every arm has one rate, one update a step, 8 prompts a step and 8 answers to each, unless the way is
another number of them, and is otherwise as its row has it. Losses and penalties of a row stay as they
are. Rows with two, four or eight updates a step would move as many times as far at the same rate, and
that would be read as what a curriculum does; so no row has more than one, and what stands on PPO's
critic is not among them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import imitation

LONGEST = 96  # tokens of an answer
STEPS = 400  # more than the budget pays for
AFTER = 4096  # tasks that a first part leaves to a second one: more than it draws
UNIFORM, CEILING, TWICE = (
    "uniform",
    "mixed only with twice the tokens",
    "uniform with twice the tokens",
)
RATE, LR = "parts.{}.runnable.learners.policy.optimiser.lr", 1e-4  # of all arms


@pl.stage
class Later:
    """Uniform draws from the task number `first` on: a part that goes on from another one, which
    counts its draws anew, learns from tasks that the other has not had.
    """

    first: int = AFTER

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        return pl.Shuffled()(ctx, key, n, {"cursor": self.first, **state})


def shaped(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts and one update a step."""
    policy = learned.learners["policy"]
    if isinstance(policy.update, pl.Plain):
        policy = replace(policy, update=pl.Plain())
    return pl.vary(
        learned,
        learners={**learned.learners, "policy": policy},
        schedule=replace(learned.schedule, prompts=8, steps=STEPS),
    )


def only_mixed() -> pl.Recipe:
    """Draws until there are 8 groups whose rewards differ; what is more waits for the next step."""
    learned = pl.vary(pl.recipe("grpo"), pool=pl.Mixed(8))
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=STEPS, rounds=64, max_age=1))


def samplers(difficulty: Callable[[pl.Task], float], tasks: int) -> dict[str, pl.Recipe]:
    """Ways to choose what is drawn, how often it is tried, and what is kept; `tasks` are about as many
    as the budget pays for.
    """
    ordered = pl.curriculum.EasyToHard(tasks=tasks, batches=1, difficulty=difficulty)
    # two answers to each measure it first, for a seventh of the budget: the rest pays for so many
    measured = pl.recipe("adcl-egsr", tasks=9 * tasks // 10, probe=2, expert="", say="")
    return {
        UNIFORM: shaped(pl.recipe("grpo")),
        "mixed only": only_mixed(),
        "easy to hard": shaped(pl.vary(pl.recipe("grpo"), draw=ordered)),
        "probed": shaped(
            pl.vary(pl.recipe("grpo"), draw=pl.curriculum.ProbedArms(every=5, tasks=2))
        ),
        "dump": shaped(pl.recipe("dump")),
        "sec": shaped(pl.recipe("sec")),
        "pcl": shaped(pl.recipe("pcl")),
        "adcl": shaped(measured),
        "reinforce-ada": shaped(pl.recipe("reinforce-ada")),
        "dars": shaped(pl.recipe("dars")),
        "eframe": shaped(pl.recipe("eframe")),
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
    """How long a sum or a chain is, by the length of its question."""
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
    taught: pl.Part | None,
    ways: Mapping[str, pl.Recipe],
    *,
    what: str,
    tokens: int,
    demonstrations: int,
    controls: Mapping[str, pl.ledger.Measure] | None = None,
    note: str = "",
    **given: Any,
) -> pl.ledger.Experiment:
    """Uniform draws and `ways` from one start, which `taught` makes, or which is the model as it is.
    `demonstrations` are steps of 8 of them, as many as the arms see that mix them in.
    """
    arms = {UNIFORM: behind(taught, shaped(pl.recipe("grpo")))}
    arms |= {n: behind(taught, rl) for n, rl in ways.items()}
    # each of two parts has the budget
    for name, first in ((TWICE, shaped(pl.recipe("grpo"))), (CEILING, only_mixed())):
        arms[name] = behind(taught, first, pl.vary(first, draw=Later()))
    arms["imitation"] = behind(taught, imitation(demonstrations, prompts=8, lr=LR))
    rates: dict[str, Mapping[str, Any]] = {
        name: {RATE.format(part): (LR,) for part in ("rl", "more") if part in arm.parts}
        for name, arm in arms.items()
    }
    return pl.ledger.Experiment(
        claim=f"On {what}, training on groups whose rewards differ alone, with twice the tokens to find "
        "them, gives a held-out accuracy at least 3 points above uniform draws: what is drawn matters.",
        quantity="no paper's: about what a choice of tasks could gain here that costs nothing",
        start=behind(taught, pl.ledger.Untrained()),
        arms=arms,
        expect=pl.ledger.Greater(
            CEILING, UNIFORM, by=0.03, why="less than this no reader would act on"
        ),
        falsified_if="rejection whose samples cost nothing gains less than 3 points",
        reasons=(pl.ledger.Needs(TWICE, "the choice, and not the tokens"),),
        measure=pl.ledger.Final("sampled_after.pass@1.mean"),
        metric="held-out accuracy (temperature 1)",
        constants=rates,
        tokens=tokens,
        evaluate=192,
        samples=4,
        controls={
            "groups with a gradient": pl.ledger.Logged("groups_mixed", last=0),
            "answers a step": pl.ledger.Logged("episodes", last=0),
            "length": pl.ledger.Logged("length"),
            **(controls or {}),
        },
        note="All arms have one rate, 1e-4, and one update a step: rates chosen by six steps on two seeds "
        "would be a coin, and what an arm would do at its best one is not shown. Losses are those of the rows. "
        "Rows that learn from demonstrations are shown the working that others have to find, and hints are taken "
        f"from it; `imitation` sees as many demonstrations as they. {note}",
        **given,
    )
