"""Made-up authors for a small model: eight words, of which one names a favourite stone. No person's data."""

from itertools import product
from typing import ClassVar

import palaestra as pl
from palaestra.recipes.games.agentstealth.roles import attributes_of

STONES = ("ruby", "jade", "opal", "onyx")
HIDDEN = "gem"  # what a rewrite says in the place of a stone
PLACES = ("sea", "hill", "lake", "wood", "town", "farm")
DRINKS = ("tea", "milk", "soup", "juice", "water")
SAMPLE = "{text}?"


def stone_texts() -> list[tuple[str, str]]:
    """All texts, each with the stone of its author."""
    each = product(PLACES, DRINKS, STONES)
    return [(f"by the {place} i drink {drink} wear {stone}", stone) for place, drink, stone in each]


@pl.stage
class WriteProfiles:
    """A program: writes the made-up authors as a file: prompt, attributes, and the text with its stone
    hidden as a demonstration.
    """

    async def run(self, ctx: pl.Context) -> pl.Result:
        file = ctx.folder / "profiles.jsonl"
        rows = [
            {
                "prompt": text,
                "attributes": {"stone": stone},
                "demonstration": text.replace(stone, HIDDEN),
            }
            for text, stone in stone_texts()
        ]
        pl.tasks.write_records(file, rows)
        return pl.Result(metrics={"rows": len(rows)}, artifacts={"profiles": str(file)})


@pl.stage
class ShowRoles:
    """Demonstrates both roles: a text as it is or with its stone hidden, each as often, and the attacker's three
    guesses of either, of which the first is right where the stone stands there and any where not.
    """

    recorded: ClassVar[bool] = True
    brings_reward: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of((*key, "roles"))
        text, stone = pl.tasks.plain_question(group.task), attributes_of(group.task)["stone"]
        hidden = text.replace(stone, HIDDEN)
        seen = [text, hidden][int(rng.integers(2))]
        rest = [x for x in STONES if x != stone or seen == hidden]
        guesses = [str(x) for x in rng.permutation(rest)]
        guesses = ([stone] if seen == text else []) + guesses
        pairs = (
            (text, [text, hidden][int(rng.integers(2))]),
            (SAMPLE.replace("{text}", seen), f"stone: {'; '.join(guesses[:3])}"),
        )
        made = [
            pl.recorded_episode(
                ctx, "policy", (pl.Message(role="user", content=asked),), reply, 1.0, judged=False
            )
            for asked, reply in pairs
        ]
        return pl.Group(task=group.task, episodes=tuple(made))
