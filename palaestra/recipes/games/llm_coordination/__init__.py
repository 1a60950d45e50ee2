"""LLM-Coordination: does a model play well with a partner whose reward is its own? A study: nothing is
trained (arXiv:2310.03903).

Two agents play each game of pure coordination, in self-play and with partners that the model never played
with:

    direct   answers the game's question at once
    cac      the Cognitive Architecture for Coordination, three calls a turn
             memory         the rules, the state in words, its own last actions
             partner model  what does the partner know, need and do next?
             plan           an action, by what was said of the partner
             verification   is it possible and safe? Else plan again
             grounding      to the legal action that is named, else the most similar one, else one at random

    palaestra study llm-coordination --model DIR --task collab-escape
    palaestra study llm-coordination --model DIR --task collab-capture partner="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra study llm-coordination --model DIR --task "spiel:hanabi(players=2)" games=4
    palaestra study llm-coordination --model DIR questions=FILE.jsonl games=0
    palaestra study llm-coordination --model DIR --env FILE.py:CLASS

Numbers: the score with each partner, and its spread over partners ("partner_spread"); what is lost with others
(self-play less the mean over other partners, by deal); what CAC gains over direct (same partner and deal); the
share of actions that it changes ("moves_changed": in the same place the agent is asked the game's own question
too, and once more for what chance alone changes); questions with options that are answered right, by type, each
asked three times at temperature 0.6 and top-p 0.9, beside answers at random.

A row of FILE.jsonl has `prompt`, `options`, `answer` (a letter or a text) and `type`, for instance "theory of
mind". Without a file questions are made of the game in rooms that is played.

To train on these games, both seats are the policy's: palaestra train grpo --task collab-escape --model DIR.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.games.llm_coordination.program import LlmCoordination
from palaestra.recipes.games.llm_coordination.toy import ShowCoordination

SMALL = "collab-escape(turns=8,brief=True,illegal='never')"
TINY = "collab-capture(turns=2,brief=True,illegal='never')"

CARD = pl.Card(
    title="LLM-Coordination benchmark + CAC",
    paper="arXiv:2310.03903",
    claim="Agents of a strong model that think of their partner coordinate as well as reinforcement learning where "
    "common sense about the environment decides, and keep their score with partners that they never met; "
    "questions about what a partner thinks and about joint plans are harder for models than those about the "
    "environment.",
    source="abstract; games in rooms and the order of calls as the catalogue has them, and read in the paper's "
    "program (eric-ai-lab/llm_coordination), of which nothing is copied",
    size=pl.Size(
        setting="GPT-4-turbo, GPT-4o, GPT-3.5-turbo and Mixtral; Overcooked, Hanabi, Collab Capture and Collab "
        "Escape; 198 questions",
    ),
    task=SMALL,
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.chat_model(
                "partner",
                "partner",
                "plays the other seats in games of its own, answering at once",
                otherwise="the partners are the best plan's player, where the game has one, and random actions",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "game",
                "of two seats or more that are paid alike",
                built_in=("collab-escape", "collab-capture", SMALL, TINY),
                flag="--task collab-capture, --task spiel:hanabi, or --env FILE.py:CLASS",
            ),
        ),
        shows="partner_spread",
        off={"partners": False},
        own={"task": TINY, "games": 2, "asked": 3, "trials": 1},
    ),
    use="It shows whether a model coordinates with a partner that it did not play with, and whether thinking of the "
    "partner first pays; with a model that does not follow the form of a reply most actions are drawn at "
    "random, which the table shows.",
    lacks=(
        "Overcooked is not among the games: its package is a source distribution. Bring it as a class of yours "
        "with --env.",
        "The 198 questions of the paper are not here; those that are made here ask about the two games in rooms. "
        "Bring others with questions=FILE.jsonl.",
        "No agent of multi-agent reinforcement learning is trained beside the models; the best joint plan, solved "
        "exactly, stands above them instead.",
        "The built-in model is too small for the games: shown 100 steps of Collab Escape it won none of 48 games, with "
        "and without thinking, changed 69% of its actions by thinking and 66% when asked the same twice, and answered "
        "questions as often right as at random (one seed).",
        "The memory of an agent is the rules, what the game shows, and its own last eight actions; nothing is "
        "kept from game to game.",
    ),
    grade="B",
)


def build(
    partner: pl.Source | None = None,
    cac: bool = True,
    partners: bool = True,
    questions: str = "",
    games: int = 16,
    asked: int = 198,
    trials: int = 3,
    replans: int = 1,
    temperature: float = 0.6,
    top_p: float = 0.9,
) -> LlmCoordination:
    """`games` of each agent with each partner; `asked` questions at most, each `trials` times; 0 = none."""
    return LlmCoordination(
        cac=cac,
        partner=partner,
        partners=partners,
        questions=questions,
        tasks=games,
        problems=asked,
        samples=trials,
        replans=replans,
        temperature=temperature,
        top_p=top_p,
    )


def embedded(games: int = 8, asked: int = 48, steps: int = 100, **options: Any) -> pl.Pipeline:
    """The built-in model, which is shown the best plan of Collab Escape first, for `steps` steps."""
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowCoordination()),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
        schedule=pl.Schedule(prompts=8, steps=steps),
    )
    study = build(games=games, asked=asked, **options)
    return pl.Pipeline(
        parts={
            "player": replace(pl.warm(sft), task=TINY),  # which takes less to measure
            "study": pl.Part(study, model=pl.Output("player"), task=SMALL),
        }
    )
