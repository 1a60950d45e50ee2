"""The claim of collab: Collab: controlled decoding with a mixture of agents."""

import palaestra as pl
from palaestra.recipes.inference.collab import Method, build

EXAM = "parts.exam.runnable"
ALPHAS = (0.0, 0.01, 0.03, 0.1)
HEATS = (0.7, 1.0, 1.3)


def exam(
    method: Method = "collab", agents: tuple[str, ...] = (), **settings: object
) -> pl.Pipeline:
    """Another way to decode, with the same agents' training."""
    pipeline = build(method, agents) if agents else build(method)
    for name, given in settings.items():
        pipeline = pl.override(pipeline, f"{EXAM}.{name}", given)
    return pipeline


def alone(agent: str) -> pl.Pipeline:
    """One greedy answer of one model."""
    return exam("best of n", (agent,), forwards=0)


EXPERIMENT = pl.ledger.Experiment(
    claim="For a target that no one of three agents meets, the mean target is at least 0.2 higher when "
    "the agent is chosen at every token by its implicit Q than for the best of samples of all "
    "agents, within the same 1,500 forwards a problem.",
    quantity="up to 1.56 times the average reward of decoding with one agent; 71.89% wins and ties by "
    "GPT-4 against the best decoding before it",
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
    falsified_if="collab gains less than 0.2 over the best of n, or gains as much where an agent is "
    "drawn, where there is one agent, or where another problem's target is looked ahead to",
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
    note="Agents are three fine-tunes of the built-in model, 20 steps of imitation each; the start is "
    "the model itself, and the reference of the KL. The target knows the right answer, while "
    "decoding too, in every arm: a search with an oracle, as where the paper decodes for the reward "
    "that it then reports. The setting was made so that taking turns can help: no agent meets the "
    "target, and what each lacks another can add behind it. Where one agent does all, the best of its "
    "samples is hard to beat, and this experiment cannot show that; nor that agents help which differ "
    "in more than one place of an answer. Three trials on one seed came before it, of 12 or 24 "
    "problems. Where the polite agent imitated answers at once alone, it had nothing to say behind a "
    "working, and collab stood at 1.30, the best of n at 1.41, collab having used 530 forwards and "
    "the other 1,149. With a polite agent that knows workings too, 640 forwards gave collab 1.34 and "
    "1,000 gave it 1.45, as what is left for the end of an answer was then too little to search in; "
    "1,500 gave 1.71 against 1.32. So the claim holds of a budget that lets the search reach the end, "
    "and of agents that can go on from one another. An alpha of 0.1 kept the thanks away in all "
    "trials: behind an answer the start ends the text, so any other agent's law is far from its own. "
    "Forwards that read prompts are not counted, nor those that read a text anew in an engine, which "
    "a cache of prefixes would spare. One agent alone finds little to search in and spends little.",
)
