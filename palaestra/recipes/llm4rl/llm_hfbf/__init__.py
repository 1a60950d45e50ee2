"""LLM-HFBF: people's feedback shapes the reward of a learner, and a language model flags biased labels and
corrects them.

    f    a label from -1 to 1 of a segment of `segment` steps
    r' = r + weight f                                  of every step of the segment (arXiv:2503.22723)
    f  = (1 - c) f_human + c f_model                   where the model flags the label, c its confidence
    f  = f_human, times 1 - (flags + 1) / (labels + 2) where it does not; the factor acts below 0.5

    palaestra train llm-hfbf --env gymnasium:Pendulum-v1 human=labels.jsonl --llm "endpoint(url='...',model='...')"
    palaestra train llm-hfbf --env FILE.py:make human=FILE.py:label --llm DIR feedback=model edge=FILE.py:hard

`human` is a file of recorded labels, {"segment": {NAME: mean, ...}, "label": -1..1} a line, where a segment
has the label of the nearest one; a function from such means to a label; or a simulated person: unbiased,
conservative, aggressive, noisy, delayed. Flags count by person: lines of a file may say "who" gave the label, and
human=anna.jsonl,FILE.py:ben,aggressive are several people, who label games in turn. `trust` is that in the
person who is trusted least, `trust_NAME` that in each of several. Names of quantities are those of the
simulator's `declared` quantities, else number_0 and so on, each number of an observation, and change_0, its
change in a step.

The model sees the means of a segment, rounded to twelfths of their range, and the label; it is asked between
iterations about at most 32 segments that are unlike those before, and in an arm about `calls`. A label is
treated as the same label of the nearest segment that was asked about.
With feedback=model it gives labels itself and sees no person's. With potential=true labels enter as
F = gamma Phi(s') - Phi(s), Phi a linear fit of the labels, which leaves the best policy as it is.

arms.md in the run folder, all arms with equal environment steps:

    none      the simulator's reward alone
    human     the person's labels as they are
    guide     what the model makes of them
    model     the model's own labels, no person's (LLM feedback without people)
    shuffled  as guide, with the model's answers exchanged between segments
    oracle    an unbiased person's labels: what a segment was paid, clipped

`precision` and `recall` are those of flags, against labels that are off by 0.5 or more from the oracle's;
human=unbiased shows how often the model flags what is right. A fallback (an answer that cannot be read in
three tries) gives f = 0 and is no flag.

`edge_return` is what an arm's policy is paid in edge cases that nobody trained on: a simulator of yours with the same
observations and actions, edge=FILE.py:NAME; by default cars that cut in closely and brake to a stop.

`palaestra train llm-hfbf`, seed 0, ends at 26.8 (none), 18.3 (human, conservative), 27.5 (guide), 27.3 (model),
17.5 (shuffled) and 28.5 (oracle), with standard errors of 0.6 over test games, and in edge cases at -1.0, -3.8, -1.7,
-1.3, -3.5 and -1.7 (0.7): there the biased labels cost most too, and nobody drives well. One seed, no claim.

Deviations: environment, questions, thresholds and the rule of trust are ours, as the abstract names none.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.llm_hfbf.edge import CutIns
from palaestra.recipes.llm4rl.llm_hfbf.judge import written_judgement
from palaestra.recipes.llm4rl.llm_hfbf.program import CorrectFeedback, Feedback, people_of

CARD = pl.Card(
    title="LLM-HFBF: flagging and correcting biased human feedback",
    paper="arXiv:2503.22723",
    claim="Biased human feedback lowers the reward that an agent reaches; a language model that flags and "
    "corrects it, or gives the feedback itself, keeps what unbiased feedback reaches.",
    source="abstract (version 1: 28.472 without bias and 7.039 with conservative bias); environment, "
    "questions, thresholds and the rule of trust inferred",
    size=pl.Size(
        setting="a chat model without training gives or corrects feedback in continuous control of driving; "
        "average episodic reward"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "judges people's labels of segments",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "in arrays, as palaestra.control.Simulator says, of Gymnasium, or a parallel environment "
                "of PettingZoo",
                flag="--env FILE.py:NAME or --env gymnasium:ID",
                otherwise="a car follows another one",
            ),
        ),
        shows="corrected",
        off={"feedback": "human"},
        own={
            "endpoint": '{"biased": true, "corrected": 0.25}',
            "learner.games": 8,
            "games": 8,
            "calls": 8,
        },
    ),
    use="It helps where people label what a simulator does, some of them with a bias that a model can see in "
    "the numbers of a segment; where labels are right, look at `flagged`: the model's own bias comes in.",
    lacks=(
        "The paper's driving environment and its own edge cases were not run; the default is car following.",
        "A model is shown means of a segment's numbers, no video and no single steps.",
        "Without a model the default's judge is a rule that a large model wrote, who knew the simulator and "
        "the biases: it shows what good corrections bring, and not that a language model makes them.",
        "Of an environment of a library the model is told neither the name nor what its numbers mean, unless a "
        "description says so: `palaestra guide init`.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    goal: str = "",
    human: str = "conservative",
    feedback: Feedback = "corrected",
    weight: float = 0.5,
    potential: bool = False,
    calls: int = 500,
    segment: int = 10,
    steps: int = 60_000,
    games: int = 256,
    edge: str = "",
) -> CorrectFeedback:
    """`asked` judges the labels of `human`; `sim`, and `edge` with its edge cases, are FILE.py:NAME or
    gymnasium:ID, and `goal` says in words what is wanted there; `steps` are
    environment steps of an arm; see `CorrectFeedback`.
    """
    people_of(human)  # each of them is somebody
    hard: pl.control.Simulator | None = None if sim else CutIns()
    return CorrectFeedback(
        asked=asked,
        sim=pl.control.state_goal(
            pl.control.simulator_by_name(sim) if sim else pl.control.CarFollowing(), goal
        ),
        edge=pl.control.simulator_by_name(edge) if edge else hard,
        human=human,
        feedback=feedback,
        weight=weight,
        potential=potential,
        calls=calls,
        segment=segment,
        steps=steps,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    human: str = "conservative",
    feedback: Feedback = "corrected",
    weight: float = 0.5,
    potential: bool = False,
    calls: int = 500,
    segment: int = 10,
    steps: int = 60_000,
    games: int = 256,
) -> CorrectFeedback:
    """On car following, with the rule that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_judgement, name="written rule"),
        human=human,
        feedback=feedback,
        weight=weight,
        potential=potential,
        calls=calls,
        segment=segment,
        steps=steps,
        games=games,
    )
