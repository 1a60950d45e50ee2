"""`palaestra view RUN --text`: verdict, problems, signs and ten groups on the terminal; with `--step`
and `--group` the answers of one group.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from palaestra.errors import UserError
from palaestra.markdown import escape_controls
from palaestra.store.folder import read_run
from palaestra.terminal.streams import drawing
from palaestra.view.drawing import percent, short_number
from palaestra.view.export import by_worth
from palaestra.view.problems import fates
from palaestra.view.reader import RunReader
from palaestra.view.signs import signs
from palaestra.view.verdict import verdict

pc: Any = import_module("pyarrow.compute")  # its functions are made when it is imported
GROUPS, PROBLEMS, WIDTH = 10, 8, 60


def show(
    runs: Sequence[RunReader],
    console: Console | None = None,
    step: int | None = None,
    group: int | None = None,
) -> None:
    """Prints the runs; with `step` or `group` the answers of one group of each instead. Without a
    step that is the last one, without a group the first of the step. Raises UserError where there
    is no such group.
    """
    console = console or Console(file=drawing(sys.stdout))
    for run in runs:
        console.print(of_run(run) if step is group is None else group_text(run, step, group))


def group_text(run: RunReader, step: int | None, group: int | None) -> Text:
    """All answers of a group with their rewards, and what the policy heard in between."""
    index = run.main.index
    steps = sorted(set(index["step"].to_pylist()))
    if not steps:
        raise UserError(f"{run.name} has no recorded answers")
    step = steps[-1] if step is None else step
    of_step = index.filter(pc.equal(index["step"], step))
    groups = sorted(set(of_step["group"].to_pylist()))
    if group is None and groups:
        group = groups[0]
    if group is None or group not in groups:
        among = f"group {group}; step {step} has {span(groups)}" if groups else f"step {step}"
        raise UserError(f"{run.name} has no {among}; it has the steps {span(steps)}")
    episodes = run.main.group(step, group)
    text = Text(f"{run.name}, step {step}, group {group}\n", style="bold")
    text.append(escape_controls(f"{episodes[0]['prompt'] or ''}\n" if episodes else ""), style="")
    for e in episodes:
        numbers = ((n, e[n]) for n in ("reward", "advantage"))
        numbers_text = ", ".join(f"{n} {'?' if x is None else short_number(x)}" for n, x in numbers)
        text.append(
            escape_controls(f"\nsample {e['sample']}: {numbers_text}, {e['status']}\n"),
            style="bold",
        )
        text.append(escape_controls(f"{conversation(e)}\n"), style="")
    return text


def span(numbers: Sequence[int]) -> str:
    """Of sorted numbers the first and the last."""
    return f"{numbers[0]} to {numbers[-1]}" if numbers[1:] else f"{numbers[0]}"


def conversation(episode: Mapping[str, Any]) -> str:
    """What was said and heard behind the prompt, each part with who it is by where others spoke;
    without recorded tokens what was sampled, and the error of infrastructure.
    """
    contexts = [turns for r in episode["rows"] if (turns := turns_of(r))]
    several = any(author != "policy" for turns in contexts for author, _ in turns)
    lines = [
        f"[{author}] {piece.strip()}" if several else piece
        for turns in contexts
        for author, piece in turns
    ] or [episode["text"] or ""]
    error = episode["facts"].get("error")
    return "\n".join([*lines, *([f"error: {error}"] if error else [])])


def turns_of(context: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(author, text) from the first token of a policy on."""
    tokens = context.get("tokens") or []
    trained, author = (context.get(k) or [None] * len(tokens) for k in ("trained", "author"))
    if not all(isinstance(x, list) and len(x) == len(tokens) for x in (tokens, trained, author)):
        return []
    turns: list[tuple[str, str]] = []
    for token, mine, by in zip(tokens, trained, author, strict=True):
        name = "policy" if mine else str(by or "environment")
        if turns and turns[-1][0] == name:
            turns[-1] = (name, turns[-1][1] + str(token))
        elif turns or name != "environment":
            turns.append((name, str(token)))
    return turns


def of_run(run: RunReader) -> Group:
    """Texts of a run are shown as they are: nothing in them is markup, and control characters are
    drawn.
    """
    folder = read_run(run.folder)
    judgement = verdict(folder)
    title = " on ".join(x for x in (folder.label("recipe"), folder.problem) if x) or run.name
    ends = " → ".join(f"{e['mean']} ({e['low']} to {e['high']})" for e in judgement["ends"])
    head = Text(f"{title}: {run.name}\n", style="bold")
    head.append(
        f"{judgement['what']} {ends}. {judgement['words']}\n"
        if ends
        else f"{judgement['words']}\n",
        style="",
    )
    return Group(head, problems_table(run), signs_table(run), groups_table(run))


def problems_table(run: RunReader) -> Table:
    fate_table = fates(run.main.index)
    counts = Counter(p["fate"] for p in fate_table)
    table = Table("problem", "fate", "first third", "last third", "answers", title="Problems")
    table.caption = ", ".join(f"{n} {fate}" for fate, n in counts.most_common())
    if counts["unknown"]:
        table.caption += "; unknown: the reward does not say which answers are right"
    order = ("forgotten", "never", "learned", "unknown", "mixed", "solved")
    share = lambda x: "–" if x is None else percent(x)
    for p in sorted(fate_table, key=lambda p: (order.index(p["fate"]), -p["episodes"]))[:PROBLEMS]:
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
        if not (group_answers := source.group(step, group)):
            continue
        rewards: list[Any] = [e["reward"] for e in group_answers]
        prompt = " ".join((group_answers[0]["prompt"] or "").split())[:WIDTH]
        rewards_text = " ".join("?" if r is None else short_number(r) for r in rewards[:16])
        table.add_row(*map(plain, (str(step), str(group), prompt, rewards_text)))
    return table


def plain(text: str) -> Text:
    return Text(escape_controls(text))
