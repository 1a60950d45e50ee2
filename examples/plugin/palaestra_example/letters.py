"""How many letters a word of up to `longest` letters has: a source of tasks with an answer each."""

import palaestra as pl


@pl.stage
class Letters:
    """`palaestra train --task "letters(longest=5)"`. Test words begin with b, training words with
    a.
    """

    longest: int = 8
    name: str = "letters"
    size: int | None = None

    def task(self, split: str, index: int) -> pl.Task:
        rng = pl.rng_of((self.name, split, index))
        first = "b" if split == "test" else "a"
        rest = "".join(rng.choice([*"abc"]) for _ in range(int(rng.integers(self.longest))))
        word = pl.Message(role="user", content=f"{first}{rest}")
        return pl.Task(id=f"{self.name}/{split}/{index}", prompt=(word,), answer=1 + len(rest))
