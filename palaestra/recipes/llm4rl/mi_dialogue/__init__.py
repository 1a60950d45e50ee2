"""A dialogue manager of two levels that meta-learns over kinds of clients (arXiv:2506.19652): reinforcement
learning picks what to do, a language model says it. The problem is a simulated motivational interview, as a
benchmark of acts; nothing here is advice for anybody.

    master     every H turns  A = theta(turn, counts of the client's facts, feelings, new perspectives)
    options    every turn     a = psi_A(last act, the client's last three acts, turn, counts)
    PPO        on both; the master's reward is sum_j gamma^j r_(kH + j), its discount gamma^H
    MAML       theta_i = theta - inner grad L_i(theta) on dialogues with clients of kind i;
               theta <- Adam(mean_i grad L_i(theta_i)), the gradient at theta_i (order=first) or through it

Each level moves while the other one is held as it played.

    palaestra train mi-dialogue [--llm "endpoint(url='...',model='...')"]
    palaestra train mi-dialogue --env FILE.py:NAME [options=4 every=4 inner=0.3 episodes=5]

FILE.py:NAME has, or makes, `training` and `held_out`, two lists of simulators in arrays with discrete actions
or of functions that make an environment, each one kind of user; or is one simulator (FILE.py:NAME,
gymnasium:ID), where an agent adapts to the one that it learned from. A simulator may name the numbers of an
observation that the master sees, `overview`; and its acts may have words: `acts`, {NAME: what it does} in the
order of their numbers, `client_acts`, what users do or say, as texts, and in `facts` "client_act", the number of
what the user did last; `about` says what the dialogue is about. Then who is `asked` chooses and writes them as below.

By default four kinds of clients are learned from, and two others that mix what works for them are held out.
A client moves through four hidden phases (engage, focus, evoke, plan) when the act is one that works for its
kind in its phase; an act that comes too early brings sustain talk. Change talk pays 0.5, a new perspective
0.25, sustain talk -0.5, a phase 1, the end 2 and a turn -0.05.

arms.md in the run folder has, with equally many turns to learn from, `return` on held-out clients after one
round of adaptation (`episodes` dialogues, one inner step), and after_0, after_1, after_4 by rounds:

    none            one flat policy, PPO
    hierarchy       master and options, PPO
    meta alone      one flat policy, MAML
    guide           master and options, MAML
    shuffled        the same agent after as many dialogues with another kind of client than it is tested with
    language model  who is `asked` chooses every act, where acts have words
    other turns     the acts that it chose, in another order
    oracle          acts that work, by what nobody else sees: for simulators with `best_acts(state)`, as the default's

Where they have, and with `asked`, the model also writes one dialogue for each held-out kind
(dialogues.jsonl): an utterance for each chosen act, kept if the model names the same act when it reads it, else
a template after three tries; words of a crisis end the dialogue with a fixed text. The model never chooses the
policy's acts. It is the agent after one round of adaptation to the kind that speaks.

In policy/ of the run folder is the manager with two levels, before it adapts to anybody; in Python:

    from palaestra.recipes.llm4rl.mi_dialogue import adapt_manager, load_manager, observe_dialogue
    manager = load_manager("RUN/policy")
    manager(observe_dialogue([("open question", "fact")]))     {"act": 2, "option": 0, "name": "reflection"}

With a simulator of your own it is given the observations of the dialogue so far, one row for each turn. A round of
adaptation to one user, from recorded dialogues with them, makes a manager of their own:

    adapt_manager("RUN/policy", "dialogues.jsonl", out="anna")    {"turns": [["open question", "fact"], ...]} a line

`palaestra train mi-dialogue`, seed 0, has these returns on held-out clients before, after one and after four
rounds of adaptation: 3.20, 3.39, 3.59 (none), 2.78, 3.34, 3.82 (hierarchy), 2.70, 2.82, 3.10 (meta alone) and
2.67, 2.85, 3.40 (guide), with standard errors of 0.1 over test dialogues. Dialogues with the other kind of client
lead the same agent to 2.67, 2.57 and 2.04 (shuffled), so what it adapts to is the client. Acts that work would be
paid 6.64 (oracle). The written rule that stands for a language model has -1.05 (0.42) in eight dialogues, its acts
in another order 1.18 (1.08): it says `plan` late and then always, which a client that is not so far answers with
sustain talk. Here MAML earns less than PPO from the same turns, and two levels about as much as one: the paper's
ranking of its parts is not seen. One seed, no claim.

Deviations: rewards, kinds of clients, sizes and what both levels see are ours, as the abstract names none;
the last utterances are seen as acts, not as text.
"""

