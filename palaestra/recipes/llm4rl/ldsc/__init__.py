"""LDSC: a language model names subgoals in each task, options learn to reach them, and later tasks use the
options again.

    option   o = (I, pi, beta): pi the best action by values of its own, with 0 into its region, -0.1 / (1 - gamma)
             where the game is over elsewhere and -0.1 for every other step; beta = in the region, or `timeout`
             steps; I = anywhere until 5 successes, then where most of the 5 calls of it that began nearest
             succeeded, of its successes and of what failed after the fifth (arXiv:2503.19007)
    over     Q(s, o) <- sum_{i<k} gamma^i r_i + gamma^k max_o' Q(s', o') of an option of k steps, over those
             that can begin and a global option, one step of the values of single actions
    tree     what is tried at random: an option where the subgoal before its own is reached (+1 nat), one that comes
             first (0), the global option (-1), an option where the subgoal before its own is not reached (-2)

    palaestra train ldsc --env FILE.py:first,FILE.py:second --llm "endpoint(url='...',model='...')" [place=x,y]
    palaestra train ldsc --env gymnasium:MountainCar-v0 place=number_0 --goal "reach 0.5 from -0.5" --llm DIR
    palaestra train ldsc --env FILE.py:make --llm transcript:RUN/transcript.jsonl

Continuous actions, as of a point in a maze that is pushed, are cut into `bins` values in each dimension, 3 by default,
both ends among them: all combinations are actions, 256 at most.

Several simulators, with commas, are tasks that are learned one after another; observations and actions have one
size. `place` names the coordinates in which a region is told: quantities that the simulator has in `visible`, else
number_0 and so on; the default is x and y, else the first two. A centre where no agent can be is moved to the
nearest place of a simulator with `places`, whose columns are x and y, else the first of `visible`. A radius is at
most half of the range of the widest coordinate; where games begin in a region, the run says so. A region that
overlaps a stored one by more than half (intersection over union) is reached by the stored option as it is; a like
name (cosine of three letters in a row above 0.8) gives new options their first values. Every option acts at random
as often as its task explores, a stored one too. `by_options` is the share of calls of options that end in their region.

In the run folder are arms.md, transcript.jsonl, and in policy/ the values over options and of each option of a task.
Arms take equally many environment steps, single steps of all games:

    none           the global option alone: double Q learning
    guide          the model's subgoals, options used again
    without reuse  the same subgoals, every option learned anew in each task
    shuffled       the same number of regions, coordinates exchanged between subgoals
    oracle         every fourth place of a shortest way, of a simulator with `route`

`palaestra train ldsc`, seed 0, share of test games of the three tasks that reach their goal (the standard error in
brackets): none 0.27 (0.015), guide 0.67 (0), without reuse 0.37 (0.009), shuffled 0.23 (0.024), oracle 0.34 (0.003).
The guide reaches the goal in all games of the first and third task and in none of the second; no arm learns all
three. That is one seed. An option took at most one random action in ten until a reader tried the first task on seeds
0, 1, 5 and 6 with and without that cap, and it was dropped; that failures before the fifth success do not count was
decided on seed 0 of that task. So these numbers were looked at while the method was set, and show no claim.

Deviations: options learn by double Q learning, not DDPG; regions are cubes; the classifier of where options begin
is one of nearest places, not a support vector machine; the questions, thresholds and the default are ours.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.ldsc.binned import countable
from palaestra.recipes.llm4rl.ldsc.program import MAZES, ReuseOptions, Subgoals
from palaestra.recipes.llm4rl.ldsc.recorded import recorded_subgoals

CARD = pl.Card(
    title="LDSC: LLM subgoals + option reuse",
    paper="arXiv:2503.19007",
    claim="Subgoals that a language model names, and options that are used again in later tasks, reach far "
    "goals with fewer steps than flat learning and skill chaining: 55.9% more reward on average.",
    source="abstract and project page (baselines, mazes, table); reuse test, rewards and thresholds inferred",
    size=pl.Size(
        setting="a chat model names subgoals of MuJoCo point mazes; DDPG options; success and time of Maze, "
        "FourRoom, E-Maze and Tunnel"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "names subgoals of a task, as JSON",
                when={"subgoals": ("model",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of one agent, or several as tasks in their order: in arrays, "
                "as palaestra.control.Simulator says, or of Gymnasium",
                flag="--env FILE.py:NAME,FILE.py:NAME or --env gymnasium:ID",
                otherwise="three goals in a maze of four rooms",
            ),
        ),
        shows="by_options",
        off={"subgoals": "none"},
        own={
            "endpoint": '{"subgoals": [{"name": "door", "x": 6, "y": 3, "radius": 0.5}]}',
            "learner.games": 4,
            "learner.updates": 4,
            "games": 4,
        },
    ),
    use="It helps where a goal is far and pays once, places have coordinates that words can name, and later tasks "
    "share parts of the way; in a task that flat learning solves, options only cost steps.",
    lacks=(
        "The paper's point mazes of MuJoCo were not run; continuous actions are cut into bins, so a body with many "
        "joints is not learned.",
        "An option's end is its region: it is not chained to where the next option begins, and without subgoals a "
        "task is learned flat, not by skill chaining.",
        "Each subgoal has one option, so the policies over subgoals and over options are one; the model's tree of "
        "subgoals acts on what is tried.",
        "Option-critic and deep skill chaining, the paper's baselines, are not among the arms.",
        "By default the subgoals are those that a large model wrote once, who knew the mazes; its numbers "
        "show neither that a language model names good ones nor that they help.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    place: str = "",
    goal: str = "",
    subgoals: Subgoals = "model",
    reuse: bool = True,
    steps: int = 6_000,
    timeout: int = 20,
    most: int = 6,
    games: int = 128,
    bins: int = 3,
) -> ReuseOptions:
    """`asked` names the subgoals of the tasks `sim`, FILE.py:NAME or gymnasium:ID, several with commas, and `goal`
    says in words what is wanted there; continuous actions have `bins` values in each dimension; `steps` are
    environment steps of a task in each arm; see `ReuseOptions`.
    """
    return ReuseOptions(
        asked=asked,
        tasks=tuple(countable(x, bins) for x in pl.control.simulators_by_name(sim)) or MAZES,
        place=place,
        goal=goal,
        subgoals=subgoals,
        reuse=reuse,
        steps=steps,
        timeout=timeout,
        most=most,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    subgoals: Subgoals = "model",
    reuse: bool = True,
    steps: int = 6_000,
    timeout: int = 20,
    most: int = 6,
    games: int = 128,
) -> ReuseOptions:
    """On three goals in four rooms, with the recorded subgoals unless a model is `asked`."""
    return build(
        asked or pl.Scripted(recorded_subgoals, name="recorded"),
        subgoals=subgoals,
        reuse=reuse,
        steps=steps,
        timeout=timeout,
        most=most,
        games=games,
    )
