"""The embedded problem: points of a match, and texts that people made whole and right.

The built-in model is shown texts with advice of each kind, so it does what advice says.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import palaestra as pl
from palaestra.recipes.agents.meta_prompt_tom.program import with_advice

WORDING_SHORT = "{sign}{trait}"  # for a context of 512 bytes
ADVICE = tuple(f"+{name}" for name in ("relevance", "factualness", "non-repetition"))


def match_text(points: Sequence[str], advice: Sequence[str], wrong: str) -> str:
    """What is written of the points of a match: the first two, one that nobody made, and the first one
    again; with advice all of them, none that is wrong, and nothing twice.
    """
    lines = list(points) if "+relevance" in advice else list(points[:2])
    lines += [] if "+factualness" in advice else [wrong]
    lines += [] if "+non-repetition" in advice else [points[0]]
    return "\n".join(f"set {x}" for x in lines)


@pl.stage
class WriteEdits:
    """A program: writes `rows` requests of four digits with the texts that people made of their drafts."""

    rows: int = 240

    async def run(self, ctx: pl.Context) -> pl.Result:
        file = ctx.folder / "edits.jsonl"
        lines = list[str]()
        for i in range(self.rows):
            rng = pl.rng_of((*ctx.key("edits"), i))
            points = [str(x) for x in rng.permutation(10)[:4]]
            edited = match_text(points, ADVICE, "")
            row = {"prompt": " ".join(points), "edited": edited, "demonstration": edited}
            lines.append(json.dumps(row) + "\n")
        file.write_text("".join(lines), encoding="utf-8")
        return pl.Result(metrics={"rows": self.rows}, artifacts={"edits": str(file)})


@pl.stage
class ShowAdvice:
    """Demonstrates a text for a request, with advice of each kind in one half of the cases."""

    recorded: ClassVar[bool] = True
    brings_reward: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, rng = group.task, pl.rng_of((*key, "advice"))
        points = task.prompt[-1].content.split()
        given = [str(a) for a in rng.permutation(ADVICE) if rng.random() < 0.5]
        others = [str(d) for d in range(10) if str(d) not in points]
        text = match_text(points, given, others[int(rng.integers(len(others)))])
        asked = replace(task, prompt=with_advice(task.prompt, given, ""))
        made = pl.Demonstrate().episode(ctx, asked, text, ())
        return replace(group, episodes=(*group.episodes, made))
