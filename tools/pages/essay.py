"""What the page about rewards shows beside its text: small examples, computed when it is written, and
what published results say.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra import catalogue
from palaestra.explanation.method import explain
from palaestra.explanation.trajectories import groups_from
from palaestra.ledger.standing import standing
from palaestra.rewards.manner import MannerAudit, audit_manner
from palaestra.rewards.user import UserReward
from palaestra.types import Message, Task
from tools.pages.survey_tables import measured, row_link

HEARERS = ("grpo", "rloo", "dr-grpo")
BONUS = ((1.0, 0.0, 0.0, 1.0), (0.1, 0.0, 0.0, 0.1))


def score(responses: list[str], answers: list[str], **fields: object) -> list[float]:
    return [
        float(answer in response) - 0.01 * len(response.split())
        for response, answer in zip(responses, answers, strict=True)
    ]


def essay_facts(evidence: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What the page's template is given; of `evidence`, rows with `about` ask about likeness."""
    likeness = [row["id"] for row in evidence if "about" in row]
    manners = example_manners()
    return {
        "heard": heard(),
        "source": inspect.getsource(score).strip(),
        "manners": [
            (manner, f"{manners.right[manner]:.2f}", f"{manners.wrong[manner]:.2f}")
            for manner in manners.right
        ],
        "finding": manners.findings[0],
        "evidence": [evidence_row(row) for row in evidence],
        "likeness": likeness,
        "shown": [name for name in likeness if stands(name) == "reproduced"],
    }


def heard() -> list[tuple[str, ...]]:
    """What methods make of two right answers among four, and of a small bonus where none is right."""
    rows: list[tuple[str, ...]] = []
    for method in HEARERS:
        groups = groups_from([list(g) for g in BONUS], None, None)
        found = explain(catalogue.recipe(method), groups)["advantages"]
        rows.append((method, *(", ".join(f"{x:.2f}" for x in group) for group in found)))
    return rows


def example_problems() -> list[dict[str, str]]:
    """Twenty sums, as lines of a data file."""
    return [
        {"prompt": f"{a} + {b} =", "answer": str(a + b)} for a in range(10, 14) for b in range(5)
    ]


def example_manners() -> MannerAudit:
    """What the page's own reward pays for manner."""
    tasks = [
        Task(
            id=str(i),
            prompt=(Message(role="user", content=row["prompt"]),),
            answer=row["answer"],
        )
        for i, row in enumerate(example_problems())
    ]
    return audit_manner("my_reward.py:score", UserReward(score), tasks)


def stands(method: str) -> str:
    return standing(catalogue.entry_of(method)).status


def evidence_row(row: Mapping[str, str]) -> tuple[str, ...]:
    """A question about rewards, and what the published result of a row says about it."""
    entry = catalogue.entry_of(row["id"])
    return row["asks"], row_link(entry), *measured(entry)
