"""What the small agent can do before any reinforcement learning:
`python -m tools.tiny_agent.skill [DIR] [--tasks 48] [--samples 8]`.

Greedy, sampled (temperature 1) and pass@k on test splits, played and judged as a run evaluates;
written to `skill.json` beside the weights, and into the table of the card where one lies there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestra.chat.calls import TagCalls
from palaestra.context import Bench
from palaestra.models.embedded import FOLDERS
from palaestra.models.load import load
from palaestra.recipes.agents.cel import WorldTexts, show_knowledge
from palaestra.rewards.verify import Verify
from palaestra.rollout.collect import Sample
from palaestra.run.benches import add_tools, bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.evaluation import attempt_tasks
from palaestra.tasks import phrasing as formats
from palaestra.tasks.procedural import exact_match
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.lake import LakeTasks
from palaestra.toys.mistakes import wrong_answer
from palaestra.toys.wiki import WikiTasks
from palaestra.toys.words import Words
from palaestra.types import Group, Message, Player, Task, rng_of, stage
from palaestra.worlds.question import Question
from palaestra.worlds.toolbox import tool_names
from palaestra.worlds.tools import WithTools
from tools.tiny_agent import functions
from tools.tiny_model.skill import Numbers, line, table

__all__ = ["line", "rows", "skills"]

HERE = FOLDERS["tiny-agent"]
HEAD = "| task | greedy | sampled | pass@4 | pass@8 |\n| --- | --- | --- | --- | --- |\n"
Row = tuple[Bench, Mapping[str, Player]]


@stage
class Told:
    """Tasks of a source in which something is said besides: so many of the working's steps as a
    hint, or what follows a wrong answer, or the pages that hold the answer, or how a world works.
    """

    source: Any
    kind: str
    share: float = 0.0
    size: int | None = None

    @property
    def name(self) -> str:
        return self.source.name

    def task(self, split: str, index: int) -> Task:
        task = self.source.task(split, index)
        rng = rng_of(("told", self.kind, task.id))
        if self.kind == "hint":
            steps = self.source.steps(task)
            return formats.add_hint(task, steps[: round(self.share * len(steps))])
        if self.kind == "pages":
            pages = dict(self.source.documents())
            shown = rng.permutation([pages[i] for i in task.meta["gold"]])
            return formats.add_summary(task, [str(x) for x in shown])
        if self.kind == "rules":
            names = task.meta["start"].names
            rules = " ".join(f"{d[0]}{names[d]}" for d in ("up", "down", "left", "right"))
            known = WorldTexts(rules=rules, playbook=f"t{names['goal']}")
            return show_knowledge(task, known)
        wrong = wrong_answer(self.source, task, rng, "work")
        at = self.source.first_wrong(wrong, task)
        notes = {
            "retry": formats.retry(),
            "critique": formats.critique(at or 0),
            "answer": formats.reveal_answer(task.answer),
        }
        shown = Message(role="assistant", content=wrong)
        return replace(task, prompt=(*task.prompt, shown, notes[self.kind]))


@stage
class Tagged:
    """Verdicts on answers in tags."""

    def __call__(self, text: str, task: Task) -> float:
        said = text.strip()
        return float(said.endswith(f"<answer>{task.answer}</answer>"))


def asked(tasks: Any, check: Any = exact_match, **more: Any) -> Row:
    bench = Bench(name=tasks.name, tasks=tasks, world=Question(), reward=Verify(check), **more)
    return bench, {}


def with_tools(spec: str, given: Sequence[Any], tags: bool = False) -> Row:
    bench, players = bench_by_name(spec)
    bench = add_tools(bench, WithTools(tool_names(list(given)), turns=4))
    return (replace(bench, dialect=TagCalls()) if tags else bench), players


def rows() -> dict[str, Row]:
    """What is measured, by the name it has in the table."""
    large = ArithmeticChain(operands=(5, 5), modulo=37)
    chain = ArithmeticChain()
    found = {
        name: bench_by_name(spec)
        for name, spec in {
            "chain": "chain", "add d=2": "add(d=2)", "add d=4": "add(d=4)", "bool d=3": "bool(d=3)",
            "sort d=3": "sort(d=3)", "knights d=2": "knights(d=2)", "count": "count",
            "constraints": "constraints",
            "unanswerable": "unanswerable", "hop": "hop", "grid": "grid", "lake": "lake",
            "lookup": "lookup", "wiki": "wiki", "wiki, 3 hops": "wiki-2", "tictactoe": "tictactoe",
            "compare": "compare",
        }.items()
    }  # fmt: skip
    add = (functions.add,)
    found |= {
        "add d=4, tool": with_tools("add(d=4)", add),
        "add d=4, tool in tags": with_tools("add(d=4)", add, tags=True),
        "add d=4, python": (
            add_tools(bench_by_name("add(d=4)")[0], WithTools(("python",), turns=4)),
            {},
        ),
        "add d=4, tool that fails": with_tools("add(d=4)", (functions.stock,)),
    }
    found["words, copied"] = asked(Words(verbs=("copy",)))
    found |= {
        f"chain mod 37, {share:.0%} as a hint": asked(Told(large, "hint", share))
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    }
    found |= {
        f"chain, after: {name}": asked(Told(chain, kind))
        for kind, name in {
            "retry": "wrong",
            "critique": "which line",
            "answer": "the answer",
        }.items()
    }
    found["wiki, pages shown"] = asked(Told(WikiTasks(hops=(1, 2)), "pages"), Tagged())
    found["lake, rules told"] = (
        replace(bench_by_name("lake")[0], tasks=Told(LakeTasks(), "rules")),
        {},
    )
    return found


def scores(group: Group) -> list[float]:
    """1 for an episode that was solved, or won."""
    return [
        float(e.reward is not None and (e.reward.solved or e.reward.total >= 1.0))
        for e in group.episodes
    ]


async def measured(ctx: RunContext, tasks: int, samples: int) -> Numbers:
    greedy = await attempt_tasks(ctx, tasks, Sample(n=1, temperature=0.0), label="skill")
    drawn = await attempt_tasks(ctx, tasks, Sample(n=samples), label="skill, drawn")
    rows = [e.rows for g in drawn for e in g.episodes]
    said = [sum(len(s.ids) for r in each for s in r.segments if s.trained) for each in rows]
    return table([scores(g)[0] for g in greedy], [scores(g) for g in drawn]) | {
        "tokens": round(sum(said) / len(said), 1)
    }


def skills(where: Path, tasks: int, samples: int) -> dict[str, Numbers]:
    found, model = dict[str, Numbers](), load(str(where))
    for name, (bench, players) in rows().items():
        ctx = RunContext(
            bench=bench, seed=0, models={"policy": model}, drive=train, players=players
        )
        found[name] = asyncio.run(measured(ctx, tasks, samples))
        print(f"| {line(name, found[name])} |", flush=True)
    return found


def put_table(card: str, found: Mapping[str, Numbers]) -> str:
    """The card with these numbers in the place of those below the table's head."""
    before, head, after = card.partition(HEAD)
    rest = after.partition("\n\n")[2]
    lines = "".join(f"| {line(name, numbers)} |\n" for name, numbers in found.items())
    return f"{before}{head}{lines}\n{rest}" if head else card


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the small agent.")
    parser.add_argument("dir", nargs="?", type=Path, default=HERE)
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--samples", type=int, default=8)
    args = parser.parse_args()
    found = skills(args.dir, args.tasks, args.samples)
    (args.dir / "skill.json").write_text(json.dumps(found, indent=1) + "\n")
    if (card := args.dir / "README.md").exists():
        card.write_text(put_table(card.read_text(), found))


if __name__ == "__main__":
    main()
