"""Answers that a run keeps, judged again by another reward: what it would have paid for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from palaestra.abilities import split_size
from palaestra.context import Context, RewardFn
from palaestra.explanation.recorded import episode_from, recorded_lines, task_from
from palaestra.rollout.collect import Score
from palaestra.store.rollouts import reference_text, sampled_turns
from palaestra.types import Episode, Group, Task, Tasks, value_class

NUMBER = re.compile(r"\d+$")
LEAST_GAP = 1e-9  # from which on rewards differ, as `Mixed` has it
MOST_MARK = 64  # characters of the mark that ends a turn, which its text leaves out


@value_class
class RewardPair:
    """An answer under two rewards: the one that its run has learned from, with whatever the recipe
    made of it, and the other one. None = not scored, or nobody says what is solved.

    Args:
        part: of a pipeline, whose parts count their own steps; "" of other runs.
        other_parts: what the other reward is made of.
        error: why the other one gave nothing.
        whole: whether the problem was found again; else the reward had its prompt and its answer
            alone, and no other column of the data.
    """

    part: str
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
    error: str = ""
    whole: bool = True

    @property
    def difference(self) -> float:
        """Of the other reward from the run's; 0 where one of them is missing."""
        return 0.0 if self.reward is None or self.other is None else self.other - self.reward


@value_class
class RewardComparison:
    """What another reward changes, over the answers that both have scored.

    Args:
        answers: how many these are.
        unscored, unscored_now: answers that the run, or the other reward, has given nothing.
        mean: of the run's reward and of the other; None where there are no answers.
        judged, solved: answers of which both say whether they are solved; how many are, by either.
        now_wrong, now_right: of these, that the run called right, or wrong, and the other does not.
        groups, mixed: groups of two answers or more; in how many the rewards differ, by either.
        agreement: Kendall's tau-b of the two over pairs of answers to the same prompt, from -1 to
            1; None where one of them sees no difference in any pair.
        bare: problems of which the other reward had the prompt and the answer alone.
    """

    answers: int
    unscored: int
    unscored_now: int
    mean: tuple[float, float] | None
    judged: int
    solved: tuple[int, int]
    now_wrong: int
    now_right: int
    groups: int
    mixed: tuple[int, int]
    agreement: float | None
    bare: int


@value_class
class Rescoring:
    """Answers of a run under another reward. `notes`: what is to be known of them, a line each."""

    pairs: Sequence[RewardPair]
    notes: Sequence[str] = ()

    @property
    def table(self) -> pa.Table:
        """A row for each answer, in the columns of `RewardPair`; the parts of the reward by name."""
        return pa.Table.from_pylist(
            [{**asdict(p), "other_parts": dict(p.other_parts)} for p in self.pairs]
        )

    @property
    def comparison(self) -> RewardComparison:
        return compare_rewards(self.pairs)


async def rescore(
    ctx: Context, judge: RewardFn, files: Sequence[Path], part: str = ""
) -> list[RewardPair]:
    """What a reward makes of the answers in rollout files. Episodes that failed are left out.

    Args:
        ctx: of the run's problem, whose tasks have what a reward may read beside the answer.
        judge: the other reward.
        files: of a step each.
        part: of a pipeline, that the files are of.

    Raises:
        UserError: a file is none of rollouts, or the reward is none for these answers.
    """
    recorded = {file: answers_by_group(file) for file in files}
    wanted = {xs[0]["task_id"] for groups in recorded.values() for xs in groups.values()}
    problems, pairs, score = Problems(ctx.bench.tasks, wanted), list[RewardPair](), Score(judge)
    for file, lines in recorded.items():
        tasks = {n: problems.find(xs[0]) for n, xs in lines.items()}
        groups = await asyncio.gather(
            *(
                score(ctx, (part, file.stem, n), unscored_group(xs, tasks[n] or task_from(xs[0])))
                for n, xs in lines.items()
            )
        )
        pairs += [
            pair_rewards(line, e, part, tasks[n] is not None)
            for (n, xs), group in zip(lines.items(), groups, strict=True)
            for line, e in zip(xs, group.episodes, strict=True)
        ]
    return pairs


