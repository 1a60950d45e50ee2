"""`palaestra view RUN --text`: verdict, problems, signs and ten groups on the terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from palaestra.markdown import escape_controls
from palaestra.run.voice import drawing
from palaestra.store.folder import read_run
from palaestra.view.drawing import percent, short_number
from palaestra.view.export import by_worth
from palaestra.view.problems import fates
from palaestra.view.reader import RunReader
from palaestra.view.signs import signs
from palaestra.view.verdict import verdict

GROUPS, PROBLEMS, WIDTH = 10, 8, 60


def show(runs: Sequence[RunReader], console: Console | None = None) -> None:
    console = console or Console(file=drawing(sys.stdout))
    for run in runs:
        console.print(of_run(run))


def of_run(run: RunReader) -> Group:
    """Texts of a run are shown as they are: nothing in them is markup, and control characters are
    drawn.
    """
    folder = read_run(run.folder)
    said = verdict(folder)
    title = " on ".join(x for x in (folder.label("recipe"), folder.problem) if x) or run.name
    ends = " → ".join(f"{e['mean']} ({e['low']} to {e['high']})" for e in said["ends"])
    head = Text(f"{title}: {run.name}\n", style="bold")
    head.append(
        f"{said['what']} {ends}. {said['words']}\n" if ends else f"{said['words']}\n", style=""
    )
    return Group(head, problems_table(run), signs_table(run), groups_table(run))


def problems_table(run: RunReader) -> Table:
    found = fates(run.main.index)
    counts = Counter(p["fate"] for p in found)
    table = Table("problem", "fate", "first third", "last third", "answers", title="Problems")
    table.caption = ", ".join(f"{n} {fate}" for fate, n in counts.most_common())
    if counts["unknown"]:
        table.caption += "; unknown: the reward does not say which answers are right"
    order = ("forgotten", "never", "learned", "unknown", "mixed", "solved")
    share = lambda x: "–" if x is None else percent(x)
    for p in sorted(found, key=lambda p: (order.index(p["fate"]), -p["episodes"]))[:PROBLEMS]:
        cells = (p["task_id"], p["fate"], share(p["first"]), share(p["last"]), str(p["episodes"]))
        table.add_row(*map(plain, cells))
    return table


def signs_table(run: RunReader) -> Table:
    table = Table("sign", "now", "what was seen", title="Signs of reward without progress")
    table.caption = "look: read answers of it, for a sign is no proof; quiet: nothing stands out"
    for s in signs(run):
        look = "look" if s["stands_out"] else "quiet"
        pieces = ", ".join(repr(p["piece"]) for p in s.get("pieces", ())[:5])
        table.add_row(*map(plain, (s["name"], look, f"{s['told']} {pieces}".strip())))
    return table


def groups_table(run: RunReader) -> Table:
    table = Table("step", "group", "prompt", "rewards", title="Groups that tell most")
    source = run.main
    for step, group in by_worth(run)[:GROUPS]:
        if not (found := source.group(step, group)):
            continue
        rewards: list[Any] = [e["reward"] for e in found]
        prompt = " ".join((found[0]["prompt"] or "").split())[:WIDTH]
        told = " ".join("?" if r is None else short_number(r) for r in rewards[:16])
        table.add_row(*map(plain, (str(step), str(group), prompt, told)))
    return table


def plain(text: str) -> Text:
    return Text(escape_controls(text))
