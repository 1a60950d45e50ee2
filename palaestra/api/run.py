"""A run as a value: its summary, its steps, episodes and problems as tables, its model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from palaestra import values
from palaestra.api.loops import run_blocking
from palaestra.ends import HeldOut
from palaestra.errors import UserError
from palaestra.explanation.reading import sampled_remark
from palaestra.explanation.recorded import explain_rollouts, settings_of
from palaestra.explanation.rescoring import Rescoring, RewardPair, rescore
from palaestra.method import Recipe
from palaestra.models.load import load
from palaestra.models.model import Model
from palaestra.pipeline import Pipeline
from palaestra.rewards.user import UserReward
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.evaluators import OWN_EVALUATION
from palaestra.run.setup import bench_of, own_settings
from palaestra.services.chat.local import LocalModel
from palaestra.settings.fields import VALUE
from palaestra.settings.overrides import build
from palaestra.settings.rewards import reward_by_name, reward_text
from palaestra.store import columns
from palaestra.store.columns import read_episodes
from palaestra.store.folder import RunFolder, read_run
from palaestra.view.problems import fates


class Run:
    """A run folder: `train` returns one, `open` finds one again. Nothing of it is read before it is
    asked for.

    Tables are of pyarrow: `.to_pandas()`, `polars.from_arrow(...)` and `.filter(...)` work on them.
    """

    def __init__(self, folder: str | Path):
        """Raises UserError where `folder` is no run folder."""
        self.folder = Path(folder)
        self._read = read_run(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings of config.toml."""
        return self._read.config

    @property
    def summary(self) -> Mapping[str, Any]:
        """summary.json; empty while the run has not ended."""
        return self._read.summary

    @cached_property
    def steps(self) -> pa.Table:
        """One row a step: the metrics of metrics.jsonl, null where a step has none."""
        return table(self._read.steps)

    @cached_property
    def evaluations(self) -> pa.Table:
        """One row for each thing that an evaluation measured: step, name, of ("accuracy", "reward",
        "ranking", "margin" or "loss"), mean, low and high (95%), n, and the unit of margins and
        losses.

        The name is "held-out" or that of an evaluator and its number: "knights/greedy".
        """
        measured = [
            {"step": int(at), "name": OWN_EVALUATION, **held.json()} for at, held in self._read.held
        ]
        for at, name, x in self._read.beside:
            held = x.json() if isinstance(x, HeldOut) else {"mean": x}
            measured.append({"step": int(at), "name": name, **held})
        return table(measured)

    def attempts(self, name: str = OWN_EVALUATION, tokens: bool = False) -> pa.Table:
        """One row an episode of an evaluation, in the columns of `episodes`, after every step where
        it was made.

        Args:
            name: "held-out", that of an evaluator, or one of these with " samples" behind it.
            tokens: also `rows`.
        """
        return read_episodes(
            sorted(self.folder.rglob(f"evaluations/{name}/step-*.parquet")), tokens
        )

    def episodes(self, tokens: bool = False) -> pa.Table:
        """One row an episode of training, in the columns of the rollout files; of a pipeline, of
        all parts. A run with `rollouts="sample:N"` has N a step, one with "none" has none.

        Args:
            tokens: also `rows`, the contexts token by token, which are most of the size.
        """
        return read_episodes(sorted(self.folder.rglob("rollouts/step-*.parquet")), tokens)

    def problems(self) -> pa.Table:
        """One row a problem that was tried: task_id, domain, prompt, episodes, solved (share),
        first and last (shares in the first and last third of the run's steps), p, and fate.

        fate: "solved" (always), "never", "learned" or "forgotten" (the thirds differ; judged for
        all problems at once, so that about one in ten of those called so is chance: Benjamini and
        Hochberg 1995), else "mixed"; "unknown" where the reward does not say what is solved and
        never is 1.
        """
        return table([{k: v for k, v in p.items() if k != "at"} for p in fates(self.episodes())])

    def group(self, step: int, group: int = 0) -> RecordedGroup:
        """The answers to one prompt of a step, by its number in the step. Raises UserError where it
        is not recorded.
        """
        file = columns.path(self.folder, step)
        if not file.is_file():
            raise UserError(
                f"{self.folder} has no rollouts of step {step}; see run.episodes()['step'], which "
                "has none of a run with rollouts='none'"
            )
        numbers = set(
            ds.dataset(str(file), format="parquet").to_table(["group"])["group"].to_pylist()
        )
        if group not in numbers:
            there = ", ".join(map(str, sorted(numbers))) or "none"
            raise UserError(
                f"{self.folder} has no group {group} of step {step}; those written are {there}"
            )
        return RecordedGroup(file, step, group)

    def rescore(self, reward: Any, steps: int = 10) -> Rescoring:
        """What another reward makes of the answers that training kept, beside what it has paid.

        Args:
            reward: as of `train`: a text, a function, a composed reward, several.
            steps: the last so many, of each part of a pipeline.

        Returns:
            `.table`, a row for each answer; `.comparison`, what differs; `.notes`.

        Raises:
            UserError: the run has kept no answers, or nobody knows its problem, or the reward is
                none for these answers, as a judge that is the run's own model.
        """
        if steps < 1:
            raise UserError(f"steps is {steps}; give at least one")
        folders: dict[Path, list[Path]] = {}
        for file in sorted(self.folder.rglob("rollouts/step-*.parquet")):
            folders.setdefault(file.parent.parent, []).append(file)
        if not folders:
            raise UserError(
                f"{self.folder} holds no answers of training; a run keeps them after each step, "
                "and none with --rollouts none"
            )
        judge = reward_by_name(
            reward_text(reward), float(self.config.get("reward_timeout", UserReward.timeout))
        )
        if any(isinstance(x, LocalModel) for _, x in values.walk(judge)):
            raise UserError(
                "a judge that is a model of the run is gone with the run; give one by its address: "
                "judge(url='http://localhost:8000/v1', model='NAME')"
            )
        pairs, notes = list[RewardPair](), list[str]()
        for folder, files in folders.items():
            part = str(folder.relative_to(self.folder)).removeprefix(".")
            last, ctx = files[-steps:], self._without_models(part)
            try:
                pairs += run_blocking(rescore(ctx, judge, last, part))
            finally:
                ctx.close()
            for file in last:
                notes += sampled_remark(pq.read_metadata(file).num_rows, columns.sampled_from(file))
        return Rescoring(pairs=pairs, notes=notes[:1])

    def _without_models(self, part: str) -> RunContext:
        """The problem of a part, "" of the run, and no model. Raises UserError where nobody knows it."""
        if not self.config:
            raise UserError(
                f"{self.folder} does not say its problem: it has no config.toml; give the folder of "
                "the whole run"
            )
        settings = replace(settings_of(self.folder), reward="")
        name = str(self.config.get("recipe", VALUE))
        if part and name != VALUE:  # of a recipe that was a value, nobody knows its parts' problems
            runnable = build(name, dict(self.config.get("set", {})))
            parts = runnable.parts if isinstance(runnable, Pipeline) else {}
            of_part = parts.get(Path(part).parts[0])
            settings = own_settings(settings, of_part.problem if of_part else {})
        bench, players = bench_of(settings, judged=True)
        return RunContext(bench=bench, seed=settings.seed, models={}, drive=train, players=players)

    def model(self, learner: str = "policy") -> Model:
        """The trained model of a learner: `.module` is the transformers model, `.tokenizer` its
        tokenizer.

        Raises UserError where the run has kept none.
        """
        kept = self.summary.get("artifacts") or {}
        if learner not in kept:
            raise UserError(
                f"{self.folder} keeps no model {learner!r}; it has {', '.join(kept) or 'none'}"
            )
        return load(kept[learner])

    def _repr_html_(self) -> str:
        """For notebooks: the verdict of the report, and the learning curve."""
        from palaestra.view.plots import curve_svg
        from palaestra.view.verdict import verdict

        folder: RunFolder = self._read
        title = " on ".join(x for x in (folder.label("recipe"), folder.problem) if x)
        words = verdict(folder)["words"]
        picture = (
            curve_svg(folder.steps, evaluations=folder.evaluations, of=folder.of)
            if folder.steps
            else ""
        )
        return f"<div><b>{escape(title)}</b><p>{escape(words)}</p>{picture}</div>"


