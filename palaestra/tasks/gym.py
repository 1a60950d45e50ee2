"""reasoning-gym's generators as endless tasks, judged by their own scorers
(open-thought/reasoning-gym, 0.1.25).

Not every generator is fit for training: REFUSED and HASH_ORDERED say why. Of every task given out, the
scorer pays the reference answer in full, and its text decides the split it belongs to, so the two
splits share no problem.
"""

from __future__ import annotations

import contextlib
import io
import math
import random
import re
import sys
import threading
import warnings
from collections.abc import Generator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.suggest import no_setting, suggestion
from palaestra.tasks.spec import write_part
from palaestra.types import Message, Task, seed_of, stage

NO_ANSWER = "its items have no reference answer"
RUNS_CODE = "its scorer runs the response as Python code"
REFUSALS: Mapping[str, str] = {
    "boxnet": NO_ANSWER,
    "graph_color": NO_ANSWER,
    "propositional_logic": NO_ANSWER,
    "rubiks_cube": NO_ANSWER,
    "rush_hour": NO_ANSWER,
    "intermediate_integration": RUNS_CODE,
    "polynomial_multiplication": RUNS_CODE,
    "simple_integration": RUNS_CODE,
    "coin_flip": "its scorer pays '0' in full and hangs on '1e999999999'",
    "game_of_life_halting": "its scorer pays every text in full",
    "puzzle24": "its scorer pays 24 from any four numbers",
    "composite": "it mixes others; join them with + instead",
}
HASH_ORDERED = (
    "isomorphic_strings",
    "knight_swap",
    "ransom_note",
    "word_ladder",
)  # items follow the order of a hashed set
# Scorers that hand the response to Python's or sympy's parser see only text that cannot call, loop
# or raise to a power.
LISTS = re.compile(r"""(?!.*\bfor\b)[\w\s,\[\]'"+-]*""", re.ASCII | re.DOTALL)
SUMS = re.compile(r"(?!.*(\*\*|//))[0-9\s+\-*/().]{1,300}", re.DOTALL)
COMPLEX = re.compile(r"[0-9\s+\-*.()ij]*")  # complex_arithmetic pays "nan" in full
READABLE_ANSWERS: Mapping[str, re.Pattern[str]] = {
    "binary_matrix": LISTS,
    "n_queens": LISTS,
    "spiral_matrix": LISTS,
    "string_insertion": LISTS,
    "countdown": SUMS,
    "complex_arithmetic": COMPLEX,
}
TEST_SHARE = 4  # one problem in so many belongs to the test split
REDRAWS = 200
STRIDE = 2**22  # between the attempts at one index
ISOLATION_LOCK = (
    threading.RLock()
)  # standard output, the filters of warnings and the random streams are the whole process's
CHUNK = 512  # a dataset object makes this many items: some prepare a list of that length


@stage
class Gym:
    """Tasks of one generator. `params` are its settings, `difficulty` the level of its whole
    curriculum.
    """

    generator: str
    params: tuple[tuple[str, Any], ...] = ()
    difficulty: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        refuse(self.generator)
        dataset(self, 0)

    @property
    def name(self) -> str:
        level = () if self.difficulty is None else (("difficulty", self.difficulty),)
        return write_part(f"rg:{self.generator}", (*self.params, *level))

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        return draw_item(self, split, index)

    def check(self, text: str, task: Task) -> float:
        """The generator's own score of the final answer, in [0, 1]. What its scorer cannot read is
        wrong.
        """
        gold, answer = str(task.answer), extract_gym_answer(text, str(task.answer))
        reads = READABLE_ANSWERS.get(self.generator)
        if (
            not answer
            or len(answer) > 4 * len(gold) + 1000
            or (reads and not reads.fullmatch(answer))
        ):
            return 0.0
        entry = {
            "question": task.prompt[-1].content,
            "answer": task.answer,
            "metadata": dict(task.meta),
        }
        try:
            with isolate_randomness():
                score = float(dataset(self, 0).score_answer(answer, entry))
        except Exception:
            return 0.0
        return score if math.isfinite(score) else 0.0


def extract_gym_answer(text: str, gold: str) -> str:
    """The last <answer>...</answer>; else the last line that is not blank, or the whole text if the
    gold has lines.
    """
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start >= 0:
        return text[start + len("<answer>") : end].strip()
    whole = text.strip()
    return whole if "\n" in gold.strip() else whole[whole.rfind("\n") + 1 :].strip()


def usable_generators() -> list[str]:
    """The generators that can be used."""
    return sorted(set(registry()) - set(REFUSALS))


def levels(generator: str) -> int:
    """How many difficulties a generator's curriculum has; 0 = it has none."""
    from reasoning_gym import factory  # pyright: ignore[reportMissingImports]

    if not factory.has_curriculum(generator):
        return 0
    return max(len(a.levels) for a in factory.create_curriculum(generator).attributes.values())


