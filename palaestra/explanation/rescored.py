"""Answers that a run keeps, judged again by another reward: what it would have paid for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.abilities import split_size
from palaestra.context import Context, RewardFn
from palaestra.explanation.recorded import episode_from, recorded_lines, task_from
from palaestra.rollout.collect import Score
from palaestra.types import Episode, Group, Task, Tasks, value_class

MOST_TASKS = 100_000  # of endless ones, that are looked through for those of a run


@value_class
class Rescored:
    """An answer under two rewards: the one that its run has learned from, with whatever the recipe
    made of it, and the other one. None = not scored, or nobody says what is solved.
    """

    step: int
    group: int
    sample: int
    task_id: str
    text: str
    reward: float | None
    solved: bool | None
    other: float | None
    other_solved: bool | None
    other_parts: Mapping[str, float] = field(default_factory=dict)
    error: str = ""  # why the other one gave nothing

    @property
    def moved(self) -> float:
        """From the run's reward to the other; 0 where one of them is missing."""
        return 0.0 if self.reward is None or self.other is None else self.other - self.reward


async def rescore(ctx: Context, judge: RewardFn, files: Sequence[Path]) -> list[Rescored]:
    """What a reward makes of the answers in rollout files. Episodes that failed are left out.

    Args:
        ctx: of the run's problem, whose tasks have what a reward may read beside the answer.
        judge: the other reward.
        files: of a step each.

    Raises:
        UserError: a file is none of rollouts, or the reward is none for these answers.
    """
    groups = {(file, n): xs for file in files for n, xs in answers_by_group(file).items()}
    tasks = tasks_by_id(ctx.bench.tasks, {xs[0]["task_id"] for xs in groups.values()})
    score, found = Score(reward=judge), list[Rescored]()
    for file in files:
        own = {n: xs for (place, n), xs in groups.items() if place == file}
        judged = await asyncio.gather(
            *(score(ctx, (file.stem, n), unscored(xs, tasks)) for n, xs in own.items())
        )
        found += [
            beside(line, e)
            for lines, group in zip(own.values(), judged, strict=True)
            for line, e in zip(lines, group.episodes, strict=True)
        ]
    return found


def answers_by_group(file: Path) -> dict[int, list[dict[str, Any]]]:
    """The lines of a rollout file by the group's number, without those of episodes that failed."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for line in recorded_lines(file):
        if not line["status"].startswith("error:"):
            groups.setdefault(line["group"], []).append(line)
    return groups


def tasks_by_id(tasks: Tasks, wanted: set[str]) -> dict[str, Task]:
    """The tasks of the training split that have these identities, as far as they are found."""
    size = split_size(tasks, "train")
    found: dict[str, Task] = {}
    for i in range(MOST_TASKS if size is None else size):
        if len(found) == len(wanted):
            break
        if (task := tasks.task("train", i)).id in wanted:
            found[task.id] = task
    return found


def unscored(lines: Sequence[Mapping[str, Any]], tasks: Mapping[str, Task]) -> Group:
    """The answers to a prompt as they were before they were judged. A task that is not among the
    given ones has the prompt and the answer that its lines tell, and no other field.
    """
    first = lines[0]
    return Group(
        task=tasks.get(first["task_id"]) or task_from(first),
        episodes=tuple(
            with_text(replace(episode_from(x)[0], reward=None), x["text"]) for x in lines
        ),
    )


def with_text(e: Episode, text: str) -> Episode:
    """The episode with what was said last as it was read: tokens alone also tell the mark of the
    end. `text` is that of all turns, the last one at its end.
    """
    spoken = [(r, s) for r in e.rows for s in r.segments if s.logp is not None]
    if not spoken:
        return e
    row, last = max(spoken, key=lambda x: x[1].turn)
    ends = (n for n in range(len(last.text), -1, -1) if text.endswith(last.text[:n]))
    own = text if len(spoken) == 1 else last.text[: next(ends)]
    segments = tuple(replace(s, text=own) if s is last else s for s in row.segments)
    return replace(e, rows=tuple(replace(r, segments=segments) if r is row else r for r in e.rows))


def beside(line: Mapping[str, Any], e: Episode) -> Rescored:
    """What its run said of an answer, and what was said of it now."""
    return Rescored(
        **{k: line[k] for k in ("step", "group", "sample", "task_id", "text", "reward", "solved")},
        other=e.reward.total if e.reward else None,
        other_solved=e.reward.solved if e.reward else None,
        other_parts=e.reward.parts if e.reward else {},
        error=str(e.facts.get("error", e.status)) if not e.ok else "",
    )


# ---- what differs


@value_class
class RewardChange:
    """What another reward changes, over the answers that both have scored.

    Args:
        answers, unscored: how many both have scored, and how many one of them has not.
        mean: of the run's reward and of the other.
        solved: how many are, of those of which both say it; `judged` is how many these are.
        now_wrong, now_right: of these, that the run called right, or wrong, and the other does not.
        groups, mixed: groups of two answers or more; in how many the rewards differ, by either.
        agreement: Kendall's tau-b of the two over pairs of answers to the same prompt, from -1 to
            1; None where one of them sees no difference in any pair.
    """

    answers: int
    unscored: int
    mean: tuple[float, float]
    judged: int
    solved: tuple[int, int]
    now_wrong: int
    now_right: int
    groups: int
    mixed: tuple[int, int]
    agreement: float | None


def change_of(found: Sequence[Rescored]) -> RewardChange:
    """What differs between the two rewards of some answers."""
    both = [x for x in found if x.reward is not None and x.other is not None]
    paid_2N = np.array([[x.reward for x in both], [x.other for x in both]], float)
    told = [x for x in both if None not in (x.solved, x.other_solved)]
    numbers: dict[tuple[int, int], list[int]] = {}
    for i, x in enumerate(both):
        numbers.setdefault((x.step, x.group), []).append(i)
    several = [paid_2N[:, g] for g in numbers.values() if len(g) > 1]
    pairs = [(g[:, i], g[:, j]) for g in several for i, j in combinations(range(g.shape[1]), 2)]
    order_P2 = np.array([np.sign(a - b) for a, b in pairs]).reshape(-1, 2)
    strict = float(np.sqrt(np.prod(np.abs(order_P2).sum(axis=0))))
    means = paid_2N.mean(axis=1) if both else np.zeros(2)
    mixed_G2 = np.array([np.ptp(g, axis=1) > 0 for g in several]).reshape(-1, 2)
    return RewardChange(
        answers=len(both),
        unscored=len(found) - len(both),
        mean=(float(means[0]), float(means[1])),
        judged=len(told),
        solved=(sum(x.solved is True for x in told), sum(x.other_solved is True for x in told)),
        now_wrong=sum(bool(x.solved and not x.other_solved) for x in told),
        now_right=sum(bool(x.other_solved and not x.solved) for x in told),
        groups=len(several),
        mixed=(int(mixed_G2[:, 0].sum()), int(mixed_G2[:, 1].sum())),
        agreement=float(np.prod(order_P2, axis=1).sum()) / strict if strict else None,
    )
