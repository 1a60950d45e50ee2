"""A number from 1 to 8 is to be named in three guesses; the world says higher or lower."""

import palaestra as pl


@pl.stage
class Numbers:
    """Odd numbers to train on, even ones to test with."""

    name: str = "higher"
    size: int | None = None

    def task(self, split: str, index: int) -> pl.Task:
        number = 1 + (2 * index + (split == "test")) % 8
        return pl.Task(id=f"{self.name}/{split}/{index}", answer=number)


@pl.stage
class Higher:
    """The state is (number, guesses so far, least, most)."""

    guesses: int = 3
    max_tokens: int = 4  # of a guess
    seats: tuple[str, ...] = ("policy",)

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self.ask((task.answer, 0, 1, 8), "guess 1-8")

    def step(self, state: tuple[int, ...], acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        number, turn, least, most = state
        text = acts[0].text.strip()
        guess = int(text) if text.isdecimal() else 0
        if guess == number or turn + 1 == self.guesses:
            return pl.Frame(state=state, pay={("policy", ""): float(guess == number)})
        if guess < number:
            return self.ask((number, turn + 1, max(least, guess + 1), most), "higher")
        return self.ask((number, turn + 1, least, min(most, guess - 1)), "lower")

    def ask(self, state: tuple[int, ...], text: str) -> pl.Frame:
        say = (pl.Message(role="user", content=text),)
        return pl.Frame(state=state, asks=(pl.Ask(seat="policy", say=say),))

    def oracle(self, state: tuple[int, ...]) -> str:
        return str((state[2] + state[3]) // 2 if state[1] + 1 < self.guesses else state[0])


def higher() -> tuple[Numbers, Higher]:
    return Numbers(), Higher()
