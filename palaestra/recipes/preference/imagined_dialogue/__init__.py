"""Goal-directed dialogue by offline RL on imagined conversations: a language model imagines users and
whole talks with them, good ones and poor ones, and implicit language Q-learning (ILQL) finds in them an
agent that is better than those who talk there.

    imagine   profiles of users from the description of a task; of each several conversations with agents
              and users of several kinds; a critique, that may write one anew; a label of success in [0, 1]
    check     a dialogue in which the agent says what only the profile tells is left out; profiles, never
              single dialogues, are held out
    learn     actions are the agent's tokens, a state is the dialogue so far:
              L_Q = E (r + gamma V(s') - Q(s, a))^2           twins, V(s') still
              L_V = E |tau - 1(u < 0)| u^2                    u = min slow Q(s, a) - V(s), tau 0.7
              L_CQL = E -log softmax(Q(s, .))[a]              weight 0.1
              L_LM = E -log pi_beta(a | s)                    slow Q follow by Polyak, 0.005
    act       pi(a | s) ~ pi_beta(a | s) exp(w (Q(s, a) - V(s))),    w = `strength`

(arXiv:2311.05584; ILQL, arXiv:2206.11871.) tau above 1/2 lets V be that of the better actions in the
data, so that parts of several dialogues are joined; w 0 is behaviour cloning. Heads stand on the one
model, whose imitation makes it pi_beta; they are saved beside it in heads.safetensors with w, and
`palaestra eval` and `gateway` of a checkpoint act by them. Other programs that load the checkpoint get
pi_beta alone.

    palaestra train imagined-dialogue --data dialogues.jsonl --model DIR [strength=4] [user=DIR]
    palaestra train imagined-dialogue --model DIR imagine="endpoint(url='...',model='...')" goal="Find out ..."

dialogues.jsonl has a dialogue a row: `messages`, of which the assistant's are the agent's; `reward`, a
number for the whole or a list with one for each turn of the assistant; `profile`, what the user is like,
which the agent is not shown. `goal` describes the task in words; several tasks are the prompts of a file,
--data tasks.jsonl. The dialogues that are learned from lie in RUN/dialogues/dialogues.jsonl.

With `user`, a language model that plays held-out profiles, the exam "talks" gives the mean reward of the
agent as it acts and of pi_beta alone. The reward is what the labeller believes: it may be wrong of people,
and a persuasive agent may find that out. Keep tasks benign, and w, at most 16, small.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.preference.imagined_dialogue.ilql import (
    HEADS,
    ILQL,
    DialogueRewards,
    FollowAndAct,
    RecordedDialogue,
)
from palaestra.recipes.preference.imagined_dialogue.imagine import (
    BroughtDialogues,
    ImaginedDialogues,
)
from palaestra.recipes.preference.imagined_dialogue.talks import (
    DESCRIPTION,
    TalkExam,
)

TALKS = (
    [
        {"role": "user", "content": "I want to do something on Sunday."},
        {"role": "assistant", "content": "Do you like to be outdoors?"},
        {"role": "user", "content": "Not much."},
        {"role": "assistant", "content": "Then see the new museum."},
    ],
    [
        {"role": "user", "content": "What may I do on Sunday?"},
        {"role": "assistant", "content": "Walk up the hill."},
    ],
    [
        {"role": "user", "content": "Any plan for Sunday?"},
        {"role": "assistant", "content": "Are you often tired?"},
        {"role": "user", "content": "Never."},
        {"role": "assistant", "content": "Row on the lake."},
    ],
)

CARD = pl.Card(
    title="Zero-shot goal-directed dialogue via offline RL on imagined conversations",
    paper="arXiv:2311.05584",
    grade="B",
    claim="Offline RL on conversations that a language model imagines, suboptimal ones among them, makes an "
    "agent that reaches the goal of a dialogue better than imitation and than prompting that model.",
    source="abstract; ILQL's losses and acting by the catalogue's account of arXiv:2206.11871; prompts and "
    "constants are ours",
    size=pl.Size(
        setting="teaching and preference elicitation; sizes of generator and agent not known"
    ),
    task="tastes",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "messages",
                "messages",
                TALKS,
                "a whole dialogue, of which the assistant's messages are the agent's",
                when={"imagine": (None,)},
            ),
            pl.needs.NeededColumn(
                "reward",
                "any",
                ([0.0, 1.0], 0.2, 0.5),
                "a number for the whole dialogue, or one for each message of the assistant",
                when={"imagine": (None,)},
            ),
            pl.needs.NeededColumn(
                "profile",
                "text",
                (
                    "A quiet person who likes pictures and stays indoors.",
                    "Somebody with a bad knee who reads a lot.",
                    "A rower in search of company.",
                ),
                "what the user is like, which the agent is not shown",
                otherwise="no leak of it is looked for, and dialogues are held out one by one",
                when={"imagine": (None,)},
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "author",
                "imagine",
                "imagines users and dialogues of the task that `goal` or the prompts describe, and labels them",
                inert=None,
                otherwise="the file has the dialogues",
            ),
            pl.needs.NeededModel(
                "user",
                "user",
                "plays held-out profiles, with whom the agent talks where a run is measured",
                inert=None,
                otherwise="held-out dialogues are measured by their loss alone",
            ),
        ),
        shows="tilt",
        off={"strength": 0.0},
        own={"agent.schedule.prompts": 4, "agent.schedule.steps": 2},
    ),
    use="It helps where talks go on for several turns, nobody can be talked with while learning, and the "
    "dialogues differ in how well they went; where all are about as good, it is imitation.",
    lacks=(
        "In the built-in run values are learned too coarsely: acting by them pays no more than imitation.",
        "People as users, and the paper's tasks of teaching and of activities, were not measured.",
        "Prompting the author as the agent, and imitation of the best dialogues alone, are not run "
        "beside; the exam compares with imitation of all.",
        "Other programs that load a checkpoint, such as vLLM, do not act by the values.",
        "The slow copies are of the heads alone, on the hidden states of the model that learns.",
        "Imagining that was interrupted begins anew.",
    ),
)


def agent(
    strength: float = 4.0,
    gamma: float = 0.99,
    tau: float = 0.7,
    cql: float = 0.1,
    lm: float = 1.0,
    polyak: float = 0.005,
) -> pl.Recipe:
    """ILQL on the dialogues of the run's data."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(RecordedDialogue()),
        credit=DialogueRewards(),
        objective=ILQL(gamma, tau, cql, lm),
        update=FollowAndAct(strength, polyak),
        heads=HEADS,
    )