def open(folder: str | Path) -> Run:
    """The run that lies in `folder`.

    Raises:
        UserError: there is no run folder of this package.
    """
    return Run(folder)


class RecordedGroup:
    """The answers to one prompt in one step of a run."""

    def __init__(self, file: Path, step: int, group: int):
        self.file, self.step, self.number = file, step, group

    def __repr__(self) -> str:
        return f"RecordedGroup(step={self.step}, group={self.number})"

    def episodes(self) -> pa.Table:
        """Its rows of the rollout file, with their tokens."""
        dataset = ds.dataset(str(self.file), schema=columns.SCHEMA, format="parquet")
        return dataset.to_table(filter=ds.field("group") == self.number)

    def explain(self, method: str | Recipe, **settings: Any) -> dict[str, Any]:
        """What a method makes of it: prompt, rewards, advantages, token_weights, tokens and notes,
        best answer first.

        Args:
            method: an id of the catalogue, a user's FILE.py, or a recipe.
            settings: arguments of the method's `build`, or fields by their paths.
        """
        recipe = build(method, settings) if isinstance(method, str) else method
        if not isinstance(recipe, Recipe):
            raise UserError(f"{method!r} is not an RL recipe: it has no advantages to explain")
        name = method if isinstance(method, str) else "recipe"
        return explain_rollouts(name, recipe, self.file, self.number).json()


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table with all their columns; a value that fits no column is its JSON text."""
    names = list(dict.fromkeys(k for row in rows for k in row))
    columns = {n: [row.get(n) for row in rows] for n in names}
    return pa.table({n: column(xs) for n, xs in columns.items()})


def column(xs: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(xs)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if all(x is None or isinstance(x, int | float) for x in xs):
            return pa.array([None if x is None else float(x) for x in xs])
        return pa.array([None if x is None else json.dumps(x) for x in xs])
