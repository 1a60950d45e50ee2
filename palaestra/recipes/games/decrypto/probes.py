"""Questions about other minds, put at turns of games that were played."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import palaestra as pl
from palaestra.recipes.games.decrypto.play import PlayedGame

Words = tuple[str, ...]
PREDICT = (
    "You have given these hints. Which code will the interceptor guess, who does not know the keywords? "
    "Reply with three different digits of 1 to 4, such as 3-1-4."
)
NAME = "What are the four keywords? Reply with four words in the order of the digits, with commas between them."
BEFORE = (
    "The keywords are revealed: {true}. Before that was told to you, what did you take them for? Reply with "
    "four words in the order of the digits, with commas between them."
)
OTHER = (
    "The keywords are revealed to you: {true}. A second interceptor has seen the same hints, and was not told "
    "them. What will the second interceptor take the keywords for? Reply with four words in the order of the "
    "digits, with commas between them."
)
BRIEF = {
    PREDICT: "predict",
    NAME: "keywords?",
    BEFORE: "true {true}, before?",
    OTHER: "true {true}, other?",
}
ROLE = (
    "You are the interceptor in a game of Decrypto. Two others share four secret keywords, and give hints at "
    "them. After each digit stand the hints that were given for it."
)


@dataclass(frozen=True, slots=True)
class PredictedGuess:
    """What an encoder says that the interceptor guesses; () = it could not be read."""

    prediction: tuple[int, ...]
    guess: tuple[int, ...]
    code: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BelievedKeywords:
    """An interceptor's keywords: guessed, as it says later that it believed, and as another will; () =
    it could not be read, or was not asked.
    """

    true: Words
    guessed: Words
    before: Words = ()
    other: Words = ()


def state_at(world: Any, game: PlayedGame, n: int) -> Any:
    """The state of a game after its first `n` turns."""
    turns = game.turns[:n]
    codes = tuple(t.code for t in game.turns)
    return pl.worlds.DecryptoState(keywords=game.keywords, codes=codes, log=turns)


def wording(world: Any, text: str) -> str:
    """The question as a world's prompts have it: brief ones have brief questions."""
    return BRIEF[text] if getattr(world, "brief", False) else text


def prediction_prompt(world: Any, game: PlayedGame, turn: int) -> str:
    """What the encoder is asked about its hints of a turn."""
    state = replace(state_at(world, game, turn), hints=game.turns[turn].hints)
    lines = world.public(state, state.keywords)
    role = (
        "encoder"
        if getattr(world, "brief", False)
        else world.shown(state, "encoder").split("\n")[0]
    )
    code = pl.worlds.code_text(state.code)
    hints = f"hints {', '.join(state.hints)}"
    return "\n".join([role, *lines, f"code {code}", hints, wording(world, PREDICT)])


def belief_prompt(world: Any, game: PlayedGame, turn: int, text: str) -> str:
    """What the interceptor is asked after a turn: one of NAME, BEFORE and OTHER."""
    state = state_at(world, game, turn + 1)
    role = "interceptor" if getattr(world, "brief", False) else ROLE
    asked = wording(world, text).format(true=", ".join(game.keywords))
    return "\n".join([role, *world.public(state), asked])


def probed_turns(
    games: Sequence[PlayedGame], key: pl.Key, most: int
) -> list[tuple[PlayedGame, int]]:
    """Up to `most` turns with hints, drawn from all of the games."""
    turns = [(g, t) for g in games for t, turn in enumerate(g.turns) if turn.hints]
    chosen = pl.rng_of((*key, "turns")).permutation(len(turns))[:most]
    return [turns[i] for i in sorted(chosen.tolist())]


def said_words(text: str) -> Words:
    return pl.worlds.three_words(text, 4)


@dataclass(frozen=True)
class MindReader:
    """Asks the policy, again where a reply cannot be read, `retries` times."""

    ctx: pl.Context
    world: Any
    temperature: float
    retries: int

    async def predict(self, game: PlayedGame, turn: int) -> PredictedGuess:
        guess = await self._ask(
            (game.deal, *game.cell, turn, "predict"),
            prediction_prompt(self.world, game, turn),
            pl.worlds.read_code,
        )
        at = game.turns[turn]
        return PredictedGuess(guess, at.intercepted, at.code)

    async def believe(self, game: PlayedGame, turn: int) -> BelievedKeywords:
        named = (("guessed", NAME), ("before", BEFORE), ("other", OTHER))
        asked = await asyncio.gather(
            *(
                self._ask(
                    (game.deal, *game.cell, turn, name),
                    belief_prompt(self.world, game, turn, text),
                    said_words,
                )
                for name, text in named
            )
        )
        return BelievedKeywords(game.keywords, *asked)

    async def _ask(self, path: Sequence[Any], prompt: str, read: Any) -> Any:
        bench = replace(self.ctx.bench, world=pl.worlds.Question(), reward=None)
        there = self.ctx.with_bench(bench)
        task = pl.Task(id="probe", prompt=(pl.Message(role="user", content=prompt),))
        sample = pl.Sample(n=1, temperature=self.temperature)
        for i in range(1 + self.retries):
            key = self.ctx.key("probe", *map(str, path), i)
            (e,) = (await sample(there, key, pl.Group(task=task))).episodes
            if e.ok and (value := read(pl.response_text(e))):
                return value
        return ()


def share(hits: Sequence[bool]) -> pl.stats.Interval:
    return pl.stats.proportion(sum(hits), len(hits))


def prediction_numbers(made: Sequence[PredictedGuess]) -> dict[str, Any]:
    """How often the encoder predicts the interceptor's guess, against what needs no mind-reading: one
    who always names the true code hits where the interceptor is right. Turns without a guess that could
    be read are left out; a prediction that cannot be read is a miss.
    """
    able = [p for p in made if p.guess]
    if not able:
        return {}
    return {
        "perspective": share([p.prediction == p.guess for p in able]),
        "perspective_of_the_true_code": share([p.guess == p.code for p in able]),
        "predicts_the_true_code": share([p.prediction == p.code for p in able]),
    }


def belief_numbers(made: Sequence[BelievedKeywords]) -> dict[str, Any]:
    """The shares of the module `decrypto`, over turns whose first answer was read and wrong."""
    read = [b for b in made if b.guessed]
    numbers: dict[str, Any] = {}
    if made:
        numbers["keywords_right"] = share([b.guessed == b.true for b in made])
    wrong = [b for b in read if b.guessed != b.true]
    if wrong:
        numbers |= {
            "change_weak": share([bool(b.before) and b.before != b.true for b in wrong]),
            "change_strong": share([b.before == b.guessed for b in wrong]),
            "false_belief_weak": share([bool(b.other) and b.other != b.true for b in wrong]),
            "false_belief_strong": share([b.other == b.guessed for b in wrong]),
            "consistency": share([bool(b.before) and b.before == b.other for b in wrong]),
        }
    return numbers


def random_numbers(keywords: int) -> dict[str, float]:
    """The same of someone who answers at random: a code, or four different words of so many."""
    tuples = keywords * (keywords - 1) * (keywords - 2) * (keywords - 3)
    chance = 1 / tuples
    code = 1 / len(pl.worlds.CODES)
    return {
        "perspective": code,
        "predicts_the_true_code": code,
        "keywords_right": chance,
        "change_weak": 1 - chance,
        "change_strong": chance,
        "false_belief_weak": 1 - chance,
        "false_belief_strong": chance,
        "consistency": chance,
    }