def answers_by_group(file: Path) -> dict[int, list[dict[str, Any]]]:
    """The lines of a rollout file by the group's number, without those of episodes that failed."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for line in recorded_lines(file):
        if not line["status"].startswith("error:"):
            groups.setdefault(line["group"], []).append(line)
    return groups


class Problems:
    """The tasks of a training split, by what rollouts say of them. Of tasks that come to an end
    those that are `wanted` are kept, by identity.
    """

    def __init__(self, tasks: Tasks, wanted: Collection[str]):
        self.tasks, self.wanted = tasks, set(wanted)

    def find(self, line: Mapping[str, Any]) -> Task | None:
        """The problem of a line; None where there is none of this identity with its prompt and its
        answer, as of data that have changed since, or of a recipe that asks otherwise.
        """
        task = self.by_id.get(line["task_id"]) or self._numbered(line["task_id"])
        if task is None or reference_text(task.answer) != line["answer"]:
            return None
        return task if all(m.shown in (line["prompt"] or "") for m in task.prompt) else None

    @cached_property
    def by_id(self) -> dict[str, Task]:
        """Of tasks that come to an end."""
        tasks_by_id: dict[str, Task] = {}
        for i in range(split_size(self.tasks, "train") or 0):
            if len(tasks_by_id) == len(self.wanted):
                break
            if (task := self.tasks.task("train", i)).id in self.wanted:
                tasks_by_id[task.id] = task
        return tasks_by_id

    def _numbered(self, identity: str) -> Task | None:
        """Of endless tasks, whose identities end with their number."""
        number = NUMBER.search(identity)
        if number is None or split_size(self.tasks, "train") is not None:
            return None
        task = self.tasks.task("train", int(number.group()))
        return task if task.id == identity else None


def unscored_group(lines: Sequence[Mapping[str, Any]], task: Task) -> Group:
    """The answers to a prompt as they were before they were judged."""
    episodes = (restore_texts(episode_from(x)[0], x["text"] or "") for x in lines)
    return Group(task=task, episodes=tuple(replace(e, reward=None) for e in episodes))


def restore_texts(e: Episode, text: str) -> Episode:
    """The episode with what was sampled as it was read: tokens alone also tell the mark of a turn's
    end. `text` has the turns in the order of rows, with a line break between them.
    """
    turns = list(sampled_turns(e))
    if len(turns) == 1 and len(turns[0]) == 1:
        return _with_texts(e, {id(turns[0][0]): text})
    texts: dict[int, str] = {}
    at = 0
    for turn in turns:
        own = "".join(s.text for s in turn)
        kept = _kept(own, text, at, "" if turn is turns[-1] else "\n")
        if kept is None:  # a tokenizer whose tokens read otherwise one by one: as they read, then
            return e
        last = turn[-1]
        texts[id(last)] = last.text[: max(0, len(last.text) - len(own) + kept)]
        at += kept + 1
    return _with_texts(e, texts)


def _kept(own: str, text: str, at: int, end: str) -> int | None:
    """How many of a turn's characters stand in a text from a place on, up to `end`, "" that of the
    text; None where they do not.
    """
    for n in range(len(own), max(0, len(own) - MOST_MARK) - 1, -1):
        if text.startswith(own[:n], at) and text[at + n : at + n + 1] == end:
            return n
    return None


def _with_texts(e: Episode, texts: Mapping[int, str]) -> Episode:
    """With other texts of some segments, by their ids."""
    segments = [
        tuple(replace(s, text=texts.get(id(s), s.text)) for s in r.segments) for r in e.rows
    ]
    rows = tuple(replace(r, segments=own) for r, own in zip(e.rows, segments, strict=True))
    return replace(e, rows=rows)


def pair_rewards(line: Mapping[str, Any], e: Episode, part: str, whole: bool) -> RewardPair:
    """What its run said of an answer, and what was said of it now."""
    names = ("step", "group", "sample", "task_id", "text", "reward", "solved")
    return RewardPair(
        **{k: line[k] for k in names},
        part=part,
        other=e.reward.total if e.reward else None,
        other_solved=e.reward.solved if e.reward else None,
        other_parts=e.reward.parts if e.reward else {},
        error=str(e.facts.get("error", e.status)) if not e.ok else "",
        whole=whole,
    )


# ---- what differs


def compare_rewards(pairs: Sequence[RewardPair]) -> RewardComparison:
    """What differs between the two rewards of some answers."""
    both = [x for x in pairs if x.reward is not None and x.other is not None]
    paid_2N = np.array([[x.reward for x in both], [x.other for x in both]], float)
    known = [x for x in both if None not in (x.solved, x.other_solved)]
    numbers: dict[tuple[str, int, int], list[int]] = {}
    for i, x in enumerate(both):
        numbers.setdefault((x.part, x.step, x.group), []).append(i)
    several = [paid_2N[:, g] for g in numbers.values() if len(g) > 1]
    gaps_P2 = np.array(
        [g[:, i] - g[:, j] for g in several for i, j in combinations(range(g.shape[1]), 2)]
    ).reshape(-1, 2)
    order_P2 = np.where(np.abs(gaps_P2) > LEAST_GAP, np.sign(gaps_P2), 0.0)
    strict = float(np.sqrt(np.prod(np.abs(order_P2).sum(axis=0))))
    mixed_G2 = np.array([np.ptp(g, axis=1) > LEAST_GAP for g in several]).reshape(-1, 2)
    return RewardComparison(
        answers=len(both),
        unscored=sum(x.reward is None for x in pairs),
        unscored_now=sum(x.other is None for x in pairs),
        mean=(float(paid_2N[0].mean()), float(paid_2N[1].mean())) if both else None,
        judged=len(known),
        solved=(sum(x.solved is True for x in known), sum(x.other_solved is True for x in known)),
        now_wrong=sum(bool(x.solved and not x.other_solved) for x in known),
        now_right=sum(bool(x.other_solved and not x.solved) for x in known),
        groups=len(several),
        mixed=(int(mixed_G2[:, 0].sum()), int(mixed_G2[:, 1].sum())),
        agreement=float(np.prod(order_P2, axis=1).sum()) / strict if strict else None,
        bare=len({(x.part, x.task_id) for x in pairs if not x.whole}),
    )
