"""Multi-Agent Evolve: one model proposes questions, solves them and judges both, and learns from its own
verdicts in all three roles. No answer of the data is read.

For each problem that is drawn, the reference:

    the proposer writes a question, with probability `inspired` after reading the reference, else from nothing
    the judge rates it,        V_Q in [0, 1]
    V_Q >= 0.7: the question is kept, and the solver answers it `n` times; else it answers the reference
    the judge rates every answer, V_A in [0, 1]

    R_proposer = (V_Q + D + F) / 3,   D = 1 - mean V_A, and 0 where the question is not kept
    R_solver   = (V_A + F) / 2,       R_judge = F
    A = (R - mean of the role in the batch) / std of the role in the batch,    PPO's clipping, no KL

F is the form: 1 where the role's tags stand there once, 0.5 where in several pairs, else 0; of a solver
without tags to write, whether it states an answer. A score s from 1 to 10 is (s - 1) / 9. A rating that
cannot be read, or that failed, is 0.5; a reply without a question earns its proposer 0. `difficulty`
"threshold" pays D = 1 where mean V_A < 0.7, else 0, as the released code may (arXiv:2510.23595;
ulab-uiuc/multi-agent-evolve-clean: reward_managers.py).

Kept questions go into a store of 10,000, which is part of the checkpoint. With probability `stored` a
reference is one of them, else the next problem of the data. The judge is paid for form alone, so nothing
ties its ratings to the truth. Where the solver answered a problem of the data that has an answer,
"part/truth" is the share of right answers and "part/agreement" that of ratings (>= 0.5) that agree with it:
stop where it falls. Ratings that cannot be read are left out there; "part/unread" is the share of questions
and ratings that cannot be read.
"""

from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.games.multi_agent_evolve.roles import (
    MOST,
    Difficulty,
    PlayRoles,
    RoleForm,
    TaggedRoles,
    TaughtRoles,
    own_task,
)

CARD = pl.Card(
    title="Multi-Agent Evolve: proposer, solver, judge",
    paper="arXiv:2510.23595",
    claim="A model that proposes, solves and judges questions of its own improves without answers written by "
    "people.",
    source="abstract, released code (ulab-uiuc/multi-agent-evolve-clean: reward_managers.py, scripts/selfplay) "
    "and a public review",
    size=pl.Size(
        setting="Qwen2.5-3B-Instruct, batch 16, mini-batch 8, 5 answers a question, temperature 1, lr 1e-6",
        model="qwen2.5-3b",
        prompts=16,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(
                pl.needs.ANSWER,
                meaning="the right answer, which trains nothing and audits the judge (part/agreement)",
                otherwise="the judge is not audited",
            ),
        ),
        shows="role_shift",
        off={"apart": False},
        own={"schedule.prompts": 3, "collect.n": 2, "max_tokens": 12},
    ),
    use="It helps an instruct model that judges better than it solves, where questions are many and answers are "
    "not written; a judge that guesses teaches nothing, so look at part/agreement where it is logged.",
    lacks=(
        "The judge is no better than its start: it is trained for form alone, as in the paper.",
        "The built-in model's ratings are nearly coins, so its run shows the roles at work and no gain: 20 steps "
        "moved held-out accuracy from 20.9% to 19.5% (512 problems, one seed, within its error).",
        "Where every question is kept, as in that run, no problem of the data is answered and the judge is not "
        "audited.",
        "Solver and judge answer the question of the step, not a uniform mixture of the store.",
        "Kept questions are compared by their text alone, so near duplicates stay in the store.",
    ),
    grade="B",
)


@pl.stage
class References:
    """Problems of the data in their order, of which each is with probability `stored` replaced by a
    kept question, where there are some.
    """

    stored: float = 0.5

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, after = pl.Shuffled()(ctx, key, n, state)
        kept, rng = state.get("questions", []), pl.rng_of((*key, "stored"))
        for i, task in enumerate(tasks):
            drawn, at = rng.random() < self.stored, rng.random()
            if kept and drawn:
                tasks[i] = own_task(task, kept[int(at * len(kept))])
        return tasks, after


@pl.declare(reads=("kept_question",))
@pl.stage
class KeepQuestions:
    """Kept questions go into the state of the draw, each once, the last `most` of them."""

    most: int = MOST

    def __call__(self, seen: pl.Groups, examples: Any, state: pl.State) -> pl.State:
        new = [e.facts.get("kept_question") for g in seen for e in g.episodes]
        kept = [*state.get("questions", []), *(q for q in new if q)]
        return {**state, "questions": list(dict.fromkeys(kept))[-self.most :]}


def role_of(table: pl.Table, episode: int) -> str:
    """The role in which an episode was played."""
    return str(table.episodes[episode].facts.get("agent", ""))


@pl.declare(reads=("agent",))
@pl.stage
class WhitenByRole:
    """(R - mean) / std over the episodes of a role in the batch, 0 where all are equal; `apart` False:
    over all roles together. "role_shift" is how far the two are from one another, by token.
    """

    apart: bool = True

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        together = pl.Scale("batch", ddof=0)(pl.Center("batch")(x, table), table)
        own = pl.Scale(role_of, ddof=0)(pl.Center(role_of)(x, table), table)
        used = own if self.apart else together
        shift = pl.Values(level=used.level, x_N=np.abs(used.x_N - together.x_N))
        table.track("role_shift", shift)
        return used


def build(
    inspired: float = 0.5,
    stored: float = 0.5,
    difficulty: Difficulty = "linear",
    filtered: bool = True,
    apart: bool = True,
    form: RoleForm = TaggedRoles(),
) -> pl.Recipe:
    """`filtered` False keeps every question. `apart` False whitens the pay of all roles together."""
    return pl.vary(
        pl.recipe("grpo"),
        draw=References(stored),
        collect=PlayRoles(inspired=inspired, difficulty=difficulty, filtered=filtered, form=form),
        observe=KeepQuestions(),
        credit=pl.chain(WhitenByRole(apart)),
        objective=pl.Clipped(reduce="tokens"),
        schedule=pl.Schedule(prompts=16),
        instruction="Put your final answer between <answer> and </answer>.",
    )


def embedded(form: RoleForm = TaughtRoles(), inspired: float = 0.0, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose small model knows no tags and writes questions from nothing."""
    made = build(form=form, inspired=inspired, **options)
    return pl.vary(made, schedule=pl.Schedule(prompts=6, steps=20))
