"""World Knowledge Model: an agent plans with what is known of a task before it begins, and with what is known
of states like the present one.

    experts       games of training tasks: of your file, of the environment's oracle, or the shortest solved
                  one of the model itself
    experienced   imitates them, and then plays the same tasks itself
    knowledge     the experienced agent compares both games of each task in task knowledge (what is to be done,
                  which mistakes to avoid), and describes each state of the expert's in a sentence; (verb before,
                  sentence, verb after) is a record of the state base
    world         a model learns to write both from the task, and from what was done so far
    agent         a model imitates the experts' games with task knowledge behind the task; knowledge of states is
                  never in its prompt
    exam          held-out tasks are planned: `world` writes task knowledge before the first action; from the
                  second on it describes the state, the k most similar records are retrieved, those with the same
                  verb before are kept, and with P_know(v) the share of v among their next verbs

                      P(v) = weight * P_agent(v) + (1 - weight) * P_know(v),    P_agent = softmax over legal verbs

                  the likeliest verb is taken and the agent writes the rest of the action
                  (arXiv:2405.14205, section 3)

    palaestra train wkm --env FILE.py:CLASS --model DIR [trajectories=FILE.jsonl] [writer=DIR]

A row of trajectories is {"task": its id, its prompt or the text that it begins with, "actions": [...]}; they are
played again in your environment. The three trainings take all rows of their files. The run plays held-out tasks three
times, as the experienced agent alone, with task knowledge, and with both, and reports success, actions and impossible
actions a game. Its folder has the agent, the world model, and the texts as JSONL files (`knowledge/world.jsonl`,
`agent.jsonl`, `states.jsonl`).

On the built-in game knowledge brings the small model nothing: of 48 held-out tasks the experienced agent solved 58%,
and the agent with task knowledge 44%, with state knowledge too 44% (seed 0; intervals of 14 points either way).

The weight of 0.5 is ours: the paper's code has a default of 0.7 and calls it with 1, which switches knowledge of
states off; its k is 3000 of a large base.
"""

from collections.abc import Sequence
from typing import Any

import palaestra as pl
from palaestra.recipes.agents.wkm.program import (
    COMPARE,
    DESCRIBE,
    RECALL,
    PlanExam,
    PlanWithKnowledge,
    PlayExperts,
    Wording,
    WriteKnowledge,
)
from palaestra.recipes.agents.wkm.toy import WORDING, ShowWriting

CARD = pl.Card(
    title="World Knowledge Model agent planning",
    paper="arXiv:2405.14205",
    claim="An agent that plans with task knowledge and state knowledge, which its own model wrote from expert and "
    "sampled trajectories, solves more tasks with less trial and error and fewer impossible actions.",
    source="the abstract and the authors' code (zjunlp/WKM: world_knowledge_build.py, state_base_build.py, "
    "retrieve_action.py, eto_multi_main_probs.py); the prompts are ours",
    size=pl.Size(
        setting="Mistral-7B, Gemma-7B and Llama-3-8B with LoRA, lr 1e-4, 3 epochs; ALFWorld, WebShop and "
        "ScienceWorld, at most 40 steps in ALFWorld",
        model="mistral-7b",
    ),
    model="tiny-agent",
    task="house",
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.NeededModel(
                "writer",
                "writer",
                "writes knowledge from the games",
                inert=None,
                otherwise="the experienced agent itself writes",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "of one seat whose actions begin with a verb, and which can be solved",
                built_in=("house", "grid"),
            ),
        ),
        shows="verbs_changed",
        off={"weight": 1.0},
        own={
            "model": "tiny-agent",
            "task": "grid",
            "games": 6,
            "tasks": 3,
            "weight": 0.1,
            "imitate.schedule.prompts": 2,
            "imitate.schedule.steps": 2,
            "learn.schedule.prompts": 2,
            "learn.schedule.steps": 2,
        },
    ),
    use="It helps where tasks of one kind are solved in one way and the next verb follows from the state; where the "
    "agent makes no mistake, or similar states need different verbs, it helps nothing.",
    lacks=(
        "Agent and world model are tuned whole, or by the run's --lora as a whole; the paper's LoRA on q and v alone "
        "is not a setting of its own.",
        "Records are found by the words of their sentences, not by an embedding model.",
        "Knowledge acts where the run plays held-out tasks; `palaestra eval` and `chat` play the agent without it.",
        "One world model for several environments (unified training) is not there, and a weak one that guides a "
        "stronger agent only as far as both begin from one start.",
        "ALFWorld, WebShop and ScienceWorld are not built in; they come as an environment of yours.",
    ),
    grade="B",
)


def verb_list(given: str | Sequence[str]) -> tuple[str, ...]:
    """The verbs of "go,take" or of a list, each once."""
    words, verbs = given.split(",") if isinstance(given, str) else given, dict[str, str]()
    for word in filter(None, map(str.strip, words)):
        verbs.setdefault(word.casefold(), word)
    return tuple(verbs.values())


def build(
    trajectories: str = "",
    writer: pl.Source | None = None,
    games: int = 256,
    tasks: int = 64,
    tries: int = 4,
    weight: float = 0.5,
    k: int = 50,
    verbs: str | Sequence[str] = "",
    marker: str = "",
    compare: str = COMPARE,
    recall: str = RECALL,
    describe: str = DESCRIBE,
    characters: int = 1000,
    steps: int = 100,
    lr: float = 1e-5,
) -> PlanWithKnowledge:
    """`games` training tasks and `tasks` held-out ones. `verbs` are the legal ones, "go,take"; "" = those of the
    experts. A verb is written as the experts mostly write it. `marker` stands before the action in a reply, such as
    "Action:". `steps` of 16 games or texts in each of the three trainings.
    """
    return assemble(
        Wording(compare=compare, recall=recall, describe=describe, characters=characters),
        trajectories, writer, games, tasks, tries, weight, k, verbs, marker, steps, lr,
    )  # fmt: skip


def assemble(
    wording: Wording,
    trajectories: str,
    writer: pl.Source | None,
    games: int,
    tasks: int,
    tries: int,
    weight: float,
    k: int,
    verbs: str | Sequence[str],
    marker: str,
    steps: int,
    lr: float,
) -> PlanWithKnowledge:
    """The stages with their settings."""
    if min(games, tasks, tries, k, steps) < 1:
        raise pl.UserError("wkm: games, tasks, tries, k and steps are 1 or more")
    if not 0 <= weight <= 1:
        raise pl.UserError(f"wkm: weight is that of the agent, from 0 to 1, not {weight}")
    imitate = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
    return PlanWithKnowledge(
        n=games,
        tasks=tasks,
        experts=PlayExperts(games, trajectories, tries),
        writing=WriteKnowledge("", wording, writer),
        exam=PlanExam("", wording, tasks, weight, k, verb_list(verbs), marker),
        imitate=imitate,
        learn=imitate,
    )


def embedded(
    games: int = 48,
    tasks: int = 48,
    weight: float = 0.5,
    k: int = 20,
    steps: int = 12,
    lr: float = 1e-3,
    **options: Any,
) -> PlanWithKnowledge:
    """On the built-in game. The small model knows neither the game nor how to write knowledge, so it is shown some
    of both first.
    """
    given: dict[str, Any] = {
        "trajectories": "", "writer": None, "tries": 4, "verbs": "", "marker": "", **options,
    }  # fmt: skip
    made = assemble(
        WORDING, games=games, tasks=tasks, weight=weight, k=k, steps=steps, lr=lr, **given
    )
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowWriting()),
        schedule=pl.Schedule(prompts=16, steps=40),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    return pl.vary(made, begin=sft)
