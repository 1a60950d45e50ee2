"""DSADF: a fast policy and a slow language model do errands, each what it is good at; what the slow one does becomes
fast.

    plan      System 2 names goals of an errand, in their order
    gate      of each goal System 1 acts if it is familiar, cosine >= 0.85 to a goal that it remembers, and the
              10% quantile of Beta(1 + s, 1 + f) is tau = 0.6 at least; else System 2 picks action by action
    memory    s <- 0.9 s + [reached], f <- 0.9 f + [not], after each goal that System 1 acted for, of that goal alone
    failure   System 2 plans anew, told what failed; that goal is its own for the rest of the game
    strange   where what is seen is farther from all that System 1 was trained on than `strange` times what training
              is from itself, System 2 takes over, plans anew and acts for that goal; its ways there become familiar
    distil    double Q learning + max_a [Q(s, a) + 0.1 (a is not System 2's)] - Q(s, a_2) on System 2's ways that
              reached a goal, so that System 1 is good at it next time (arXiv:2505.08189)

Seven successes and three failures have the mean 0.667, above tau, and the bound 0.489, below it.

    palaestra train dsadf --llm "endpoint(url='...',model='...')"
    palaestra train dsadf --env FILE.py:make goals=FILE.jsonl --llm DIR
    palaestra train dsadf --env gymnasium:MountainCar-v0 goals=FILE.jsonl about="A car in a valley ..." --llm DIR
    palaestra guide init gymnasium:MountainCar-v0 --goal "get up the hill" --out car.toml
    palaestra train dsadf --env car.toml goals=FILE.jsonl --llm transcript:RUN/transcript.jsonl

A line of FILE.jsonl is a goal, reached where quantities are within bounds, or an errand made of goals:

    {"goal": "reach the flag", "where": {"number_0": [0.45, 0.6]}}
    {"task": "get up the hill", "goals": ["reach the flag"], "part": "known"}

Quantities are those that the simulator has in `visible`, else number_0 and so on, which say nothing to a System 2:
tell it with `about`, in words, or with a description car.toml, where quantities and actions get names
(docs/control.md). It is told the bounds of every goal. Each system has `timeout` steps for a goal, by default those of
a game over the goals of the longest errand, and 20 in the house.

Goals of "known" errands, the default, are what System 1 is trained on; "met" ones come first in practice, "unseen"
ones in the test alone. An errand is done where its goals were reached in their order, whatever the plan was; System 2
is shown no errand's goals. The run says which trained goals System 1 never reached: of those it has learned nothing,
and one that chance alone hardly ever meets, as the flag of MountainCar, wants easier goals on the way to it. A plan
that does not fit in three tries is the trained goals in the file's order, an action that does not is drawn; both count
as `fallbacks`. In practice one in five goals of System 2 goes to System 1 all the same.

In the run folder are arms.md, transcript.jsonl and policy/ with System 1 and memory.json. Arms take equally many
environment steps, two fifths of them in practice; System 1 learns the trained goals from all steps in each of them.

    none                System 1, told the errand's words as its goal
    guide               the bound as gate, with distilling
    without distilling  the same gate
    mean gate           the mean of the memory in the place of its bound
    random gate         as many goals to System 2 as under `guide`, drawn
    fast alone          System 2 plans, System 1 acts
    slow alone          System 2 plans and acts
    shuffled            as `guide`; each of System 2's answers is that to another question
    oracle              the errand's goals, and the first action of a shortest way, of a simulator with `best_actions`

`return` is the share of errands that are done, `calls` are plans and actions of System 2 for an errand, asked anew or
not, `slow_share` is the share of goals in the test that went to System 2, `handed_over` that of goals that went there
as what was seen was strange (`strange` is 2, and off in the house, whose few states training meets), `slow_reached`
the share that it reached
with actions of its own, none of them drawn; only such ways are distilled.

A run says before its first call how often System 2 is asked at most: 156960 actions by default, of which an arm asks
the same one once. With observations that are continuous nearly every action is a new question, 10^4 to 10^5 in all;
`questions=N` ends a run that asks more, and `steps`, `games` and `timeout` make it fewer.

`palaestra train dsadf`, seed 0, of known, met and unseen errands the share that is done, and calls for each that is:
none 0.69, 0, 0 without a call; fast alone 0.69, 0, 0.07 with 5.6; shuffled 0.28, 0, 0.02 with 322. All others do
every errand: guide with 2.5 calls (18% of goals to System 2), mean gate 2.6, random gate 3.8, without distilling 5.4
(69%), slow alone and oracle 7.3. So the gate and the distilling save calls; bound and mean are alike, and the random
gate does as many errands with half as many calls more, as each goal that System 1 fails at goes to a System 2 that
never fails. One call of the 2.5 is the plan. One seed, no claim; learner and length of practice were set on seed 1.

Deviations: the learner is double Q learning, and the gate, its thresholds, what is strange, forgetting and the
margin are ours, as the abstract names none.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.house import ErrandHouse
from palaestra.recipes.llm4rl.dsadf.memory import GateRule
from palaestra.recipes.llm4rl.dsadf.program import TwoSystems
from palaestra.recipes.llm4rl.dsadf.slow import TellsBestActions as TellsBestActions
from palaestra.recipes.llm4rl.dsadf.written import written_answer

CARD = pl.Card(
    title="DSADF: thinking fast and slow",
    paper="arXiv:2505.08189",
    claim="A fast policy with a memory of what it is good at, and a slow vision-language model that plans and acts "
    "where it is not, decide better together in known and unseen tasks than either alone.",
    source="abstract and two summaries (System 1, the split of goals, the memory); gate, thresholds and "
    "distillation inferred",
    size=pl.Size(
        setting="a vision-language model as System 2 in Crafter and Housekeep; success in known and unseen tasks"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "plans errands and picks actions, as JSON",
                when={"gate": ("lcb", "mean", "slow")},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of one agent with actions that can be counted, with a file of goals: in arrays, as "
                "palaestra.control.Simulator says, or of Gymnasium",
                flag="--env FILE.py:NAME goals=FILE.jsonl or --env gymnasium:ID goals=FILE.jsonl",
                otherwise="eleven errands in a house of two rooms",
            ),
        ),
        shows="slow_reached",
        off={"gate": "fast"},
        own={
            "endpoint": '{"plan": ["go to the sink"], "action": "left"}',
            "learner.games": 4,
            "games": 44,
        },
    ),
    use="It helps where a policy has learned some goals well and others not, and calls of a slow model cost time: "
    "goals of a policy that is good at all of them need no gate.",
    lacks=(
        "Crafter and Housekeep were not run.",
        "System 2 reads the quantities of an observation as text and sees no picture; what System 1 is told of a "
        "goal is which of the known words it has.",
        "By default System 2 is a rule that a large model wrote, who knew the house, and it walks by shortest ways as "
        "the oracle does: its numbers show the gate and the distilling, and not that a language model plans or "
        "acts well.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    goals: str = "",
    about: str = "",
    gate: GateRule = "lcb",
    tau: float = 0.6,
    clone: float = 1.0,
    steps: int = 30_000,
    timeout: int = 0,
    replans: int = 2,
    games: int = 220,
    questions: int = 0,
    strange: float = 2.0,
) -> TwoSystems:
    """`asked` is System 2; `sim` is FILE.py:NAME, gymnasium:ID or FILE.toml with `goals`, a FILE.jsonl, and `about`
    in words; `steps` are environment steps of an arm, `games` those of its test; see `TwoSystems`.
    """
    return TwoSystems(
        asked=asked,
        sim=pl.control.simulator_by_name(sim) if sim else ErrandHouse(),
        goals=goals,
        about=about,
        gate=gate,
        tau=tau,
        clone=clone,
        steps=steps,
        timeout=timeout if timeout or sim else 20,
        replans=replans,
        games=games,
        questions=questions,
        strange=strange,
    )


def embedded(
    asked: pl.Source | None = None,
    gate: GateRule = "lcb",
    tau: float = 0.6,
    clone: float = 1.0,
    steps: int = 30_000,
    timeout: int = 20,
    replans: int = 2,
    games: int = 220,
    strange: float = 0.0,
) -> TwoSystems:
    """Errands in the house, with the rules that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_answer, name="written rules"),
        gate=gate,
        tau=tau,
        clone=clone,
        steps=steps,
        timeout=timeout,
        replans=replans,
        games=games,
        strange=strange,
    )
