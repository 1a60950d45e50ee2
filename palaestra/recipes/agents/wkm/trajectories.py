"""Expert trajectories of a file: lists of actions, found by the id, the prompt or the first text of their
task.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import palaestra as pl
from palaestra.recipes.agents.wkm.play import WatchedGame, said_text


def one_line(text: str) -> str:
    return " ".join(text.split())


def read_trajectories(file: str) -> dict[str, list[str]]:
    """Lists of actions by what names their task. Raises UserError for a row that is none."""
    trajectories: dict[str, list[str]] = {}
    path = Path(file).expanduser()
    if not path.is_file():
        raise pl.UserError(f"wkm: there is no file {file}; give trajectories=FILE.jsonl")
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            task, actions = row["task"], row["actions"]
            good = isinstance(task, str) and all(isinstance(a, str) for a in actions) and actions
        except (ValueError, KeyError, TypeError):
            task, actions, good = "", [], False
        if not good:
            raise pl.UserError(
                f'{file}:{n}: no trajectory; write {{"task": "its id or prompt", "actions": ["open box", '
                "...]}"
            )
        trajectories[one_line(task)] = actions
    return trajectories


@dataclass
class GivenTrajectories:
    """The rows of a file by what names their task, and what became of them: the `used` ones, and those
    whose game went on after their last action (`short`).
    """

    rows: dict[str, list[str]]
    used: set[str] = field(default_factory=set[str])
    short: set[str] = field(default_factory=set[str])

    def next_action(self, task: pl.Task, world: WatchedGame) -> str:
        """The action that is next in a game. Raises Fault "trajectory" where there is none."""
        names = (task.id, said_text(task.prompt), said_text(world.says[0]))
        name = next((n for n in map(one_line, names) if n in self.rows), None)
        if name is None:
            raise pl.Fault("trajectory", f"no trajectory is of the task {task.id!r}")
        self.used.add(name)
        actions = self.rows[name]
        if len(world.actions) >= len(actions):
            self.short.add(name)
            raise pl.Fault("trajectory", f"the game goes on after all {len(actions)} actions")
        return actions[len(world.actions)]

    def remarks(self, ids: Sequence[str]) -> str:
        """Which rows were of no use, where `ids` are those of the tasks that were played; "" = none."""
        remarks, total = list[str](), len(self.rows)
        if idle := total - len(self.used):
            remarks.append(
                f"{idle} of {total} rows match none of the {len(ids)} tasks that were played; their ids are "
                f"like {''.join(ids[:1])!r}, and the prompt or the text that a game begins with will do too"
            )
        if self.short:
            first = min(self.short)[:60]
            remarks.append(
                f"{len(self.short)} of {total} rows end before their game does, such as that of {first!r}"
            )
        return "; ".join(remarks)
