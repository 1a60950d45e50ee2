"""The claim of lare: LaRe: latent reward credit assignment."""

import palaestra as pl
from palaestra.recipes.llm4rl.lare import build

EXPERIMENT = pl.ledger.Experiment(
    claim="After 150,000 steps of cooperative navigation with rewards at the end of a game alone, the "
    "true return is at least 3 higher with a decomposition over a language model's factors than with "
    "one over raw observations.",
    quantity="returns above those of other redistributions of returns on MuJoCo and MPE, in some tasks "
    "above those with the true rewards; no single number is claimed",
    arms={
        "start": build("episodic", steps=0),
        "dense": build("dense", steps=150_000),
        "episodic": build("episodic", steps=150_000),
        "state": build("state", steps=150_000),
        "sampled state": build("sampled state", steps=150_000),
        "factors": build("factors", steps=150_000),
        "shuffled": build("shuffled", steps=150_000),
        "constant": build("constant", steps=150_000),
    },
    start=None,
    expect=pl.ledger.Greater(
        "factors", "state", by=3.0, why="an eighth of what separates the start from true rewards"
    ),
    reasons=(
        pl.ledger.Needs("shuffled", "factors of the step that is rewarded"),
        pl.ledger.Needs("constant", "factors that differ between steps"),
    ),
    falsified_if="factors gain less than 3 over raw observations, or shuffled factors gain as much",
    measure=pl.ledger.Final("return"),
    metric="mean true return of 256 games of 25 steps, three agents together",
    tuned={"learner.lr": (5e-4, 1e-3, 2e-3)},
    tokens=0,
    budget={"env_steps": 150_400},  # the last games are played to their end
    evaluate=0,
    seconds=40,
    controls={
        "correlation of given and true rewards": pl.ledger.Final("correlation"),
        "environment steps": pl.ledger.Final("env_steps"),
        "factors": pl.ledger.Final("factors"),
        "calls of the chat model": pl.ledger.Final("calls"),
    },
    note="Factors are those of a recorded transcript, which a large model wrote while it built the"
    " row: it knew the simulator and its rewards, so they are nearly an oracle's; the "
    "embedded model cannot write them, so the claim is about what good factors bring, not "
    "about who can write them, and quantities that the simulator declares narrow what can go "
    "wrong. What could not be shown: that a language model is needed, as a person would name "
    "the same factors; that the gain lasts, as all arms are far from the best return after so"
    " few steps. Raw observations hold the same information, so with more games their "
    "decomposition may catch up. Neither control is neutral: PPO divides advantages by their "
    "standard deviation, so a reward that says nothing becomes noise at full strength, and on"
    " a plane without walls agents drift away: in a trial of one seed far below the start, "
    "with shuffled and with constant factors alike. What says that factors help is the gain "
    "over `state` and `episodic`, not that over them. True rewards of steps are no ceiling: a"
    " team's reward does not say which agent it is due to, factors of an agent's own step do."
    " Six agents and more, MuJoCo and TD3 were not tried.",
)
