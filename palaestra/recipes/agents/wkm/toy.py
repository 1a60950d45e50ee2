"""Knowledge of the built-in game as a program writes it: worked examples for a small model that has
never written any.
"""

from collections.abc import Mapping
from typing import Any

import palaestra as pl
from palaestra.recipes.agents.wkm.play import said_text
from palaestra.recipes.agents.wkm.program import (
    Wording,
    game_record,
    play_game,
    says_of,
    task_text,
    trajectory_text,
)

WORDING = Wording(
    compare="{task}\nexpert:\n{expert}\nother {outcome}:\n{sampled}\nadvice?",
    recall="{task}\nadvice?",
    describe="{task}\n{history}\nstate?",
    tokens=64,
)


def advice(game: Mapping[str, Any], mistake: str = "") -> str:
    """What a game of the house shows to be done, as "take egg, use oven, put desk, not use sink"."""
    done = [a for a in game["actions"] if not a.startswith("open")]
    return ", ".join([*done, *([f"not {mistake}"] if mistake else [])])


def state_sentence(game: Mapping[str, Any], turn: int) -> str:
    """The state of a game of the house before its action number `turn`."""
    deed, thing = task_text(game).split(",")[0].split()[:2]
    seen = said_text(says_of(game)[turn])
    if "has" in seen.split():
        return f"{thing} is found"
    if seen.endswith("none"):
        return f"{thing} is hidden"
    used = any(a.startswith("use") for a in game["actions"][:turn])
    return f"{thing} is held, {deed} is {'done' if used else 'open'}"


@pl.stage
class ShowWriting:
    """Demonstrates the game in a share of the episodes, else advice or a sentence about a state of it."""

    share: float = 0.25

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of((*key, "writing"))
        if rng.random() < self.share:
            return await pl.Demonstrate()(ctx, key, group)
        index = int(rng.integers(1 << 20))
        game = game_record(index, *await play_game(ctx, key, "train", index, oracle=True))
        turns = len(game["actions"])
        if rng.random() < 0.5:
            asked, reply = self._comparison(game, rng)
        else:
            turn = int(rng.integers(1, turns))
            before = {**game, "actions": game["actions"][:turn], "says": game["says"][: turn + 1]}
            text = trajectory_text(before, WORDING.characters)
            asked = WORDING.describe.format(task=task_text(game), history=text)
            reply = state_sentence(game, turn)
        prompt = (pl.Message(role="user", content=asked),)
        episode = pl.recorded_episode(ctx, "policy", prompt, reply, 1.0, judged=False)
        return pl.Group(task=group.task, episodes=(episode,))

    def _comparison(self, game: Mapping[str, Any], rng: Any) -> tuple[str, str]:
        """Both games of a task, the other one with a wrong appliance in half of the cases."""
        other, mistake = dict(game), ""
        places = task_text(game).splitlines()[-1].split()
        if rng.random() < 0.5:
            at = next(i for i, a in enumerate(game["actions"]) if a.startswith("use"))
            names = {name for each in pl.toys.APPLIANCES.values() for name in each}
            wrong = [p for p in places if p in names and f"use {p}" != game["actions"][at]]
            mistake = f"use {wrong[int(rng.integers(len(wrong)))]}"
            held = game["says"][at][-1][1]
            says = [
                *game["says"][: at + 1],
                [["tool", f"no, {held.partition(', ')[2]}"]],
                *game["says"][at + 1 :],
            ]
            actions = [*game["actions"][:at], mistake, *game["actions"][at:]]
            other = {**game, "says": says, "actions": actions}
        asked = WORDING.compare.format(
            task=task_text(game),
            expert=trajectory_text(game, WORDING.characters),
            sampled=trajectory_text(other, WORDING.characters),
            outcome="succeeded",
        )
        return asked, advice(game, mistake)
