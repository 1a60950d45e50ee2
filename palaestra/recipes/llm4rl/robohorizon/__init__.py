"""RoboHorizon: language models divide a long task into stages and write a reward for each; a world model,
whose imagination is as long as the parts of demonstrations, learns from it beside PPO.

    r_t   = (sum of the bonuses of stages that are done + the step reward of the stage that is not) / (all
            bonuses) + paid * (what the simulator pays)
    RSSM  posterior q(s_t | s_t-1, a_t-1, z_t), prior p(s_t | s_t-1, a_t-1), heads for z, r and the end
    L     = -ln p(z|s) - ln p(r|s) - ln p(end|s) + beta KL(q || p)
    V_t   = r_t + gamma ((1 - lam) v_t+1 + lam V_t+1), v_H+1 behind the last imagined step (arXiv:2501.06605)
    critic 0.5 (v - sg V)^2;  actor -V - entropy H(pi) - bc ln p(a_expert | s)
    views  L = -ln p(pixels of all views | z) - ln p(r | z),  z by a part of the patches of one view

`asked` divides the task: each stage has a condition. `writer`, or the same model, writes a small reward of a
step and a large bonus. Both are expressions over quantities of the simulator; no text runs. A lint refuses,
and asks again with the reason for, a step reward that is lower where its stage is done than where it is not, by
more than 3 standard errors over states drawn within the bounds of quantities, and a bonus no larger than the
step reward varies.

    palaestra train robohorizon --env gymnasium:ID --goal '...' --llm "endpoint(url='...',model='...')"
    palaestra train robohorizon --env FILE.py:make --llm DIR writer=DIR demos=demos.jsonl speed=NAME gripper=NAME
    palaestra train robohorizon --env FILE.py:make --llm transcript:RUN/transcript.jsonl

`demos` has a demonstration a line, {"obs": [[...], ...], "act": [...], "reward": [...], "over": true}, the
observations one more than the actions; "over" says that the game ended there.
Keyframes are steps at which it comes to rest (the quantity `speed`, else the observation)
while `gripper` stays; their distances are the key-horizons, and the mean one of a stage is how far the world
model imagines from there. Without demonstrations it imagines `imagine` steps, and nothing is imitated.

A simulator with `camera_shape` and `render(obs)` has several cameras (`HasCameras`). Then a second world model sees: a
masked autoencoder over all views is fitted first, to clips of three frames from one keyframe to the next; a clip has one
mask, which hides all views but one and 75% of its patches, or in every second update none of them. It stays as it is, and
z is the code of the front camera's picture alone, in training and when acting.

In the run folder are arms.md, transcript.jsonl, policy/ (PPO's, of the guided arm), world/ and seeing/ (`load_world`,
`WorldPlayer`). Arms of equally many environment steps, those of demonstrations counted:

    none      what the simulator pays
    script    an oracle: the simulator's own script, where it has one; nothing is learned
    guide     the staged reward, PPO
    unlinted  the reward that the lint refused first, where it refused one
    steps     step rewards without bonuses
    shuffled  the staged reward of other steps that were played
    world     the staged reward, learned by the world model, from demonstrations too
    views     the same by what the front camera shows

Without `sim` a hand opens a lid and puts an item under it, in a plane (`LidTask`), with 30 demonstrations of a
script and three cameras, of the plane, of the box, and on the hand. Without a model too the stages and rewards are those
that a large model wrote once (`recorded.py`), at first with the sign error of the paper's printed example.

`palaestra train robohorizon`, seed 0, 128 test games, steps that are paid of 50 and the share of stages done: none 0 and
0, guide 0.30 (standard error 0.21) and 0.50, step rewards without bonuses 0 and 0.25, shuffled 0 and 0, world model 0 and
0.17. It foretells 93% of the variance of the next observation: a model that learns the dynamics, and not that
imagination solves the task. unlinted is the same as guide to four digits, as training hardly comes to the stage whose sign
is wrong. Written stages are learned one after the other; that they bring the whole task about is not shown.
The script is paid in 17.1 of 50 steps (0.2) and does all stages.

Of cameras the autoencoder was measured, and the arm "views" was not run at full length. After 300 updates on 30
demonstrations of a script a code of one whole view explains 0.78 of the variance of all views' pixels, one of a quarter of
its patches 0.58; from codes of the front camera in 20 other games the hand's and the item's place, grip, angle and handle
are read off linearly with 0.73 to 0.98 of their variance.

Deviations: rewards are scaled by the sum of bonuses, and a stage that is done stays done. A game that ends early
is paid as if its last state stayed. The world model also foretells the next observation by the prior, which is
its decoder's second target, and learns when games end; KL is balanced as in DreamerV2, and half of
its sequences are of demonstrations. Sizes are ours.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.robohorizon.lid import LidTask
from palaestra.recipes.llm4rl.robohorizon.program import Rewards, RewardStages
from palaestra.recipes.llm4rl.robohorizon.recorded import recorded
from palaestra.recipes.llm4rl.robohorizon.world import WorldPlayer as WorldPlayer
from palaestra.recipes.llm4rl.robohorizon.world import load_world as load_world

CARD = pl.Card(
    title="RoboHorizon: multi-view world model, staged LLM rewards",
    paper="arXiv:2501.06605",
    claim="Dense rewards by stages that language models write from an instruction, and a world model on keyframes "
    "of several views, solve long manipulation tasks more often than visual model-based learners without them.",
    source="full text by a public repository of notes, and the abstract; sizes, scale and lint inferred",
    size=pl.Size(
        setting="GPT-4o writes stages and rewards; RLBench and FurnitureBench from several cameras, one RTX 4090, "
        "12 hours"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "writes stages, and their rewards unless `writer` does, as JSON",
                when={"rewards": ("staged", "steps")},
            ),
            pl.needs.chat_model(
                "reward model",
                "writer",
                "writes the rewards of the stages, as JSON",
                otherwise="the one that is asked for the stages",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "in arrays, as palaestra.control.Simulator says, of Gymnasium, or a parallel environment of "
                "PettingZoo (without the world model)",
                flag="--env FILE.py:NAME or --env gymnasium:ID",
                otherwise="a hand opens a lid and puts an item under it",
            ),
        ),
        shows="staged",
        off={"rewards": "none"},
        own={
            "endpoint": '{"stages": [{"name": "hold", "done": {"op": "less", "args": ["handle_distance", 0.1]}}], '
            '"rewards": [{"step": {"op": "neg", "args": ["handle_distance"]}, "bonus": 5.0}]}',
            "learner.games": 4,
            "games": 4,
            "demonstrations": 2,
            "views.updates": 4,
        },
    ),
    use="It helps where a task has steps that follow one another and is paid at its end alone, and where "
    "quantities tell how far each step is; compare `steps` to see whether the bonuses matter.",
    lacks=(
        "In the default run the world model does not do the task: no paid step, 0.17 of the stages; PPO with the same rewards "
        "has 0.50, a script 17 paid steps.",
        "What a world model that sees comes to beside one that reads numbers is not measured at full length.",
        "Pictures are small drawings of a plane, not of a rendered scene; cameras are those of simulators in arrays, and "
        "pictures of Gymnasium's environments are not taken. The autoencoder is small, and its decoder no transformer.",
        "Rewards are expressions over named quantities, not Python, and a stage's condition cannot remember.",
        "RLBench and FurnitureBench were not run; the default is a plane without contacts.",
        "By default stages and rewards are those that a large model wrote once, who knew the simulator.",
        "Of an environment of a library the model is told neither the name nor what its numbers mean, unless a "
        "description says so: `palaestra guide init`.",
        "What the world model imagines may take actions that a simulator's masks forbid; in games they are not taken.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    writer: pl.Source | None = None,
    sim: str = "",
    goal: str = "",
    rewards: Rewards = "staged",
    lint: bool = True,
    paid: float = 1.0,
    demos: str = "",
    speed: str = "",
    gripper: str = "",
    imagine: int = 15,
    dream: bool = True,
    steps: int = 30_000,
    games: int = 256,
) -> RewardStages:
    """`asked` writes stages for `goal`, `writer` their rewards; `sim` is FILE.py:NAME or gymnasium:ID;
    `steps` are environment steps of an arm; see `RewardStages`.
    """
    return RewardStages(
        asked=asked,
        writer=writer,
        sim=pl.control.simulator_by_name(sim) if sim else LidTask(),
        goal=goal,
        rewards=rewards,
        lint=lint,
        paid=paid,
        demos=demos,
        speed=speed,
        gripper=gripper,
        imagine=imagine,
        dream=dream,
        steps=steps,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    writer: pl.Source | None = None,
    rewards: Rewards = "staged",
    lint: bool = True,
    paid: float = 1.0,
    demonstrations: int = 30,
    imagine: int = 15,
    dream: bool = True,
    steps: int = 30_000,
    games: int = 256,
) -> RewardStages:
    """On the lid task, with the recorded replies unless a model is `asked`."""
    return RewardStages(
        asked=asked or pl.Scripted(recorded, name="recorded"),
        writer=writer,
        speed="hand_speed",
        gripper="gripping",
        rewards=rewards,
        lint=lint,
        paid=paid,
        demonstrations=demonstrations,
        imagine=imagine,
        dream=dream,
        steps=steps,
        games=games,
    )
