"""LERO: a language model writes hybrid rewards and features of observations for agents of a team, and
evolution keeps those with which a short training is paid best.

    HRF  R_i = w_g R_team + w_l r_i     r_i says what agent i itself contributed; it may read the whole
                                        state, for rewards are needed in training alone
    OEF  o_i' = [o_i, f(o_i)]           what agent i can infer, from its own observation alone

A generation has the `elites` of the one before and `population` candidates that the model writes after
it was shown these, with their learning curves and what seems wrong with them. Each is trained for
`trial` environment steps with the seed of the generation and ranked by what the simulator pays, never
by its own reward (arXiv:2503.21807). The best one is then trained from scratch for `steps`.

    palaestra train lero --env gymnasium:CartPole-v1 --llm "endpoint(url='...',model='...')"
    palaestra train lero --env FILE.py:make --llm DIR          # Gymnasium, PettingZoo (parallel), arrays
    palaestra train lero --env FILE.py:make --llm transcript:RUN/transcript.jsonl

In the run folder are arms.md, transcript.jsonl with every reply, and policy/, the policy with its
candidate (candidate.json); `load_enhanced` shows a simulator as the policy saw it. The report has these
arms, which take equally many environment steps if those of the search are counted:

    none      what is paid, plain observations, for `steps` and those of the search
    guide     the best candidate
    shuffled  the same candidate, its reward that of another step and its features those of another game
    oracle    the same candidate where nothing is hidden, of a simulator with `whole`

A simulator may say what it is `about`, which quantities rewards may read (`declared`, `quantities`), and
which features may (`visible`, `view`); else these are the numbers of an observation. Without `sim` the
default is `pl.control.Coverage`: three agents cover three landmarks and see 0.8 far. Without a model too
the candidates are six that a large model wrote once (`recorded.py`).

`palaestra train lero`, seed 0, ends at -52.3 (none), -49.0 (guide), -57.0 (shuffled) and -34.0 (oracle), with
standard errors of 1.2 over test games: one seed, no claim.

Deviations: functions are expressions, not Python, see `lacks`. Time limits are no ends: what follows one
is worth what the critic says. Sizes of the search, the weights, and repairs (three, then a random
candidate) are ours, as the paper's are not in its abstract.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.lero.candidate import Candidate as Candidate
from palaestra.recipes.llm4rl.lero.candidate import Parts
from palaestra.recipes.llm4rl.lero.candidate import load_enhanced as load_enhanced
from palaestra.recipes.llm4rl.lero.program import EvolveGuidance, Writer
from palaestra.recipes.llm4rl.lero.recorded import recorded

CARD = pl.Card(
    title="LERO: LLM-evolved rewards and observations for MARL",
    paper="arXiv:2503.21807",
    claim="Hybrid rewards and observation features that a language model writes, and evolution selects, "
    "solve credit assignment and partial observability in teams: better and faster than the base methods.",
    source="abstract; secondary overviews of the paper for the two functions, the selector and the "
    "learners; sizes of the population, weights and the rule of repair inferred",
    size=pl.Size(
        setting="a large chat model writes both functions; MPE cooperative navigation with MAPPO, VDN and "
        "QMIX"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "writes candidates: a reward and features, as JSON",
                when={"writer": ("model",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of one agent or a team: in arrays, as palaestra.control.Simulator says, of Gymnasium, or a "
                "parallel environment of PettingZoo",
                flag="--env FILE.py:NAME or --env gymnasium:ID",
                otherwise="three agents cover three landmarks and see a part of them",
            ),
        ),
        shows="relabelled",
        off={"parts": "none"},
        own={
            "endpoint": '{"reward": ["contribution"], "features": ["landmark_0_rival"]}',
            "generations": 1,
            "population": 1,
            "learner.games": 8,
            "games": 8,
        },
    ),
    use="It helps teams that are paid together or see little, with a model that writes formulas without "
    "mistakes; its search takes as many environment steps as it trains candidates.",
    lacks=(
        "Rewards and features are expressions over named quantities, not Python.",
        "MAPPO, VDN and QMIX are not here: agents share one policy and each learns by PPO from its own "
        "observation (IPPO).",
        "Benchmarks of the paper beside cooperative navigation were not run.",
        "By default the candidates are those that a large model wrote once, who knew the simulator; it "
        "did not see how earlier ones did, so the default shows selection, and not that feedback helps.",
        "Of an environment of a library the model is told neither the name nor what its numbers mean, unless a "
        "description says so: `palaestra guide init`.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    goal: str = "",
    writer: Writer = "model",
    parts: Parts = "both",
    generations: int = 2,
    population: int = 3,
    elites: int = 1,
    trial: int = 16_000,
    steps: int = 80_000,
    games: int = 256,
) -> EvolveGuidance:
    """`asked` writes candidates, or writer="random" draws them; `sim` is FILE.py:NAME or gymnasium:ID, and
    `goal` says in words what is wanted there; of a candidate `parts` act. `trial` and `steps` are
    environment steps, see `EvolveGuidance`.
    """
    return EvolveGuidance(
        asked=asked,
        sim=pl.control.state_goal(
            pl.control.simulator_by_name(sim) if sim else pl.control.Coverage(), goal
        ),
        writer=writer,
        parts=parts,
        generations=generations,
        population=population,
        elites=elites,
        trial=trial,
        steps=steps,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    writer: Writer = "model",
    parts: Parts = "both",
    generations: int = 2,
    population: int = 3,
    elites: int = 1,
    trial: int = 16_000,
    steps: int = 80_000,
    games: int = 256,
) -> EvolveGuidance:
    """On cooperative navigation, with the recorded candidates unless a model is `asked`."""
    return build(
        asked or pl.Scripted(recorded, name="recorded"),
        writer=writer,
        parts=parts,
        generations=generations,
        population=population,
        elites=elites,
        trial=trial,
        steps=steps,
        games=games,
    )
