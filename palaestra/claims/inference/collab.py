"""The claim of collab: Collab: controlled decoding with a mixture of agents."""

import palaestra as pl
from palaestra.recipes.inference.collab.search import Method
from palaestra.recipes.inference.collab.toy import three_agents

EXAM = "parts.exam.runnable"
ALPHAS = (0.0, 0.01, 0.03, 0.1)
HEATS = (0.7, 1.0, 1.3)


def exam(
    method: Method = "collab", agents: tuple[str, ...] = (), **settings: object
) -> pl.Pipeline:
    """Another way to decode, with the same agents' training."""
    pipeline = three_agents(method, agents) if agents else three_agents(method)
    for name, given in settings.items():
        pipeline = pl.override(pipeline, f"{EXAM}.{name}", given)
    return pipeline


def alone(agent: str) -> pl.Pipeline:
    """One greedy answer of one model."""
    return exam("best of n", (agent,), forwards=0)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=alone("policy"),
    arms={
        "right": alone("right"),
        "short": alone("short"),
        "polite": alone("polite"),
        "best of n": exam("best of n"),
        "one agent": exam(agents=("right",)),
        "random switching": exam("switch"),
        "mean of logits": exam("average"),
        "collab": exam(),
        "short sight": exam(horizon=8),
        "misjudged": exam(misjudged=True),
    },
    expect=pl.ledger.Greater(
        "collab",
        "best of n",
        by=0.2,
        why="two fifths of what thanks are worth, all that the best agent's answers lack",
    ),
    reasons=(
        pl.ledger.Needs("one agent", "several agents"),
        pl.ledger.Needs("random switching", "the choice of the agent by its value"),
        pl.ledger.Needs("misjudged", "the target of this problem"),
    ),
    measure=pl.ledger.Final("target"),
    metric="right + polite / 2 + (1 - tokens / 64) / 2, mean over 24 held-out problems",
    constants={
        **{
            a: {f"{EXAM}.alpha": ALPHAS}
            for a in ("collab", "one agent", "short sight", "misjudged")
        },
        **{
            a: {f"{EXAM}.temperature": HEATS}
            for a in ("best of n", "random switching", "mean of logits")
        },
    },
    task="add(d=3)",
    tokens=10_000,
    budget={"forwards": 24 * 1500},
    evaluate=0,
    seconds=60.0,
    controls={
        "right": pl.ledger.Final("right"),
        "polite": pl.ledger.Final("polite"),
        "tokens": pl.ledger.Final("tokens"),
        "forwards a problem": pl.ledger.Final("forwards"),
        "nats a token under the start": pl.ledger.Final("nats"),
    },
)
