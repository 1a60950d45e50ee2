"""The guard: a head for each class on a language model, its loss, and its F1."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import palaestra as pl

GUARD = "guard"
HEAD = "flag_"


def heads_of(classes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{HEAD}{c}" for c in classes)


def labels_of(task: pl.Task, classes: Sequence[str]) -> tuple[float, ...]:
    """1 for each class that the column `labels` names. Raises UserError for what is no class."""
    given: Any = task.meta.get("labels")
    if given is None:
        raise pl.UserError(
            f"duoguard: task {task.id!r} has no labels; give each row the list of its classes, "
            '"labels": [] where it has none'
        )
    if isinstance(given, Mapping):  # true or false by class
        given = [c for c, there in given.items() if pl.needs.truth_of(there)]
    if not isinstance(given, str | list | tuple):
        raise pl.UserError(
            f"duoguard: the labels of task {task.id!r} are {given!r}; give the list of its classes"
        )
    named = {str(x) for x in ([given] if isinstance(given, str) else given)} - {""}
    if unknown := sorted(named - {*classes}):
        raise pl.UserError(
            f"duoguard: task {task.id!r} has the label {unknown[0]!r}; name all classes, such as "
            f'classes="{",".join((*classes, unknown[0]))}"'
        )
    return tuple(float(c in named) for c in classes)


def pairwise_loss(score_BK: Tensor, label_BK: Tensor) -> Tensor:
    """[B] ln(1 + sum of e^s over the classes that are not there) + ln(1 + sum of e^-s over those that are)."""
    zero_B1 = torch.zeros_like(score_BK[:, :1])
    there = label_BK > 0.5
    absent = torch.cat([zero_B1, score_BK.masked_fill(there, -torch.inf)], 1)
    present = torch.cat([zero_B1, (-score_BK).masked_fill(~there, -torch.inf)], 1)
    return absent.logsumexp(1) + present.logsumexp(1)


@pl.stage
class PairwiseLabels(pl.Algebra):
    """`pairwise_loss` of the heads at a row's marker, mean over rows."""

    classes: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        return heads_of(self.classes)

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        score_BK = torch.stack([(out[h] * batch["marker"]).sum(1) for h in self.needs], 1)
        label_BK = torch.stack([batch[f"target_{c}"] for c in self.classes], 1)
        loss = pairwise_loss(score_BK, label_BK).sum() / batch.n_rows
        flagged = (score_BK > 0).any(1) == (label_BK > 0.5).any(1)
        return loss, {"labelled": flagged.to(loss).sum() / batch.n_rows}


def text_episode(
    ctx: pl.Context, text: str, labels: Sequence[float], classes: Sequence[str]
) -> pl.Episode:
    """A text as the guard reads it, with its labels as the parts of its reward."""
    made = pl.rollout.document_episode(ctx, GUARD, text, 0.0)
    parts = dict(zip(classes, labels, strict=True))
    return replace(made, reward=pl.Reward(total=0.0, judged=False, parts=parts))


async def guard_scores(ctx: pl.Context, texts: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """[N, K] what the guard says of texts, before the sigmoid. Raises Fault where it says no number."""
    if not texts:
        return np.zeros((0, len(classes)))
    none = (0.0,) * len(classes)
    episodes = tuple(replace(text_episode(ctx, t, none, classes), reward=None) for t in texts)
    heads = heads_of(classes)
    group = pl.Group(task=pl.Task(id="texts"), episodes=episodes)
    read = await pl.Learned(GUARD, heads)(ctx, group)
    for x in read:
        if isinstance(x, pl.Fault):
            raise x
    return np.array(
        [[x.parts[f"{GUARD}/{h}"] for h in heads] for x in read if isinstance(x, pl.Reward)]
    )


def f1_of(flagged: Sequence[bool], harmful: Sequence[bool]) -> float:
    """2 TP / (2 TP + FP + FN); 1 where nothing is harmful and nothing flagged."""
    hits = sum(f and h for f, h in zip(flagged, harmful, strict=True))
    wrong = sum(f != h for f, h in zip(flagged, harmful, strict=True))
    return 2 * hits / (2 * hits + wrong) if hits or wrong else 1.0


async def guard_numbers(
    ctx: pl.Context, tasks: Sequence[pl.Task], classes: Sequence[str]
) -> dict[str, float]:
    """The guard's F1 on texts, that of each `domain` where there are several, and the share it flags."""
    texts = [pl.tasks.plain_question(t) for t in tasks]
    scores_NK = await guard_scores(ctx, texts, classes)
    flagged = [bool((s_K > 0).any()) for s_K in scores_NK]
    harmful = [any(labels_of(t, classes)) for t in tasks]
    domains = list(dict.fromkeys(t.domain for t in tasks))
    numbers = {"F1": f1_of(flagged, harmful), "flagged": float(np.mean(flagged))}
    for d in domains if len(domains) > 1 else ():
        at = [i for i, t in enumerate(tasks) if t.domain == d]
        numbers[f"F1 {d}"] = f1_of([flagged[i] for i in at], [harmful[i] for i in at])
    return numbers


@pl.stage
class GuardExam:
    """An evaluator: `guard_numbers` of held-out texts."""

    classes: tuple[str, ...]
    tasks: int = 256

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        return await guard_numbers(ctx, tasks, self.classes) if tasks else {}


def guard_learner(classes: tuple[str, ...], lr: float) -> pl.Learner:
    return pl.Learner(
        credit=pl.credit.Own(GUARD, pl.Rate(targets=classes)),
        objective=PairwiseLabels(classes),
        heads=heads_of(classes),
        optimiser=pl.AdamW(lr=lr),
    )