def build(
    imagine: pl.Source | None = None,
    goal: str = "",
    profiles: int = 32,
    dialogues: int = 4,
    critique: bool = True,
    leak: int = 6,
    user: pl.Source | None = None,
    turns: int = 6,
    strength: float = 4.0,
    gamma: float = 0.99,
    tau: float = 0.7,
    cql: float = 0.1,
    lm: float = 1.0,
    polyak: float = 0.005,
) -> pl.Pipeline:
    """`imagine` makes `dialogues` of each of `profiles` users of every task, with a `critique` or without.
    `goal` describes the task; "" = the prompts of the data do.
    `leak` words in a row of a profile, which the user has not told, leave a dialogue out; 0 = nothing
    does. `user` plays held-out profiles, for `turns` of the agent. `strength` is w; `gamma`, `tau`, `cql`,
    `lm` and `polyak` are ILQL's.
    """
    pl.check_bounds("strength", strength, least=0, most=16)
    pl.check_bounds("leak", leak, least=0)
    source = (
        ImaginedDialogues(imagine, goal, profiles, dialogues, critique, leak=leak)
        if imagine
        else BroughtDialogues(leak)
    )
    learns = agent(strength, gamma, tau, cql, lm, polyak)
    if user:
        learns = pl.vary(learns, evaluate={"talks": TalkExam(user, turns=turns)})
    return pl.Pipeline(
        parts={
            "dialogues": pl.Part(source),
            "agent": pl.Part(learns, data=pl.Output("dialogues", "dialogues")),
        }
    )


def embedded(
    imagine: pl.Source | None = None,
    goal: str = DESCRIPTION,
    user: pl.Source | None = None,
    strength: float = 8.0,
    cql: float = 0.01,
    polyak: float = 0.2,
    **options: Any,
) -> pl.Pipeline:
    """On users with six tastes, and 600 talks of agents that ask and recommend at random; the exam
    talks with a program that plays the users. With `imagine` on what that makes of the `goal`.
    """
    made = build(imagine, goal, user=user, strength=strength, cql=cql, polyak=polyak, **options)
    if imagine:
        return made
    learns = pl.vary(
        made.parts["agent"].runnable,
        evaluate={"talks": TalkExam(n=64)},
        schedule=pl.Schedule(prompts=32, steps=150),
        optimiser=pl.AdamW(lr=1e-3),
    )
    return replace(
        made, parts={**made.parts, "agent": replace(made.parts["agent"], runnable=learns)}
    )