@lru_cache(maxsize=4096)
def draw_item(gym: Gym, split: str, index: int) -> Task:
    """The first item for this index that belongs to the split and whose reference answer is paid in
    full.
    """
    first = index + (2**30 if split == "test" else 0)
    for attempt in range(REDRAWS):
        item = item_at(gym, first + attempt * STRIDE)
        if item is None or (seed_of(("split", item["question"])) % TEST_SHARE == 0) != (
            split == "test"
        ):
            continue
        task = Task(
            id=f"{gym.name}/{split}/{index}",
            prompt=(Message(role="user", content=item["question"]),),
            answer=item["answer"],
            meta=item["metadata"],
            domain=gym.name,
        )
        if gym.check(f"<answer>{task.answer}</answer>", task) >= 0.99:
            return task
    raise UserError(
        f"{gym.name}: too few different problems for a {split} split; make it harder or its ranges "
        "wider"
    )


def item_at(gym: Gym, position: int) -> Mapping[str, Any] | None:
    """The item made from the seed `position`; None where the generator gives up."""
    chunk, at = divmod(position, CHUNK)
    made = dataset(gym, chunk)
    try:
        with isolate_randomness(position):
            return made[at]
    except (ValueError, IndexError, RuntimeError):
        return None


@lru_cache(maxsize=64)
def dataset(gym: Gym, chunk: int) -> Any:
    """A dataset object of CHUNK items, whose seeds follow on from the chunk before."""
    made, config = registry()[gym.generator]
    settings = _settings(gym, config)
    try:
        with isolate_randomness():
            start = config() if gym.difficulty is None else _level_config(gym)
            return made(replace(start, **settings, seed=chunk * CHUNK, size=CHUNK))
    except (AssertionError, ValueError, TypeError) as error:
        raise UserError(
            f"{gym.name}: {error or type(error).__name__}; change this setting"
        ) from None


def _settings(gym: Gym, config: type) -> dict[str, Any]:
    """The settings in the types of the configuration: tuples stand for lists."""
    defaults = {
        f.name: getattr(config(), f.name) for f in fields(config) if f.name not in ("seed", "size")
    }
    for key, _ in gym.params:
        if key not in defaults:
            raise UserError(no_setting(f"rg:{gym.generator}", key, defaults))
    return {
        k: list(v) if isinstance(defaults[k], list) and isinstance(v, tuple) else v
        for k, v in gym.params
    }


def _level_config(gym: Gym) -> Any:
    """The curriculum's configuration with every attribute at level `difficulty`, or at its last if
    it has fewer.
    """
    from reasoning_gym import factory  # pyright: ignore[reportMissingImports]

    n = levels(gym.generator)
    if not n:
        raise UserError(f"rg:{gym.generator} has no difficulties; set its ranges instead")
    if (
        isinstance(gym.difficulty, bool)
        or not isinstance(gym.difficulty, int)
        or not 0 <= gym.difficulty < n
    ):
        raise UserError(
            f"rg:{gym.generator} has the difficulties 0 to {n - 1}, not {gym.difficulty!r}"
        )
    curriculum = factory.create_curriculum(gym.generator)
    for attribute in curriculum.attributes.values():
        curriculum.set_attr_level(attribute.name, min(gym.difficulty, len(attribute.levels) - 1))
    return curriculum.generate_configuration()


def refuse(generator: str) -> None:
    """Raises for a generator that does not exist or cannot be trained on."""
    if generator not in registry():
        near = suggestion(generator, usable_generators())
        raise UserError(
            "reasoning-gym has no generator "
            f"{generator!r}{near or f'; there are {len(usable_generators())}, e.g. chain_sum'}"
        )
    if generator in REFUSALS:
        raise UserError(
            f"rg:{generator} is not offered: {REFUSALS[generator]}; choose another generator"
        )
    if generator in HASH_ORDERED and sys.flags.hash_randomization:
        raise UserError(
            f"rg:{generator} makes other items in every process; set PYTHONHASHSEED=0 in the "
            "environment"
        )


@lru_cache(maxsize=1)
def registry() -> Mapping[str, tuple[type, type]]:
    """The dataset and the configuration of each generator. Raises UserError without
    reasoning-gym.
    """
    try:
        with isolate_randomness():
            import reasoning_gym  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise UserError(
            f"rg:NAME needs reasoning-gym ({missing}): pip install 'palaestra[gym]', which needs a "
            "C compiler"
        ) from None
    return reasoning_gym.factory.DATASETS


@contextlib.contextmanager
def isolate_randomness(seed: int = 0) -> Generator[None]:
    """Some generators print, warn, draw from the global random streams or seed them; nothing of it
    gets in or out.
    """
    with ISOLATION_LOCK:
        states = random.getstate(), np.random.get_state()
        random.seed(seed)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