from typing import Any

import palaestra as pl
from palaestra.recipes.llm4rl.mi_dialogue.agent import Order
from palaestra.recipes.llm4rl.mi_dialogue.clients import family_by_name, simulated_clients
from palaestra.recipes.llm4rl.mi_dialogue.live import adapt_manager as adapt_manager
from palaestra.recipes.llm4rl.mi_dialogue.live import load_manager as load_manager
from palaestra.recipes.llm4rl.mi_dialogue.live import observe_dialogue as observe_dialogue
from palaestra.recipes.llm4rl.mi_dialogue.program import ManageDialogue
from palaestra.recipes.llm4rl.mi_dialogue.words import written_replies

CARD = pl.Card(
    title="Hierarchical RL + meta-learning dialogue manager",
    paper="arXiv:2506.19652",
    claim="A dialogue manager by hierarchical RL and meta-learning, which conditions a language model, adapts "
    "to different users from little data and earns more than the language model alone.",
    source="abstract; a review of the paper for the state spaces, the two levels and MAML, the authors' "
    "README for the ablations; rewards, clients and sizes inferred",
    size=pl.Size(
        setting="Mistral-Nemo Instruct writes what the manager chose; motivational interviews"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "chooses acts in an arm of its own, and writes the acts of some dialogues",
                otherwise="there is no such arm, and dialogues are acts alone",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of several kinds of users: `training` and `held_out`, lists of simulators in arrays with "
                "discrete actions, as palaestra.control.Simulator says; or one simulator",
                flag="--env FILE.py:NAME or --env gymnasium:ID",
                otherwise="simulated clients of a motivational interview",
            ),
        ),
        shows="adapted",
        off={"inner": 0.0},
        own={"endpoint": '{"act": "reflection"}', "learner.games": 2, "games": 4, "talks": 1},
    ),
    use="It helps where users differ in what works for them and a few dialogues with a new one can be had; "
    "where one policy can tell kinds of users apart as it talks, look whether flat PPO does as well.",
    lacks=(
        "The last utterances are seen as acts: no text is encoded, and nobody's words were read.",
        "Users of a simulator of your own say one of a list of texts, `client_acts`; none that talks freely is played "
        "with.",
        "By default who is asked is a rule that a large model wrote, so that arm says nothing of language "
        "models.",
        "Options are not tied to phases: which of them does what is learned.",
        "What follows a simulator's horizon is worth nothing, also where it only cuts a game.",
        "Rewards and clients are our reading; nothing is claimed of patients or of therapy.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    every: int = 4,
    options: int = 4,
    inner: float = 0.3,
    order: Order = "first",
    episodes: int = 5,
    steps: int = 24_000,
    games: int = 200,
    talks: int = 4,
) -> ManageDialogue:
    """`asked` chooses acts in `talks` dialogues and writes some; `sim` is FILE.py:NAME or gymnasium:ID;
    `steps` are turns of an arm; see `ManageDialogue`.
    """
    return ManageDialogue(
        asked=asked,
        clients=family_by_name(sim) if sim else simulated_clients(),
        every=every,
        options=options,
        inner=inner,
        order=order,
        episodes=episodes,
        steps=steps,
        games=games,
        talks=talks,
    )


def embedded(asked: pl.Source | None = None, **settings: Any) -> ManageDialogue:
    """With simulated clients, and replies of a rule that a large model wrote unless a model is `asked`."""
    return build(asked or pl.Scripted(written_replies, name="written rule"), **settings)
