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

    palaestra train mrlmn asked="endpoint(url='...',model='...')"
    palaestra train mrlmn sim=FILE.py:make asked=DIR             # with moves, bounds, place(obs), situations(paths), spell
    palaestra train mrlmn sim=FILE.py:make place=2,3 moves="0 0,-1 0,1 0,0 -1,0 1" asked=DIR

`make` makes a simulator of several agents with discrete actions, in arrays or as a parallel environment of PettingZoo.
`place` are the two numbers of an observation that are the agent's own place, `moves` how far each action moves it, in the
units of that place; targets lie within the simulator's `bounds`, or, without these, where random actions lead and half as
far again. A simulator may have groups (`groups`, `group_at`), a constraint (`forced`), the facts "serves" and "relays",
and targets by a rule (`plan`), see `GuidedGames`; without groups all agents share one policy, and with neither these nor
the facts grouped is none again. shuffled needs two new places at once, and learns without targets where there are none.

In the run folder are arms.md, transcript.jsonl and policy/, one for each group. Arms take equally many environment steps:

    none          one policy for all, the team's reward
    grouped       groups, their rewards and the constraint
    guide         the same, and the model's targets
    unmatched     target j for drone j
    shuffled      the targets of another place of users
    oracle        targets by a rule that knows the network
    flown         nothing is learned: drones fly to the matched targets, which is what these are worth

A guide is named by `asked`. Without it the built-in drones take the targets of a rule (`written.py`), and "guide" below is
that rule, not a language model's.

`palaestra train mrlmn --seed 0`, and seed 1 behind it: the mean share of users served in a game of 20 steps (standard errors
0.02 to 0.03), and steps until 80% are:

    none 0.49, 0.51; 15.6, 14.3          unmatched 0.54, 0.49; 13.1, 13.8     flown           0.61, 0.61; 11.4, 11.6
    grouped 0.58, 0.56; 13.4, 13.9       shuffled 0.46, 0.46; 15.6, 15.2      flown (oracle)  0.69, 0.68; 10.7, 11.1
    guide 0.58, 0.55; 12.4, 11.9         oracle 0.59, 0.60; 12.9, 12.0

So groups with their rewards and the constraint help, wrong targets harm, and matched targets are better than the same ones
by number. But at the end guided drones serve no more users than grouped ones, within chance, and less than drones that
fly to the targets; they are quicker to learn (after 6 of 50 iterations of seed 0 guide has 0.30, grouped 0.19, none 0.15)
and quicker there. Sizes and what drones see were set by looking at seed 0: two seeds, no claim. In an
earlier setting, with eight places of users, drones that saw unserved users alone, and one match a game, guided drones ended
at 0.41 and grouped ones at 0.43 (seed 0): what is to be distilled has to be told from what an agent sees.

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
                flag="sim=FILE.py:NAME",
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
        "A link is there within a distance or not: signal-to-noise ratios, rates and interference are not modelled, and "
        "users do not move.",
        "By default targets are those of a rule that a large model wrote, who knew the simulator: it shows what such targets "
        "do, and not that a language model names them.",
        "Of cost=policy, which matches by -log pi of the actions towards a target, no run was measured.",
        "The paper's baselines and its large scenes were not run.",
    ),
    grade="C",
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
