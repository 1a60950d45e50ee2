"""Made-up diaries with planted themes, and what each agent says of them, for the built-in model.

No line is of a real person. Each coder sees other themes, and those of odd number use other labels, by
construction.
"""

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.chd_thematic.prompts import ThematicPrompts
from palaestra.recipes.agents.chd_thematic.themes import Interview

# theme: (another label for it, what is said)
SPOKEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "waiting": ("delay", ("long wait", "no news")),
    "care": ("team", ("kind nurse", "gentle hands")),
    "fear": ("worry", ("so afraid", "no sleep")),
    "family": ("home", ("my sister", "dad helped")),
    "money": ("bills", ("high bill", "paid again")),
    "hope": ("future", ("one day", "good sign")),
}
PLANTED = tuple(SPOKEN)
BESIDE = ("rain today", "warm tea")
ELSE = "other"
CODERS = ("physician", "surgeon", "researcher", "layperson")
SEES = {
    "physician": ("care", "waiting"),
    "surgeon": ("care", "fear"),
    "researcher": ("fear", "hope"),
    "layperson": ("family", "money", ELSE),
}
PROMPTS = ThematicPrompts(
    code="{identity}\n{lines}\ncodes",
    theme="{codes}\nthemes",
    review="{themes}\nreview",
    quotes=0,
    labels=False,
)


def made_up_diary(rng: np.random.Generator) -> list[tuple[str, str]]:
    """(theme, line) of three lines, one of which may be beside the point."""
    themes = [str(x) for x in rng.permutation(PLANTED)[: int(rng.integers(2, 4))]]
    lines = [(t, str(rng.choice(SPOKEN[t][1]))) for t in themes]
    lines += [(ELSE, str(rng.choice(BESIDE))) for _ in range(3 - len(lines))]
    return [lines[int(i)] for i in rng.permutation(len(lines))]


def made_up_diaries(n: int) -> list[Interview]:
    """`n` diaries, the same ones in every run."""
    return [
        Interview(
            f"diary {i + 1}",
            {f"q{k + 1}": x for k, (_, x) in enumerate(made_up_diary(pl.rng_of(("diary", i))))},
        )
        for i in range(n)
    ]


def label_by(coder: str, theme: str) -> str:
    """What a coder calls a theme."""
    other = CODERS.index(coder) % 2 == 1
    return theme if theme == ELSE or not other else SPOKEN[theme][0]


def draw_agent(rng: np.random.Generator) -> tuple[str, str]:
    """What an agent is asked, and its reply: mostly a coder."""
    kind = rng.random()
    if kind < 0.45:
        coder, diary = str(rng.choice(CODERS)), made_up_diary(rng)
        lines = "\n".join(f"q{k + 1} {x}" for k, (_, x) in enumerate(diary))
        codes = [
            f"q{k + 1} {label_by(coder, t) if t in SEES[coder] else 'none'}"
            for k, (t, _) in enumerate(diary)
        ]
        return PROMPTS.code.format(identity=coder, lines=lines), "\n".join(codes)
    if kind < 0.65:
        some = [str(x) for x in rng.permutation(PLANTED)[: int(rng.integers(1, 4))]]
        chosen = [*some, ELSE] if rng.random() < 0.6 else some
        labels = [(t, x) for t in chosen for x in ((t,) if t == ELSE else (t, SPOKEN[t][0]))]
        batch = [labels[int(i)] for i in rng.permutation(len(labels))][:BATCH]
        codes = "\n".join(f"c{i + 1} {x} ({rng.integers(1, 3)})" for i, (_, x) in enumerate(batch))
        reply = "\n".join(f"c{i + 1} {t}" for i, (t, _) in enumerate(batch))
        return PROMPTS.theme.format(codes=codes), reply
    some = [str(x) for x in rng.permutation(PLANTED)[: int(rng.integers(1, 7))]]
    beside = [ELSE] if rng.random() < 0.75 else []
    chosen = [str(x) for x in rng.permutation([*some, *beside])]
    themes = "\n".join(f"t{i + 1} {t}" for i, t in enumerate(chosen))
    edits = [f"{'delete' if t == ELSE else 'keep'} t{i + 1}" for i, t in enumerate(chosen)]
    score = "score 2" if ELSE in chosen else "score 5"
    return PROMPTS.review.format(themes=themes), "\n".join([*edits, score])


BATCH = 4  # codes that the built-in theme agent reads at once


@pl.stage
class WriteReplies:
    """A program: writes `rows` replies of agents to imitate."""

    rows: int = 2400

    async def run(self, ctx: pl.Context) -> pl.Result:
        file = ctx.folder / "replies.jsonl"
        drawn = [draw_agent(pl.rng_of((*ctx.key("replies"), i))) for i in range(self.rows)]
        rows = [{"prompt": asked, "demonstration": reply} for asked, reply in drawn]
        pl.tasks.write_records(file, rows)
        return pl.Result(metrics={"rows": self.rows}, artifacts={"replies": str(file)})


def imitate_agents(steps: int) -> pl.Recipe:
    """Imitates replies of agents for `steps` steps."""
    return pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
