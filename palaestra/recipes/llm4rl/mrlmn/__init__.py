"""MRLMN: drones that build a network learn in groups, with rewards of their own, and are drawn to places that a language
model names, which are matched with them by the Hungarian method.

    groups       a policy and a critic for each; drones are sorted by their distance to a base station
    R_u          R_team + a1_g serves_u + a2_g relays_u     served by drone u, passed on by it, as shares of the users
    constraint   a drone of the group nearest to the base stations flies back where it is farther than a hop; such
                 steps are not learned from
    sigma        argmin sum_u C[u, sigma(u)],  C = |dx| + |dy| from drone to target; targets are in no order. With
                 cost=policy C = -log sum_a pi_u(a), a the actions towards it
    L            L_PPO + beta L_KD,   L_KD = mean_u -log sum_a pi_u(a),  a the actions towards the matched target
    beta         falls linearly from `beta` to 0 at the share `until` of the training (arXiv:2505.08448)

Fewer targets than drones leave some without one, and without L_KD; targets outside the map or named twice are dropped. A
reply that cannot be read names none. The model is asked while drones learn, once about each place of users; flying
takes no language model.

    palaestra train mrlmn --llm "endpoint(url='...',model='...')"
    palaestra train mrlmn --env FILE.py:make --llm DIR             # with moves, bounds, place(obs), situations(paths), spell
    palaestra train mrlmn --env FILE.py:make place=2,3 moves="0 0,-1 0,1 0,0 -1,0 1" --llm DIR

`make` makes a simulator of several agents with discrete actions, in arrays or as a parallel environment of PettingZoo.
`place` are the two numbers of an observation that are the agent's own place, `moves` how far each action moves it, in the
units of that place; targets lie within the simulator's `bounds`, or, without these, where random actions lead and half as
far again. A simulator may have groups (`groups`, `group_at`), a constraint (`forced`), the facts "serves" and "relays",
and targets by a rule (`plan`), see `GuidedGames`; without groups all agents share one policy, and with neither these nor
the facts grouped is none again. shuffled needs two new places at once, and learns without targets where there are none.

In the run folder are arms.md, transcript.jsonl and policy/, one for each group. Arms take equally many environment steps:

    random        every action alike, nothing is learned
    none          one policy for all, the team's reward
    grouped       groups, their rewards and the constraint
    guide         the same, and the model's targets
    by policy     targets matched by -log of the probability of the actions towards them; with cost=policy the guide
                  does so, and this arm, by distance
    unmatched     target j for drone j
    shuffled      the targets of another place of users
    oracle        targets by a rule that knows the network
    flown         nothing is learned: drones fly to the matched targets, which is what these are worth

A guide is named by `asked`. Without it the built-in drones take the targets of a rule (`written.py`), and "guide" below is
that rule, not a language model's.

The built-in network (`DroneNetwork`, `radio.py`) has signal-to-noise ratios that fall with distance, drones that disturb
each other's users, rates over several hops that users share, and users that move. A step pays 0.7 covered + 0.3
satisfied: the share of users that are served, and the mean of min(1, rate / demand).

`palaestra train mrlmn --seed 0`: mean over 64 games of 20 steps of the share of users that are served, of a user's rate in
bits a second and hertz, and of the steps until 80% are served, with the return (standard errors 1.9 to 2.5):

    arm        return  served  rate   steps        arm            return  served  rate   steps
    random       7.8    0.07   0.043   19.8        unmatched        57.4    0.51   0.111   13.3
    none        57.5    0.50   0.114   16.1        shuffled         51.0    0.44   0.116   17.3
    grouped     60.5    0.54   0.111   13.1        oracle           62.3    0.57   0.105   11.7
    guide       61.7    0.55   0.114   13.0        flown            67.8    0.59   0.123   12.4
    by policy   46.4    0.41   0.094   15.7        flown (oracle)   72.3    0.66   0.111   10.6

One seed, no claim. Matched targets are better than the same ones by number, and wrong ones harm; but guided drones
serve no more users than grouped ones, within chance, nor have they better rates, and fewer than drones that fly to the
targets. To match by -log pi was worst of what is guided: a policy is then matched with what it does already. In an
earlier setting, without radio and with users that stay, seeds 0 and 1 served 0.58 and 0.55 with a guide, 0.58 and 0.56
grouped, 0.54 and 0.49 unmatched, 0.46 twice shuffled, and 0.49 and 0.51 with none; sizes and what drones see were set
then by looking at seed 0, and not changed since.

Our reading: cost, form of L_KD and the schedule of beta are not published; weights, network and sizes are ours. Targets
are matched anew in each step, since a match by where drones started cannot be told from what they see later.
"""

