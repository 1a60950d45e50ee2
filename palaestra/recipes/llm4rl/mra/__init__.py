"""MRA: a set of policies, told apart by a latent, for games that differ in the number of agents. No language
model is in it.

    pi(a | o, z)     shared towers with attention over entities are what games have in common; z, one of
                     `modes` learned latents, is the strategy of a game
    z*(g)            the mode of game g: the one that is paid best there; of those within `near` standard
                     deviations of the best, the one that fewer other games have
    max I(z; a | o)  subject to z*(g) being near the best in every training game (arXiv:2108.12988)

Iterations alternate: each game's mode learns by PPO from what the game pays; a mode that no game has learns
from that and the bonus log d(z | o, a) - log p(z), d the exact posterior of the modes given what was done. For
the first `warm` share of the steps no game has a mode, and all learn so. In a game with another number of
agents every mode plays `tries` games and the best is kept; then `adapt` gradient steps move its latent
alone.

    palaestra train mra --env FILE.py:make train=2,3,4 test=5,6       # make(agents)
    palaestra train mra --env FILE.py:make layout="4,2*n,2*(n-1)"     # 4 own numbers, 2 of each of n things, ...
    palaestra train mra --env spread batch=32 steps=120000 diversity=1.0

`make(agents)` makes a simulator in arrays or a parallel environment of PettingZoo. Where observations grow
with the agents, `layout` or the simulator's `entities` say how they are built: (how many, numbers of each),
first the agent itself. arms.md in the run folder, all with equal environment steps, returns per agent:

    none         one policy for all games, without a latent
    specialists  a policy for each number of agents, which divide the steps
    latents      the set without the bonus
    mra          the set; it is saved in policy/, which `load_policies` reads

`seen` are games of training, `unseen` those of `test` with the best mode (of the specialists, the best of
these), `adapted` the same with the latent moved; `information` is I(z; a | o) in nats. Latents differ from the
start, so that it is about 0.2 in --env hunt before anything is learned: `information_gain`, less that of
`latents`, is what the bonus did. What trying and adapting take, `deployment_steps`, comes on top in all arms.

The default, --env hunt, is a game of one step: resources pay 0.3, 0.6 and 1.0 to those who choose them, if at
least 1, 3 and 5 agents do. Agents do not see how many they are. It is built so that a mode which no training
game needs is what an unseen game needs; --env congestion (resources that are shared) and --env spread
(cooperative navigation) are not. In the first two `exploitability` is exact, 0 in a Nash equilibrium.

`palaestra train mra`, seed 0, ends at a return per agent of 0.30 (none), 0.30 (specialists), 0.30 (latents)
and 0.58 (mra): 0.30 seen, of 0.50 that is possible, and 1.00 unseen. One seed in a game that was built for
it, no claim: game and sizes were chosen by runs of seeds 0 to 2. The same settings harm in --env congestion,
whose equilibria are mixed and alike: seed 0 ends at 0.39 (none), 0.39 (specialists), 0.39 (latents) and 0.29 (mra), with an
exploitability of 0.05, 0.03, 0.01 and 0.31. So compare `mra` with `latents`, and lower `diversity` where
`information` is near log(modes) and `seen` falls.

Our reading: the abstract names the parts, and no more. The rule of z*, the weight of the bonus, the warm
start and the sizes are ours. Where one mode serves all games, an idle one starts again beside it.
"""

from collections.abc import Sequence

import palaestra as pl
from palaestra.recipes.llm4rl.mra.games import make_game, parse_populations
from palaestra.recipes.llm4rl.mra.network import load_policies as load_policies
from palaestra.recipes.llm4rl.mra.program import LearnPolicySet

CARD = pl.Card(
    title="Meta representations for agents",
    paper="arXiv:2108.12988",
    claim="Policies of several modes, found by a constrained mutual information objective, carry over to games "
    "with numbers of agents that were not trained on, and adapt by first-order gradients of the latent.",
    source="abstract; the rule of assignment, bonus, networks and sizes inferred",
    size=pl.Size(
        setting="games of particles and of occupying resources, in populations such as 6, 9 and 12, beside "
        "MAAC and EPC; no language model"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim"},
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "a function of the number of agents that makes one in arrays, as "
                "palaestra.control.Simulator says, or a parallel environment of PettingZoo",
                flag="--env FILE.py:NAME",
                otherwise="agents choose resources that need several of them",
            ),
        ),
        shows="information_gain",
        off={"modes": 1},
        own={
            "learner.games": 8,
            "learner.epochs": 1,
            "games": 8,
            "adapt": 1,
            "tries": 2,
            "width": 16,
        },
    ),
    use="It helps where other numbers of agents need other strategies and agents cannot see how many they "
    "are; where one strategy serves all, or observations tell the number, one policy does as well.",
    lacks=(
        "No language model is in it.",
        "The proof that policies reach a Nash equilibrium is not checked; exploitability is measured in the "
        "two games of one step.",
        "Modes are a finite number of learned latents; a mixture of Gaussians is not here.",
        "Agents learn by independent PPO, where the paper's compare with MAAC; its curriculum over "
        "populations (EPC) is no arm.",
        "The paper's games of particles were not run; cooperative navigation is there, and was not "
        "measured at length.",
    ),
    grade="B",
)


def build(
    sim: str = "hunt",
    layout: str = "",
    train: str | Sequence[int] = "2,3,4",
    test: str | Sequence[int] = "5,6",
    modes: int = 4,
    diversity: float = 4.0,
    share: float = 0.25,
    warm: float = 0.3,
    steps: int = 20_000,
    batch: int = 128,
    tries: int = 64,
    adapt: int = 8,
    games: int = 512,
) -> LearnPolicySet:
    """`sim` is hunt, congestion, spread or FILE.py:NAME; `train` and `test` are numbers of agents; `steps`
    are environment steps of an arm, `batch` games of an iteration; see `LearnPolicySet`.
    """
    program = LearnPolicySet(
        sim=sim,
        layout=layout,
        train=parse_populations(train, "train"),
        test=parse_populations(test, "test"),
        modes=modes,
        diversity=diversity,
        share=share,
        warm=warm,
        steps=steps,
        tries=tries,
        adapt=adapt,
        games=games,
        learner=pl.control.PPO(lr=3e-3, games=batch, minibatches=1, bootstrap=True),
    )
    make_game(sim, program.train[0], layout)
    return program
