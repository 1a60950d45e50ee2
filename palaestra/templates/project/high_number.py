"""A game of two: each says a number, and the higher one wins."""

import palaestra as pl


class HighNumber:
    seats = ("first", "second")

    def reset(self, task, key):
        return pl.Frame(state=(), asks=(self.ask("first"),))

    def ask(self, seat):
        return pl.Ask(seat=seat, say=(pl.Message(role="user", content=f"{seat}: a number?"),))

    def step(self, state, acts, key):
        said = (*state, len(acts[0].text))
        if len(said) == 1:
            return pl.Frame(state=said, asks=(self.ask("second"),))
        won = (said[0] > said[1]) - (said[0] < said[1])
        return pl.Frame(state=said, pay={("first", ""): float(won), ("second", ""): float(-won)})
