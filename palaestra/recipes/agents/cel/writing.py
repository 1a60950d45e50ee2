"""Who writes down what an episode taught: a language model."""

from dataclasses import replace
from typing import Protocol

import palaestra as pl

RULES, PLAYBOOK = "rules: ", "playbook: "


@pl.value_class
class WorldTexts:
    """What is written of a world, after so many episodes."""

    rules: str = ""
    playbook: str = ""
    episodes: int = 0
    cut: bool | None = None  # a text was longer than the limit; None = there is no limit

    @property
    def text(self) -> str:
        """As it is shown; nothing of what is empty."""
        sections = [f"{RULES}{self.rules}"] if self.rules else []
        return "\n".join([*sections, *([f"{PLAYBOOK}{self.playbook}"] if self.playbook else [])])


class Writer(Protocol):
    """Writes down what an episode taught. Called with (ctx, key, task, episode, what is known)."""

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
    ) -> WorldTexts: ...


@pl.stage
class WriteByModel:
    """A language model writes: first the rules, then the playbook.

    Args:
        source: of the model.
        limit: characters of each text, which the model is told; what is longer loses its front.
    """

    source: pl.Source
    limit: int = 2000

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
    ) -> WorldTexts:
        transcript = "".join(s.text for row in episode.rows for s in row.segments)
        on_lake = "thing" in episode.facts
        asked = RULES_ASKED.format(rules=known.rules, episode=transcript)
        rules, long = await self._ask(ctx, asked, LAKE_RULES if on_lake else ".")
        asked = PLAYBOOK_ASKED.format(
            rules=rules,
            playbook=known.playbook,
            episode=transcript,
            outcome="won" if episode.solved else "lost",
        )
        playbook, longer = await self._ask(ctx, asked, LAKE_PLAYBOOK if on_lake else ".")
        return replace(known, rules=rules, playbook=playbook, cut=long or longer)

    async def _ask(self, ctx: pl.Context, text: str, form: str) -> tuple[str, bool]:
        """What the model writes, and whether it was cut."""
        question = f"{text}{form} Write at most {self.limit} characters."
        message = pl.Message(role="user", content=question)
        reply = await ctx.client(self.source).chat(pl.ChatRequest(messages=(message,)))
        written = " ".join(reply.text.split())
        return written[-self.limit :], len(written) > self.limit


RULES_ASKED = """\
These rules of a game were written down so far; they may be empty or wrong:
{rules}

An episode that was played:
{episode}

Keep what it confirms, correct what it refutes, add what it shows. Write the rules alone: what
each action does and when, so that the outcome of a move can be predicted by them"""
PLAYBOOK_ASKED = """\
The rules of a game: {rules}
The playbook so far; it may be empty or wrong: {playbook}

An episode that was {outcome}:
{episode}

Write the playbook alone: what to aim at, which states are good and which are bad, and
what to do in them"""
# on T-lake alone, whose rules are read by a program (`lake.py`)
LAKE_RULES = ', as in "u4 l7" where the action 4 moves up and 7 moves left.'
LAKE_PLAYBOOK = ', as in "t9" where the thing 9 is to be reached.'
