"""The claim of refine-af: RL from automatic feedback before a model writes what another one imitates."""

from collections import Counter
from collections.abc import Sequence

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.refine_af import (
    WEIGHTS,
    WRITER,
    AutomaticFeedback,
    KeepInstances,
    NovelInstructions,
    imitate,
    improve,
)

# ---- programs in place of the models that judge an instance


def stated(text: str) -> str | None:
    """What an instance states as its answer; None = nothing."""
    answer = pl.tasks.final_answer(text)
    return pl.stated_answer(text) if answer is None else answer


def is_readable(text: str) -> bool:
    """Whether a text can be printed and no line of it stands there more than twice."""
    lines = [line for line in text.splitlines() if line.strip()]
    printable = all(c.isprintable() or c in "\n\t" for c in text)
    return bool(lines) and printable and max(Counter(lines).values()) <= 2


def texts_of(group: pl.Group) -> list[str]:
    return [pl.response_text(e) for e in group.episodes]


async def verdict(ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
    """What the bench pays; 0 without answers."""
    if group.task.answer is None or ctx.bench.reward is None:
        return [pl.Reward(total=0.0) for _ in group.episodes]
    return await pl.judge_group(ctx, ctx.bench.reward, group)


async def readable(ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
    return [pl.Reward(total=float(is_readable(t))) for t in texts_of(group)]


async def states_answer(ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
    return [pl.Reward(total=float(stated(t) is not None)) for t in texts_of(group)]


async def agreement(ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
    """The share of the group's instances that state the same answer."""
    answers = [stated(t) for t in texts_of(group)]
    alike, n = Counter(a for a in answers if a is not None), len(answers)
    return [pl.Reward(total=0.0 if a is None else alike[a] / n) for a in answers]


async def coin(ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
    """A coin for every instance: a control."""
    texts = texts_of(group)
    rng = pl.rng_of((ctx.seed, "coin", group.task.id, *texts))
    return [pl.Reward(total=float(x)) for x in rng.integers(0, 2, len(texts))]


def rule(weights: tuple[float, ...] = WEIGHTS) -> AutomaticFeedback:
    """The paper's rule, with programs for its four qualities."""
    return AutomaticFeedback(verdict, readable, states_answer, agreement, weights)


@pl.stage
class KeepStated(KeepInstances):
    """Mutes instances that state no answer as well."""

    def keeps(self, episode: pl.Episode) -> bool:
        whole = episode.ok and episode.status == "finished"
        return whole and stated(pl.response_text(episode)) is not None


# ---- the arms


def small(reward: pl.RewardFn | None = None) -> pl.Pipeline:
    """60 steps of 8 prompts in the second stage, which is left out without a reward."""
    last = imitate(40, 3e-4, NovelInstructions(), KeepStated())
    if reward is None:
        return pl.Pipeline(parts={"sft": pl.Part(last)})
    second = pl.vary(
        improve(reward, NovelInstructions()),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
    )
    second = pl.override(pl.override(second, "schedule.prompts", 8), "schedule.steps", 60)
    models = {WRITER: pl.Output("rl")}
    return pl.Pipeline(parts={"rl": pl.Part(second), "sft": pl.Part(last, models=models)})


BASE = "self-instruct"
ARMS = {
    BASE: small(),
    "random": small(coin),
    "rule": small(rule()),
    "positive": small(rule((WEIGHTS[0], abs(WEIGHTS[1]), *WEIGHTS[2:]))),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms=ARMS,
    expect=pl.ledger.Greater(
        "rule", BASE, by=0.1, why="a gain that most of twelve domains would have to share"
    ),
    reasons=(pl.ledger.Needs("random", "that the feedback says something of the instance"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy of the fresh model (temperature 1)",
    constants={
        a: {"sft.optimiser.lr": RATES[1:], **({"rl.optimiser.lr": RATES[:2]} if a != BASE else {})}
        for a in ARMS
    },
    task="add(d=3)+add(d=5)+bool(d=3)+bool(d=5)+sort(d=3)+sort(d=5)",
    tokens=30_000,
    tuning_tokens=12_000,
    evaluate=192,
    samples=4,
    seconds=90.0,
    controls={
        f"{what}, last steps of RL": pl.ledger.Logged(f"part/{part}")
        for part, what in (
            ("und", "readable"),
            ("nat", "answer stated"),
            ("coh", "agreement"),
            ("rew", "verdict"),
        )
    },
)
