"""The claim of oreo: OREO: offline RL for multi-step reasoning (soft Bellman)."""

from itertools import cycle, islice
from typing import Any

import palaestra as pl
from palaestra.claims.short import THREE_POINTS, instead, short
from palaestra.claims.starts import RATES
from palaestra.recipes.objectives.oreo import build, make_offline


@pl.stage
class EveryAnswer:
    """Pairs of a right and a wrong answer of a group, as many as there are of the more frequent kind:
    every answer is in one, where a group has both kinds.
    """

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples: list[pl.Example] = []
        for g, group in enumerate(groups):
            able = [e for e, episode in enumerate(group.episodes) if episode.ok]
            right = [e for e in able if group.episodes[e].total >= 1]
            wrong = [e for e in able if group.episodes[e].total < 1]
            n = max(len(right), len(wrong)) if right and wrong else 0
            pairs = zip(islice(cycle(right), n), islice(cycle(wrong), n), strict=True)
            for k, pair in enumerate(pairs):
                for e, sign in zip(pair, (1.0, -1.0), strict=True):
                    for r, row in enumerate(group.episodes[e].rows):
                        columns = {"sign": sign, "gap": 1.0, **signals[g][e][r]}
                        examples.append(pl.Example(row=row, columns=columns, unit=f"pair {g} {k}"))
        return examples, state


def dpo(*, every: bool) -> pl.Recipe:
    learned = make_offline(pl.recipe("dpo"))
    return short(learned, credit=EveryAnswer()) if every else short(learned)


def oreo(**options: Any) -> pl.Recipe:
    """Its critic learns ten times as fast as the default, at which it stays near nothing."""
    return short(pl.override(build(**options), "learners.critic.optimiser.lr", 1e-3))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "dpo": dpo(every=True),
        "oreo": oreo(),
        "oreo-response": oreo(level="response", alpha=0.15),
        "dpo on extremes": dpo(every=False),
    },
    expect=pl.ledger.Greater("oreo", than="dpo", by=0.03, why=THREE_POINTS),
    reasons=(pl.ledger.Needs("oreo-response", "a residual at every token"),),
    **instead(
        tokens=40_000,
        tuning_tokens=14_000,
        seconds=40.0,
        tuned={"learners.policy.optimiser.lr": (1e-5, *RATES)},
    ),
    controls={
        "reward of the recorded answers": pl.ledger.Logged("reward", last=0),
        "error of the value": pl.ledger.Logged("critic/value_error"),
        "entropy of the recorded answers": pl.ledger.Logged("entropy_sampled"),
    },
)