from typing import Literal

import palaestra as pl
from palaestra.recipes.llm4rl.mrlmn.network import DroneNetwork
from palaestra.recipes.llm4rl.mrlmn.placed import PlacedAgents, parse_moves, parse_place
from palaestra.recipes.llm4rl.mrlmn.program import LearnNetwork
from palaestra.recipes.llm4rl.mrlmn.written import written_targets

CARD = pl.Card(
    title="MRLMN: UAV networking, LLM distillation by Hungarian matching",
    paper="arXiv:2505.08448",
    claim="Grouping with decomposed rewards, a constraint on key drones, and the distillation of a language model's "
    "decisions, matched with the agents by the Hungarian method, give better coverage and links than multi-agent "
    "reinforcement learning alone.",
    source="abstract and a public review of it (groups, rewards, constraint); cost of a match, form of the distillation "
    "and its schedule inferred",
    size=pl.Size(
        setting="a simulated disaster area with drones in several hops, a chat model as teacher of MAPPO-like agents"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "names target places",
                otherwise="groups, rewards and constraint alone are compared with one policy for all",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of several agents that move in a plane by discrete actions: in arrays, as palaestra.control.Simulator "
                "says, or a parallel environment of PettingZoo",
                flag="--env FILE.py:NAME",
                otherwise="six drones carry the traffic of users to base stations",
            ),
        ),
        shows="distilled",
        off={"beta": 0.0},
        own={
            "endpoint": '{"targets": [[3, 3], [6, 3], [3, 9]]}',
            "learner.games": 4,
            "learner.epochs": 1,
            "games": 4,
        },
    ),
    use="It helps where good places are easier to name than to find by trying, and agents can do each other's work; look at "
    "the arm flown first, which says what the named places are worth.",
    lacks=(
        "In the default run (one seed) the guide serves 55% of users, groups alone 54%, neither 50%: it is not seen to help.",
        "Of a PettingZoo simulator nobody knows groups, decomposed rewards and key drones: matching and distillation act there.",
        "Radio is a path loss with interference on the ground: no fading, no directions, no power control, and drones fly at "
        "one height.",
        "By default targets are those of a rule that a large model wrote, who knew the simulator: it shows what such targets "
        "do, and not that a language model names them.",
        "The paper's baselines and its large scenes were not run.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    place: str = "",
    moves: str = "",
    beta: float = 1.0,
    until: float = 0.6,
    serve: tuple[float, ...] = (0.2, 0.5, 1.0),
    relay: tuple[float, ...] = (0.5, 0.5, 0.2),
    constrain: bool = True,
    cost: Literal["distance", "policy"] = "distance",
    calls: int = 200,
    steps: int = 32_000,
    games: int = 64,
) -> LearnNetwork:
    """`asked` names targets; `sim` is FILE.py:NAME, with `place` and `moves` where it does not say these itself; see
    `LearnNetwork`. A simulator without as many groups has the means of `serve` and `relay`.
    """
    made = pl.control.simulator_by_name(sim) if sim else DroneNetwork()
    if place or moves:
        made = PlacedAgents(made, parse_place(place), parse_moves(moves))
    groups = getattr(made, "groups", 1)
    even = lambda x: x if len(x) in (1, groups) else (sum(x) / len(x),)
    return LearnNetwork(
        asked=asked,
        sim=made,
        beta=beta,
        until=until,
        serve=even(serve) if sim else serve,
        relay=even(relay) if sim else relay,
        constrain=constrain,
        cost=cost,
        calls=calls,
        steps=steps,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    beta: float = 1.0,
    until: float = 0.6,
    serve: tuple[float, ...] = (0.2, 0.5, 1.0),
    relay: tuple[float, ...] = (0.5, 0.5, 0.2),
    constrain: bool = True,
    cost: Literal["distance", "policy"] = "distance",
    calls: int = 200,
    steps: int = 32_000,
    games: int = 64,
) -> LearnNetwork:
    """On six drones, with targets of the rule that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_targets, name="written rule"),
        beta=beta,
        until=until,
        serve=serve,
        relay=relay,
        constrain=constrain,
        cost=cost,
        calls=calls,
        steps=steps,
        games=games,
    )
