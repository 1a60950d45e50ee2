"""Fast-slow driving: a language model turns a passenger's instruction into guidance, and a policy drives by it.

    slow   instruction and scene  ->  {goal_lane, target_speed, style, avoid, valid_for_s}
    fast   pi(a | o, c)           c = the guidance in numbers, neutral before it arrives and when it is stale

Instructions are read before anything is learned, once for all arms. In training each game has random guidance,
and a step is rewarded with

    r + 2 match,   match = the mean of clip(1 - |v - target| / 10, 0, 1) and [lane is the goal's]

of what is wanted, so the policy follows any wish (arXiv:2505.06875). Below both is a mask: a change into an
occupied lane (a car nearer than 10 m, or that would hit or be hit within 3 s) and FASTER with less than 3 s
to a collision are not legal, for a cautious style less than 5 s; where nothing is left, SLOWER stands.
Guidance can take actions away and give none back. A speed beyond the limit is cut, a lane that is not there
dropped; a reply that cannot be read in three tries is neutral guidance; all are counted.

    palaestra train fast-slow-driving --llm "endpoint(url='...',model='...')" instructions=FILE.jsonl
    palaestra train fast-slow-driving --env FILE.py:make --llm DIR

A line of FILE.jsonl is {"instruction": "...", "intent": {...}}. The intent is optional, is never shown to the
model, and is what `match`, `intent_accuracy` and the oracle go by: lane (a number from 1, leftmost,
rightmost, left, right, stay), speed or faster_by in m/s, style, avoid. A simulator of your own has the five
actions left, idle, right, faster, slower, and `lanes`, `speeds`, `lane_and_speed(obs)` and `scene(state)` (see
`DrivesLanes`); with `safe` and `unmasked` it has a mask, too. It may say how long a step lasts, `step_seconds`,
which is 1 else, and by `facts` what a `crash` is; where it does not, the share of drives that end is `ended`.

The default is a motorway of four lanes in arrays, with the reward and actions of highway-env:

    r = ((-1 crash + 0.1 lane / 3 + 0.4 clip((v - 20) / 10, 0, 1)) + 1) / 1.5

arms.md in the run folder; three policies (none, guided, unmasked) with equal environment steps:

    none      a policy without guidance, paid by the simulator alone
    guide     what the model makes of the instruction
    shuffled  what it makes of another sentence; not there where all passengers say the same
    oracle    the true intent
    unmasked  as guide, trained and tested without the mask

`match` is by the true intent, from the reply's arrival to the end of the drive, a collided car matching
nothing; `collisions` is the share of drives with one, `without_guidance` the share of steps before
the reply, which is there after 1 to `latency` steps, `stale` that of steps after its `valid_for_s`.

`palaestra train fast-slow-driving`, seed 0, what an arm matches of what passengers meant, and the share of drives that
have a collision: none 0.41 and 0, guide 0.64 and 0.8%, shuffled 0.41 and 0, oracle 0.64 and 0.8%, guided without
the mask 0.52 and 21%. The mask keeps drives safe and guidance is followed; guided drives are no safer than those
without guidance, and are paid less by the simulator (33.0 against 36.7), which pays for speed alone. One seed, no claim.

Deviations: the schema, the thresholds of the mask and the sentences are ours, as the abstract names none.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.fast_slow_driving.guidance import DrivesLanes as DrivesLanes
from palaestra.recipes.llm4rl.fast_slow_driving.lanes import Lanes
from palaestra.recipes.llm4rl.fast_slow_driving.program import Advice, DriveByInstruction
from palaestra.recipes.llm4rl.fast_slow_driving.written import written_parse

CARD = pl.Card(
    title="Human-centric driving, fast-slow architecture",
    paper="arXiv:2505.06875",
    claim="A language model that turns a passenger's words into structured guidance, and a learned policy that "
    "drives by it in real time, collide less and follow preferences better than a policy alone.",
    source="abstract; reward and actions of highway-env by its documentation; the schema of guidance, the mask "
    "and the match inferred",
    size=pl.Size(
        setting="a large chat model reads instructions in scenarios of Highway-Env; collisions and the match "
        "with preferences beside baselines"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "turns an instruction into guidance",
                when={"advice": ("model",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "in arrays, as palaestra.control.Simulator says, that drives on lanes",
                flag="--env FILE.py:NAME",
                otherwise="a motorway of four lanes",
            ),
        ),
        shows="guided",
        off={"advice": "none"},
        own={
            "endpoint": '{"goal_lane": 1, "target_speed": 30}',
            "learner.games": 4,
            "games": 4,
        },
    ),
    use="It helps where passengers say what they want and a fast policy has to drive: the model is asked once "
    "a drive, and never in the loop. It is a study on a simulator, and nothing for vehicles.",
    lacks=(
        "Highway-Env was not run: its rewards and actions are here, its dynamics are not.",
        "The policy sees the nearest cars of three lanes, without attention over all.",
        "Each drive has one instruction at its start; new ones on the way and stored past cases are not here.",
        "A language model that drives by itself is no arm.",
        "Without a model the default's reader is a rule that a large model wrote, who knew the sentences: it shows "
        "what right guidance brings, and not that a language model reads instructions well.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    instructions: str = "",
    advice: Advice = "model",
    weight: float = 2.0,
    latency: int = 3,
    steps: int = 50_000,
    games: int = 120,
) -> DriveByInstruction:
    """`asked` reads `instructions`, a FILE.jsonl; `sim` is FILE.py:NAME; `steps` are environment steps of an
    arm, and `games` those of its test; see `DriveByInstruction`.
    """
    return DriveByInstruction(
        asked=asked,
        sim=pl.control.simulator_by_name(sim) if sim else Lanes(),
        instructions=instructions,
        advice=advice,
        weight=weight,
        latency=latency,
        steps=steps,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    advice: Advice = "model",
    weight: float = 2.0,
    latency: int = 3,
    steps: int = 50_000,
    games: int = 120,
) -> DriveByInstruction:
    """On the motorway, with the rule that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_parse, name="written rule"),
        advice=advice,
        weight=weight,
        latency=latency,
        steps=steps,
        games=games,
    )
