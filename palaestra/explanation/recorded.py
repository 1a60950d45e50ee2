"""A recorded group of answers under a method: the weight that it gives each token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.explanation.given import credit_groups, prepare_context, token_weights
from palaestra.explanation.reading import (
    UNUSED_ADVANTAGES,
    dropped_groups_remark,
    other_links_remark,
    sampled_remark,
)
from palaestra.method import Recipe
from palaestra.models.load import find, load
from palaestra.pictures import Picture, by_digest, pictures_in
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.trust import check_code
from palaestra.settings import overrides
from palaestra.settings.fields import Settings, Use, setting_names
from palaestra.sounds import sound_of
from palaestra.store.columns import SCHEMA, sampled_from
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task, value_class
from palaestra.values import from_toml

READ_COLUMNS = {
    "group",
    "task_id",
    "domain",
    "prompt",
    "status",
    "muted",
    "reward",
    "facts",
    "rows",
}  # columns of rollouts


@value_class
class Answer:
    """What a policy said and what a method makes of it. Tokens of others are left out."""

    tokens: Sequence[str]
    weights: Sequence[float]
    reward: float
    advantage: Sequence[float]


@value_class
class Explained:
    """A group under a method."""

    method: str
    prompt: str
    answers: Sequence[Answer]
    within: bool = False  # the credit may differ within an answer
    notes: Sequence[str] = ()

    def json(self) -> dict[str, Any]:
        credit = lambda xs: list(xs) if self.within else next(iter(xs), 0.0)
        return {
            "prompt": self.prompt,
            "rewards": [[a.reward for a in self.answers]],
            "advantages": [[credit(a.advantage) for a in self.answers]],
            "token_weights": [[list(a.weights) for a in self.answers]],
            "tokens": [[list(a.tokens) for a in self.answers]],
            "notes": list(self.notes),
        }


# ---- from a run folder


def explain_rollouts(
    method: str, recipe: Recipe, place: Path, group: int | None = None
) -> Explained:
    """A group of a recorded batch, with the whole batch credited as the method does it.

    `place` is a run folder, of which the last step is read, or one of its rollout files. `group` is
    its number in the file; None = the one whose rewards differ most. Raises UserError where there
    is none such.
    """
    file, settings = source(place)
    groups, numbers, texts = read_recorded(file)
    total = sampled_from(file)
    bench, _ = setup.bench_of(settings, judged=True)
    model = load(settings.model, dtype=settings.precision)
    ctx = prepare_context(
        recipe, RunContext(bench=bench, seed=settings.seed, models={"policy": model}, drive=train)
    )
    credited = credit_groups(recipe, ctx, groups)
    by_example, unused = token_weights(credited, ctx)
    weights: dict[int, Any] = {}
    for e, w in zip(credited.examples, by_example, strict=True):  # a row may stand in several pairs
        weights[id(e.row)] = weights.get(id(e.row), 0.0) + w
    credit = {
        id(e.row): e.columns.get("advantage", e.columns.get("sign", 1.0)) for e in credited.examples
    }
    if group is not None and group not in numbers:
        which = f"it has {len(groups)}, from 0" if total is None else f"it holds {numbers}"
        raise UserError(f"{file} has no group {group}; {which}")
    spread = [np.var([e.total for e in g.valid] or [0.0]) for g in groups]
    g = int(np.argmax(spread)) if group is None else numbers.index(group)
    ranked = sorted(groups[g].valid, key=lambda e: -e.total)
    return Explained(
        method=method,
        prompt="\n".join(m.content for m in groups[g].task.prompt),
        answers=[_answer(e, weights, credit, texts) for e in ranked],
        within=credited.within,
        notes=[
            *other_run(recipe, place),
            *dropped_groups_remark(recipe.pool, groups),
            *([UNUSED_ADVANTAGES] if unused else []),
            *sampled_remark(sum(len(g.episodes) for g in groups), total),
        ],
    )


def source(place: Path) -> tuple[Path, Settings]:
    """The rollout file, and the settings of the run that it belongs to."""
    files = sorted((place / "rollouts").glob("step-*.parquet")) if place.is_dir() else [place]
    if not files or not files[-1].is_file():
        raise UserError(
            f"--rollouts {place}: no rollouts; give a run folder that has some (a run with "
            "--rollouts none has not), or one of its rollouts/step-N.parquet"
        )
    return files[-1], settings_of(place if place.is_dir() else place.parent.parent)


def settings_of(run: Path) -> Settings:
    """The model and the problem of a run, by its folder; `check_code` asks for the code that it names."""
    config_file = run / "config.toml"
    if not config_file.is_file():
        return Settings()
    check_code(config_file, from_toml(config_file))
    return overrides.merge(Settings(), setup_fields(from_toml(config_file)))


def other_run(recipe: Recipe, place: Path) -> list[str]:
    """The remark that the run did not collect what the recipe reads, where its recipe is known and
    is another one.
    """
    config_file = (place if place.is_dir() else place.parent.parent) / "config.toml"
    if not config_file.is_file():
        return []
    given = from_toml(config_file)
    name = str(given.get("recipe", Settings.recipe))
    try:
        run = overrides.build(name, given.get("set", {}))
    except UserError:  # a recipe that is no more, or has other fields by now
        return []
    return other_links_remark(recipe.collect, run.collect, name) if isinstance(run, Recipe) else []


def setup_fields(given: dict[str, Any]) -> dict[str, Any]:
    """What says which model and which problem."""
    fields = {n: given[n] for n in ("model", *setting_names(Use.MEASURED)) if n in given}
    find(fields.get("model", "tiny"))
    return fields


def read_recorded(file: Path) -> tuple[list[Group], list[int], dict[int, list[str]]]:
    """Groups as they were trained on, their numbers in the step, and the text of every token by the
    id of its row.
    """
    episodes: dict[int, list[Episode]] = {}
    prompts: dict[int, Task] = {}
    texts: dict[int, list[str]] = {}
    for line in recorded_lines(file):
        e, of_rows = episode_from(line)
        texts |= of_rows
        episodes.setdefault(line["group"], []).append(e)
        prompts[line["group"]] = task_from(line)
    groups = [Group(task=prompts[g], episodes=tuple(es)) for g, es in sorted(episodes.items())]
    return groups, sorted(episodes), texts


def recorded_lines(file: Path) -> list[dict[str, Any]]:
    """The episodes of a rollout file, in its columns; what an older file lacks is None. Raises
    UserError where it holds no rollouts.
    """
    import pyarrow.parquet as pq

    try:
        lines = pq.ParquetFile(file).read().to_pylist()
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: no rollouts: {error}") from None
    if not lines or READ_COLUMNS - set(lines[0]):
        raise UserError(f"{file} does not hold the rollouts of a run")
    return [dict.fromkeys(SCHEMA.names) | line for line in lines]


def task_from(line: Mapping[str, Any]) -> Task:
    """As far as a line tells it: the prompt and the answer, as text, and no other column of the data."""
    return Task(
        id=line["task_id"],
        domain=line["domain"] or "",
        prompt=(Message(role="user", content=line["prompt"] or ""),),
        answer=line["answer"],
    )


def episode_from(line: Mapping[str, Any]) -> tuple[Episode, dict[int, list[str]]]:
    """An episode as it was trained on, and the text of every token by the id of its row."""
    pictures = _pictures(line)
    rows = tuple(_row(r, pictures) for r in line["rows"])
    reward = None if line["reward"] is None else Reward(total=line["reward"])
    facts = json.loads(line["facts"] or "{}")
    e = Episode(rows=rows, reward=reward, status=line["status"], muted=line["muted"], facts=facts)
    return e, {id(r): _visible_tokens(x) for r, x in zip(rows, line["rows"], strict=True)}


def _pictures(line: Mapping[str, Any]) -> Mapping[int, Picture]:
    """By their digests, sounds too; files of older runs have none."""
    seen = [
        Picture(shape=(p["height"], p["width"], p["channels"]), data=p["data"])
        for p in line.get("pictures") or ()
    ]
    return by_digest([*seen, *(sound_of(s["data"], s["rate"]) for s in line.get("sounds") or ())])


def _row(measured: dict[str, Any], pictures: Mapping[int, Picture]) -> Row:
    """Neighbours with the same author, turn and part in training as a segment: the file has
    columns, not segments.
    """
    columns = (
        measured[n] for n in ("author", "trained", "hidden", "turn", "logp", "ids", "tokens")
    )
    segments: list[Segment] = []
    alike = lambda t: (*t[:4], t[4] is None)
    for (author, trained, hidden, turn, unknown), tokens in groupby(
        zip(*columns, strict=True), alike
    ):
        *_, logp, ids, texts = zip(*tokens, strict=True)
        segments.append(
            Segment(
                ids=ids,
                author=author or "environment",
                policy="policy" if trained else "",
                trained=bool(trained),
                hidden=bool(hidden),
                logp=None if unknown else logp,
                turn=turn or 0,
                version=0 if trained else None,
                text="".join(texts),
                pictures=pictures_in(ids, pictures),
            )
        )
    return Row(
        segments=tuple(segments), seat=measured["seat"] or "", thread=measured["thread"] or ""
    )


def _visible_tokens(columns: dict[str, Any]) -> list[str]:
    return [t for t, hidden in zip(columns["tokens"], columns["hidden"], strict=True) if not hidden]


def _answer(
    e: Episode, weights: dict[int, Any], credit: dict[int, Any], texts: dict[int, list[str]]
) -> Answer:
    tokens: list[str] = []
    advantages: list[float] = []
    advantage: list[float] = []
    for row in e.rows:
        mine = row.view().trained_T
        tokens += [t for t, own in zip(texts[id(row)], mine, strict=True) if own]
        advantages += weights.get(id(row), np.zeros(len(mine)))[mine].tolist()
        advantage += np.broadcast_to(credit.get(id(row), 0.0), len(mine))[mine].tolist()
    return Answer(tokens=tokens, weights=advantages, reward=e.total, advantage=advantage)
