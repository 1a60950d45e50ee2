"""T-intents: what somebody means, by a face that is seen and a voice that is heard.

    gift: what is meant? A praise B irony C threat D sorrow
        ->  <context>smile rise</context><think>smile rise is praise</think><answer>A</answer>

The answer needs both: a smile and a rising voice are praise, a smile and a falling one irony, a
frown and a rising one a threat, a frown and a falling one sorrow. Each topic has a meaning that is
right in `shortcut` of its questions, which can be answered from the words alone; `shortcut=0` are
questions on which that guess is always wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.sounds import Sound
from palaestra.tasks.options import LETTERS
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.toys.clips import RATE, draw_event
from palaestra.types import Message, Task, rng_of, stage

FACES, VOICES = ("smile", "frown"), ("rise", "fall")
MEANINGS = {
    ("smile", "rise"): "praise",
    ("smile", "fall"): "irony",
    ("frown", "rise"): "threat",
    ("frown", "fall"): "sorrow",
}
TOPICS = {"gift": "praise", "delay": "irony", "debt": "threat", "news": "sorrow"}
SIDE = 32  # pixels of a picture, which is square


@declare(
    columns=(
        ("options", tuple, "the answers to choose from"),
        ("question", str, "the words that ask, which a control may take away"),
        ("context", str, "what is seen and heard, in words"),
        ("problem_type", str, "how an answer is compared with the right one"),
    )
)
@stage
class Intents:
    """Questions of `shortcut` as above; no two splits share a scene."""

    shortcut: float = 0.6
    name: str = "intents"
    size: int | None = None
    max_tokens: int = 96

    def __post_init__(self) -> None:
        if not 0 <= self.shortcut <= 1:
            raise UserError(f"intents: shortcut is a share, not {self.shortcut}")

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        for attempt in range(REDRAWS):
            rng = rng_of((stream_of(self), split, index, attempt))
            topic = list(TOPICS)[int(rng.integers(len(TOPICS)))]
            others = [m for m in MEANINGS.values() if m != TOPICS[topic]]
            guessed = rng.random() < self.shortcut
            meaning = TOPICS[topic] if guessed else others[int(rng.integers(3))]
            seed = int(rng.integers(1 << 30))
            if split_of(f"intent {topic} {meaning} {seed}") == split:
                return self._task(f"{self.name}/{split}/{index}", topic, meaning, seed)
        raise UserError(f"{self!r} has too few scenes for a {split} split")

    def _task(self, identity: str, topic: str, meaning: str, seed: int) -> Task:
        face, voice = next(k for k, m in MEANINGS.items() if m == meaning)
        rng, options = rng_of(("intent", seed)), list(MEANINGS.values())
        listed = " ".join(f"{LETTERS[i]} {o}" for i, o in enumerate(options))
        question = f"{topic}: what is meant?"
        media = (draw_face(face, rng), draw_voice(voice, rng))
        content = f"{PICTURE_MARK}{PICTURE_MARK}{question} {listed}"
        return Task(
            id=identity,
            prompt=(Message(role="user", content=content, pictures=media),),
            answer=LETTERS[options.index(meaning)],
            meta={
                "options": options,
                "question": question,
                "context": f"{face} {voice}",
                "problem_type": "multiple choice",
            },
            domain=self.name,
        )

    def check(self, text: str, task: Task) -> Mapping[str, float]:
        """1 for the right letter between the tags of the answer."""
        answer = text.partition("<answer>")[2].partition("</answer>")
        right = float(bool(answer[1]) and answer[0].strip() == task.answer)
        return {"total": right, "solved": right}

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """What is seen and heard, what follows from it, and the letter."""
        seen, meaning = task.meta["context"], task.meta["options"][LETTERS.index(task.answer)]
        return f"<context>{seen}</context><think>{seen} is {meaning}</think><answer>{task.answer}</answer>"


def draw_face(face: str, rng: np.random.Generator) -> Picture:
    """A bright disc on dark ground with two eyes and a mouth, of which place and colours differ."""
    y, x = np.mgrid[:SIDE, :SIDE]
    shift = rng.integers(-2, 3, 2)
    x, y = x - SIDE / 2 - shift[0], y - SIDE / 2 - shift[1]
    pixels = np.full((SIDE, SIDE, 3), rng.integers(0, 60, 3), np.uint8)
    pixels[x**2 + y**2 < 12**2] = rng.integers(170, 256, 3)
    for side in (-5, 5):
        pixels[(x - side) ** 2 + (y + 4) ** 2 < 4] = 0
    bend = 4 * (1 - (x / 7) ** 2)  # of a mouth, lower in the middle of a smile
    mouth = 4 + bend if face == "smile" else 8 - bend
    pixels[(np.abs(x) < 7) & (np.abs(y - mouth) < 1.3)] = 0
    return Picture(shape=(SIDE, SIDE, 3), data=pixels.tobytes())


def draw_voice(voice: str, rng: np.random.Generator) -> Sound:
    """One second with a tone that rises or falls somewhere in it."""
    n = int(RATE * rng.uniform(0.5, 0.8))
    begin = int(rng.integers(0, RATE - n))
    wave_N = rng.normal(0, 0.01, RATE)
    wave_N[begin : begin + n] += draw_event(voice, n, rng)
    return Sound.from_samples(wave_N, RATE)


def recall_of_scene(written: str, reference: str) -> float:
    """The share of the reference's words, a face and a voice, that a text names; 0 where it also names
    the other face or voice, so that listing all earns nothing.
    """
    words, gold = set(written.casefold().split()), reference.split()
    others = {*FACES, *VOICES} - set(gold)
    return 0.0 if words & others else sum(w in words for w in gold) / max(len(gold), 1)
