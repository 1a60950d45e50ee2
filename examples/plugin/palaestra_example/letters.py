"""How many letters a word of up to `longest` letters has: a source of tasks with an answer each."""

from palaestra.types import Message, Task, rng_of, stage


@stage
class Letters:
    """`palaestra train --task "letters(longest=5)"`. Test words begin with b, training words with a."""

    longest: int = 8
    name: str = "letters"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((self.name, split, index))
        first = "b" if split == "test" else "a"
        rest = "".join(rng.choice([*"abc"]) for _ in range(int(rng.integers(self.longest))))
        word = Message(role="user", content=f"{first}{rest}")
        return Task(id=f"{self.name}/{split}/{index}", prompt=(word,), answer=1 + len(rest))
