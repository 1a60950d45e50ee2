"""HIB: a policy that reads its history through an information bottleneck, trained in a simulator that tells what
the robot will not see. No language model is in it.

    p(z | h_t) = N(mean, diag sd^2)     h_t: the last k pairs of observation and action; pi(a | o_t, z), V(o_t, e_t)
    L     = L_PPO + nce L_NCE + kl KL(p(z | h) || N(0, I))                                     (arXiv:2305.18464)
    L_NCE = -mean_i log( exp S_ii / sum_j exp S_ij ),  S_ij = z_i W f(e_j);   I(z; e) >= log(number of j) - L_NCE
    KL    = sum 1/2 (mean^2 + sd^2 - 1 - 2 log sd) >= I(z; h), up to its mean over h

e are privileged numbers: mass, friction, terrain. The first term keeps in z what tells e, the second one forgets
the rest of the history, in one stage and without a teacher; PPO's gradients reach the encoder too. The deployed
policy reads what is observed alone, with the mean of z.

    palaestra train hib --env FILE.py:make test=FILE.py:harder privileged=mass,friction
    palaestra train hib --env gymnasium:ID privileged=3,4 [observed=0-2]
    palaestra train hib nce=0.3 kl=0.001 k=20 steps=60000 arms=history,hib

`privileged` are names of the `facts` of a simulator in arrays, or numbers of the observation, which the policy
then does not see. A fact is [games, agents], one number of each agent. `test` is the same simulator with hidden
numbers from elsewhere. The controller of a robot has observed numbers in, commands out, in the simulator's units:

    from palaestra.recipes.llm4rl.hib import load_controller
    controller = load_controller("RUN/policy")   # controller.reset() before an episode, controller(observed)

arms.md in the run folder has, with equal environment steps and equal first weights, what greedy games are paid
(`return`, and `outside` in `test`), how well a linear map of z tells e at the end of a game (`probe`, R^2 on games
that it was not fitted to; `probe_first` after one step) and the mean `kl` of z:

    none       no history: domain randomisation, with a critic that sees e
    history    the encoder, by PPO's gradients alone
    no kl, no nce   the bottleneck without one of its terms
    hib        both
    two stage  a policy that reads e, then an encoder that imitates what that made of e
    oracle     the policy that reads e

`probe_gain` and `outside_gain` are hib less history. Rewards are learned in units of the deviation of returns at
the start; what is observed and e are read less their mean and divided by their deviation there. The critic sees e
in all arms, so these differ in what the policy reads.

By default a pendulum is held at an angle; mass, length and friction are hidden. Masses are from 0.5 to 1.5 kg in
training, and outside from 0.25 to 0.5 and 1.5 to 1.75.

`palaestra train hib`, seed 0, return and outside (standard errors up to 0.2 and 1.1): none -1.9 and -11.3, history -1.8
and -10.9, no kl -1.6 and -8.8, no nce -2.2 and -12.1, hib -2.0 and -9.7, two stage -1.3 and -5.7, oracle -1.7 and -10.5;
the probe of z is 0.01 (history), 0.14 (no kl), -0.10 (no nce) and 0.22 (hib). So z tells what is hidden where the first
term acts, and outside hib loses less than history by about one standard error; but imitation in two stages, which the
method is said to beat, does best here by far, and inside hib gains nothing. The weight 0.3 was chosen in a trial with
80000 steps, seed 102, before observations were scaled. One seed, no claim.

Our reading: the abstract names history and bottleneck; estimators, weights and sizes are ours, and PPO stands
for any learner.
"""

from collections.abc import Sequence

import palaestra as pl
from palaestra.recipes.llm4rl.hib.network import load_controller as load_controller
from palaestra.recipes.llm4rl.hib.pendulums import HiddenPendulums
from palaestra.recipes.llm4rl.hib.program import ARMS, LearnHistory, parse_arms

CARD = pl.Card(
    title="Historical information bottleneck, sim-to-real",
    paper="arXiv:2305.18464",
    claim="A representation of privileged knowledge that is learned from histories through an information "
    "bottleneck generalises better than two-stage imitation and than reducing privileged knowledge step by step.",
    source="abstract and project page (history of fixed length, gradients of reinforcement learning reach the "
    "encoder, any learner); estimators, weights and sizes inferred",
    size=pl.Size(
        setting="simulated control suites, and a real quadruped on stairs; no language model",
    ),
    needs=pl.needs.Requirements(
        columns=(),
        policy=False,
        flags={"env": "sim"},
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of robots whose hidden numbers differ between games: in arrays, as palaestra.control.Simulator "
                "says, with `facts`, or any with the hidden numbers in its observation",
                flag="--env FILE.py:NAME privileged=NAME,NAME or --env gymnasium:ID privileged=3,4",
                otherwise="pendulums of hidden mass, length and friction",
            ),
        ),
        shows="probe_gain",
        off={"nce": 0.0, "kl": 0.0},
        own={
            "learner.games": 8,
            "learner.epochs": 2,
            "games": 16,
            "width": 16,
            "arms": "none,history,hib",
        },
    ),
    use="It helps where what is hidden changes which action is right and shows in the last steps; a policy that "
    "need not know it, or cannot tell it from k steps, does as well without.",
    lacks=(
        "No language model is in it.",
        "The control suites and the quadruped were not run; the default is a pendulum of our own.",
        "The bound on the value discrepancy between oracle and learned policy is not checked.",
        "Of methods that reduce privileged knowledge step by step there is no arm; imitation in two stages is one.",
        "The learner is PPO, not SAC.",
    ),
    grade="B",
)


def build(
    sim: str = "",
    test: str = "",
    privileged: str = "",
    observed: str = "",
    nce: float = 0.3,
    kl: float = 1e-3,
    k: int = 20,
    arms: str | Sequence[str] = ",".join(ARMS),
    steps: int = 60_000,
    batch: int = 32,
    games: int = 256,
) -> LearnHistory:
    """`sim` and `test` are FILE.py:NAME or gymnasium:ID, `privileged` names of facts or numbers of the observation;
    `steps` are environment steps of an arm, `batch` games of an iteration; see `LearnHistory`.
    """
    if not sim and (test or observed):
        raise pl.UserError("hib: test and observed are of a simulator of yours, --env FILE.py:NAME")
    pendulums = HiddenPendulums()
    outside = HiddenPendulums(outside=True)
    return LearnHistory(
        sim=pl.control.simulator_by_name(sim) if sim else pendulums,
        test=(pl.control.simulator_by_name(test) if test else None) if sim else outside,
        privileged=str(privileged) if sim or privileged else "mass,length,friction",
        observed=str(observed),
        nce=nce,
        kl=kl,
        k=k,
        arms=parse_arms(arms),
        steps=steps,
        games=games,
        learner=pl.control.PPO(lr=2e-3, games=batch, epochs=6, minibatches=2, bootstrap=True),
    )
