"""ImagineBench: offline reinforcement learning from recorded rollouts, and from rollouts that a language
model imagines of new instructions.

    D = recorded rollouts of the level "train" + imagined ones of the other levels
    cql    TD + alpha (log sum_a exp Q(s, a) - Q(s, a_data))    for actions that can be counted
    bc     -log pi(a_data | s)                                   for these and continuous ones

s is the observation with the instruction behind it. Levels are "train", "rephrase" (the same tasks in other
words), "easy" (variations), "hard" (compositions), or any names of yours; the measure is the share of
successes in each, beside the return, and the gap to a policy that learns from real rollouts of the same
new tasks (arXiv:2505.10010). A success is a game that ends in a step which pays more than 0, or has the
simulator's fact "success"; where a step costs, say what return is one: `threshold=-20`.

    palaestra train imaginebench --env FILE.py:make rollouts=FILE.jsonl --llm "endpoint(url='...',model='...')"
    palaestra train imaginebench --env FILE.py:make rollouts=FILE.jsonl learner=bc --llm DIR
    palaestra train imaginebench --env FILE.py:make rollouts=FILE.jsonl      # imagined rows are in the file

`make(instruction)` makes an environment of Gymnasium or a simulator in arrays. A row of the file is a rollout
that was recorded in it, {"instruction": TEXT, "observations": [T + 1 lists], "actions": [T], "rewards": [T],
"over": true}; "over" says that it ended and was not cut at a limit of time, after which a value goes on.
With "level": "hard" it is for the oracle alone; with "imagined": true it was imagined by another program. A row
{"instruction": TEXT, "level": "hard"} is a new instruction, which the model is asked about and policies are
tested with.

The model sees the simulator's `about`, two recorded rollouts, the instruction, and the first observation of
a recorded rollout; it writes actions and observations as JSON. What does not fit in two tries is left out
and counted. Before it is asked the run says how long questions and replies are, and refuses what does not
fit `context` (32768 tokens): 100 steps of 39 numbers with two examples can take 130000. Then name the
model's context, show fewer (`examples=0`), or let rollouts be shorter (`longest=50`).

`sft.jsonl` in the run folder has the recorded rollouts as rows to fine-tune a model on, which then is
`asked` (KALM: prediction of a step, explanation and generation of a rollout):

    palaestra train sft --data RUN/sft.jsonl --model DIR

In the run folder are arms.md, transcript.jsonl, policy/ of the guided arm and policies/ of the others, each with
encoder.json, how observations are scaled. All arms make as many updates from the same start:

    none      recorded rollouts alone
    guide     with all imaginary ones
    filtered  with the imagined steps that agree with a model of the dynamics learned from recorded ones
    shuffled  with those of an instruction under another one
    oracle    with recorded rollouts of the new instructions, where there are some

`moved` is the share of first actions of test games of new instructions that the imagined rollouts change.
`valid` is the share of replies that fit, `kept` that of steps which the check keeps, and `dynamics_error` their
error over that of recorded steps.

`palaestra train imaginebench`, seed 0, ends with successes in hard tasks of 0.07 (none), 0.16 (guide), 0.15
(filtered), 0.07 (shuffled) and 0.20 (oracle), 384 test games each: one seed, no claim. The filter did not help there.

Half of what is learned from is imagined: the smaller set is repeated.

Deviations: the imagined rollouts come from prompts, unless a fine-tuned model is asked; rewards of imagined
rollouts are the mean recorded return at the last step; instructions are hashed words with their place,
and no BERT, unless `embed` is given.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.imaginebench.grid import ColourGrid as ColourGrid
from palaestra.recipes.llm4rl.imaginebench.grid import written_rollout
from palaestra.recipes.llm4rl.imaginebench.program import (
    Imagination,
    Learner,
    LearnFromImagination,
)
from palaestra.recipes.llm4rl.imaginebench.program import load_encoder as load_encoder

CARD = pl.Card(
    title="ImagineBench: offline RL with imaginary rollouts",
    paper="arXiv:2505.10010",
    claim="Offline learners that are given rollouts imagined by a language model stay far behind those given "
    "real rollouts of the same hard tasks: 35.44% successes and 64.37%.",
    source="abstract; the authors' repository for formats, levels, learners and rewards; rewards of imagined "
    "rollouts, prompts and the check of dynamics inferred",
    size=pl.Size(
        setting="a fine-tuned chat model writes rollouts of Meta-World, CLEVR-Robot, BabyAI, LIBERO and "
        "MuJoCo; BC, CQL, BCQ and TD3+BC; 500,000 updates"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "imagines rollouts, as JSON",
                when={"imagination": ("asked",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "called with an instruction, and of one agent: in arrays, as palaestra.control.Simulator "
                "says, or of Gymnasium; with rollouts=FILE.jsonl, which were recorded in it",
                flag="--env FILE.py:NAME",
                otherwise="an agent on a grid with four marks, and rollouts of its expert",
            ),
        ),
        shows="moved",
        off={"imagination": "none"},
        own={
            "endpoint": '{"steps": [{"action": 0, "observation": [2, 2, 1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 2, 0]}]}',
            "each": 2,
            "games": 8,
        },
    ),
    use="It helps where rollouts of some tasks are recorded, and a model that knows the domain can write rollouts of "
    "others in the same numbers; look at `possible`, `kept` and the arm shuffled before you trust a gain.",
    lacks=(
        "BCQ and TD3+BC are not here: continuous actions are learned by behaviour cloning alone.",
        "The environments and the published data of the benchmark were not run; the default is a grid with "
        "four marks.",
        "No language model is fine-tuned on the rollouts within the run; it writes the rows for that.",
        "Without a model the default's rollouts are those of a rule that was written by hand and knows the "
        "grid, and makes mistakes on purpose: it shows what imagined rollouts of such quality bring, and "
        "not that a language model writes them.",
        "Online adaptation, continual learning and images, which the paper names as open, are not here.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    rollouts: str = "",
    learner: Learner = "cql",
    each: int = 15,
    imagination: Imagination = "asked",
    threshold: float | None = None,
    embed: str = "",
    steps: int = 30,
    games: int = 32,
    examples: int = 2,
    longest: int = 0,
    context: int = 32_768,
) -> LearnFromImagination:
    """`asked` imagines `each` rollouts of every new instruction in the file `rollouts`; `sim` is FILE.py:NAME,
    called with an instruction; `context` is how many tokens a question and its reply may have; see
    `LearnFromImagination`.
    """
    return LearnFromImagination(
        asked=asked,
        sim=sim,
        rollouts=rollouts,
        learner=learner,
        each=each,
        imagination=imagination,
        threshold=threshold,
        embed=embed,
        steps=steps,
        games=games,
        examples=examples,
        longest=longest,
        context=context,
    )


def embedded(
    asked: pl.Source | None = None,
    learner: Learner = "cql",
    each: int = 15,
    imagination: Imagination = "asked",
    steps: int = 30,
    games: int = 32,
) -> LearnFromImagination:
    """On the grid, with the rule that was written by hand unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_rollout, name="written rule"),
        learner=learner,
        each=each,
        imagination=imagination,
        steps=steps,
        games=games,
    )
