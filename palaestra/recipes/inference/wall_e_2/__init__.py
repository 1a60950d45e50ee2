"""WALL-E 2.0: rules of a world are learned from transitions, and correct the world model that an agent
looks ahead with. Nothing is trained.

    round    the agent plays `games` training tasks; each action that is done is logged with what the
             world showed, the scene graph (what was where), and whether it worked
    learn    rules "this action fails where ..., because ..., do ..." are induced from batches of
             transitions, and written by a language model where there is one (`miner`)
    prune    a rule that vetoes an action that worked, or breaks, is dropped; of the others those are
             chosen that together catch most of the failures that were not expected: greedy maximum
             coverage, r* = argmax |coverage(r) - covered|, until none adds one
    act      model-predictive control: an action that the world model expects to fail is not done; the
             agent is told why and acts anew, at most `tries` times in a row

The world model is what `predictor`, a language model, expects, AND all chosen rules; without one every
action is expected to work (arXiv:2504.15785). The run plays held-out tasks with and without it. In its
folder are the rules as Python (`rules.py`) and the knowledge graph (`graph.json`: what an action
requires, and what it fails with).

    palaestra train wall-e-2 --env FILE.py:CLASS --model DIR [miner=DIR] [predictor=DIR]
    palaestra train wall-e-2 --env FILE.py:CLASS --model DIR transitions=log.jsonl|RUN|games.json rounds=0

A row of `log.jsonl` is {"state": ..., "action": ..., "success": true, "scene": {...}}. RUN is the folder
of any run in a world of several turns, and `games.json` what `palaestra play --json` printed; whether an
action worked is read off what the world said next. Rules that a model writes run in the sandbox alone.

Deviations: rules are induced from features of the shown text, where the paper asks a language model
alone. The look-ahead is one action deep.
"""

from typing import Any

import palaestra as pl
from palaestra.recipes.inference.wall_e_2.program import AlignWorldModel
from palaestra.recipes.inference.wall_e_2.world import FAILURE, ImaginedFirst

CARD = pl.Card(
    title="WALL-E 2.0: neurosymbolic world alignment, MPC agent",
    paper="arXiv:2504.15785",
    claim="A language model's world model that is corrected by symbolic knowledge from trajectories makes "
    "a model-predictive agent better in new worlds within a few rounds, without training.",
    source="abstract; the authors' code for pruning, coverage, number of tries and what a rule returns, as "
    "the catalogue has it; the induction of rules is ours",
    size=pl.Size(
        setting="gpt-4o-mini on Mars, 16.1% to 51.6% more success and at least 61.7% more score, and on "
        "ALFWorld, 98% after 4 rounds",
    ),
    task="grid",
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.chat_model(
                "miner",
                "miner",
                "writes rules as Python, which run in the sandbox",
                otherwise="rules are induced by the program alone",
            ),
            pl.needs.chat_model(
                "world model",
                "predictor",
                "says whether an action will work, before the rules do",
                otherwise="every action is expected to work unless a rule forbids it",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "of one seat, in which actions may fail, and which says so",
                built_in=("grid", "grid-4"),
            ),
        ),
        shows="avoided",
        off={"learn": False},
        own={"task": "grid", "rounds": 2, "games": 4, "tasks": 2, "least": 1, "max_tokens": 8},
    ),
    use="It helps where actions fail by rules that what the world shows, and has shown, decides; where "
    "failures are random, or only the outcome says that an action was bad, no rule is learned.",
    lacks=(
        "Mars and ALFWorld were not run: their data do not come with their packages.",
        "The agent looks one action ahead and does not imagine what the world shows next.",
        "Induced rules are conditions on pieces of text, not on numbers such as 'at least two'; those a "
        "miner can write.",
        "Of an action induced rules read the first word alone: 'take X works only where X is' or 'go X fails "
        "at X' is not learned, unless a miner writes it.",
        "Of rollouts and records of games only what was shown is known: an action that changed what is not shown "
        "counts as failed, and the last action of a game is logged only if the game was solved.",
        "Failed tasks are not tried again with reflections on them.",
        "Where the agent has tools, vetoed actions are not tried on a fork, so nobody knows whether they would "
        "have failed and `avoided` is 0; compare failing actions with and without the world model.",
    ),
    grade="B",
)


def build(
    miner: pl.Source | None = None,
    predictor: pl.Source | None = None,
    transitions: str = "",
    rounds: int = 4,
    games: int = 32,
    tasks: int = 32,
    learn: bool = True,
    prune: bool = True,
    tries: int = 5,
    batch: int = 100,
    least: int = 2,
    failure: str = FAILURE,
    say: str = ImaginedFirst.say,
    look: bool = True,
    temperature: float = 1.0,
) -> AlignWorldModel:
    """`rounds` of `games` training tasks each; `tasks` are held out. `failure` is a regular expression
    of what the environment says of an action that failed; see `AlignWorldModel`.
    """
    if min(games, tasks, batch, least) < 1 or min(rounds, tries) < 0:
        raise pl.UserError(
            "games, tasks, batch and least are 1 or more, and rounds and tries 0 or more"
        )
    if not rounds and not transitions:
        raise pl.UserError(
            "with rounds=0 rules are learned from a file; give transitions=FILE.jsonl"
        )
    return AlignWorldModel(
        rounds=rounds,
        games=games,
        tasks=tasks,
        transitions=transitions,
        learn=learn,
        prune=prune,
        tries=tries,
        batch=batch,
        least=least,
        miner=miner,
        predictor=predictor,
        failure=failure,
        say=say,
        look=look,
        temperature=temperature,
    )


def embedded(
    rounds: int = 4, games: int = 16, tasks: int = 32, learn: bool = True, **options: Any
) -> AlignWorldModel:
    """On the embedded grid, whose words the agent is told an imagined failure in."""
    return build(
        rounds=rounds, games=games, tasks=tasks, learn=learn, say="cannot, {state}", **options
    )
