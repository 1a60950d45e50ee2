"""T-clips: what is heard in a second of sound, with four options and a bias in the answers.

    which comes first?  Please choose the answer from the following options: noise, low, fall, high    ->    low

Three questions: `what` (one event), `first` (of two events) and `count` (beeps of one tone). Events
are a low and a high tone, a burst of noise, and a tone that rises or falls. Every clip has noise
of its own, and its pitches, lengths and times differ.

Each question has an answer that is right more often than the others: with probability `bias`, and
it is always among the options. So who hears nothing reaches `bias` at best; 0.25 is balanced.

`talk=True` puts facts of the clip in words before the question, in place of the sound: the same
problem for a reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK
from palaestra.sounds import Sound
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.types import Message, Task, rng_of, stage

RATE = 8_000  # samples a second; a clip has one second
EVENTS = ("low", "high", "noise", "rise", "fall")
COUNTS = ("one", "two", "three", "four")
FAVOURITES = {"what": "rise", "first": "noise", "count": "two"}  # right more often than others
QUESTIONS = {
    "what": "what is it?",
    "first": "which comes first?",
    "count": "how many?",
}
CHOOSE = "Please choose the answer from the following options: "
PITCHES = {"low": (250, 450), "high": (1800, 2600)}  # hertz
SWEEP = (400, 2400)  # hertz, of a tone that rises, and back
HISS = 0.003  # standard deviation of the noise behind every clip
SLOTS = 5  # places of beeps in a clip


@declare(
    columns=(
        ("options", tuple, "the answers to choose from"),
        ("question", str, "the words that ask, which a control may take away"),
        ("events", tuple, "what is heard, in order"),
    )
)
@stage
class Clips:
    """Clips with a question of `kinds` each, in turn by chance; no two splits share a clip.

    Args:
        bias: how often the favourite of a question is right, from 0.25, which is balanced.
        kinds: of questions: "what", "first" and "count".
        talk: the events stand in words in place of the sound.
    """

    bias: float = 0.45
    kinds: tuple[str, ...] = tuple(QUESTIONS)
    talk: bool = False
    name: str = "clips"
    size: int | None = None
    max_tokens: int = 8

    def __post_init__(self) -> None:
        if not 0.25 <= self.bias <= 1:
            raise UserError(f"clips: bias is from 0.25 to 1, not {self.bias}")
        if not self.kinds or not set(self.kinds) <= set(QUESTIONS):
            raise UserError(f"clips: kinds are some of {', '.join(QUESTIONS)}, not {self.kinds}")

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        # the same clips in sound and in words
        stream = stream_of(Clips(bias=self.bias, kinds=self.kinds))
        for attempt in range(REDRAWS):
            rng = rng_of((stream, split, index, attempt))
            kind = self.kinds[int(rng.integers(len(self.kinds)))]
            answer, options = self._options(rng, kind)
            events = scene_of(rng, kind, answer, options)
            seed = int(rng.integers(1 << 30))
            if split_of(f"clip {kind} {events} {seed}") == split:
                return self._task(
                    f"{self.name}/{split}/{index}", kind, answer, options, events, seed
                )
        raise UserError(f"{self!r} has too few clips for a {split} split")

    def _options(self, rng: np.random.Generator, kind: str) -> tuple[str, list[str]]:
        """The right answer, and the options in the order in which they are shown."""
        favourite, every = FAVOURITES[kind], COUNTS if kind == "count" else EVENTS
        others = [x for x in every if x != favourite]
        others = [others[int(i)] for i in rng.permutation(len(others))[:3]]
        right = favourite if rng.random() < self.bias else others[int(rng.integers(3))]
        options = [favourite, *others]
        return right, [options[int(i)] for i in rng.permutation(4)]

    def _task(
        self,
        identity: str,
        kind: str,
        answer: str,
        options: Sequence[str],
        events: tuple[str, ...],
        seed: int,
    ) -> Task:
        question = QUESTIONS[kind]
        asked = f"{question} {CHOOSE}{', '.join(options)}"
        if self.talk:
            message = Message(role="user", content=f"{' '.join(events)}. {asked}")
        else:
            clip = draw_clip(events, kind == "count", rng_of(("clip", seed)))
            message = Message(role="user", content=f"{PICTURE_MARK}{asked}", pictures=(clip,))
        meta = {"options": list(options), "question": question, "events": events}
        return Task(id=identity, prompt=(message,), answer=answer, meta=meta, domain=self.name)

    def check(self, text: str, task: Task) -> Mapping[str, float]:
        """1 where the right option, and no other, is contained."""
        words = re.findall(r"\w+", text.casefold())
        right = float([o for o in task.meta["options"] if o in words] == [task.answer])
        return {"total": right, "solved": right}

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The option alone."""
        return str(task.answer)


def scene_of(
    rng: np.random.Generator, kind: str, answer: str, options: Sequence[str]
) -> tuple[str, ...]:
    """What is heard, in order, so that the answer is right."""
    if kind == "count":
        pitch = ("low", "high")[int(rng.integers(2))]
        return (pitch,) * (COUNTS.index(answer) + 1)
    if kind == "what":
        return (answer,)
    others = [o for o in options if o != answer]
    return answer, others[int(rng.integers(len(others)))]


def draw_clip(events: Sequence[str], beeps: bool, rng: np.random.Generator) -> Sound:
    """One second of the events in order; `beeps`: short ones at some of five places, with a pitch in
    common.
    """
    wave_N = rng.normal(0, HISS, RATE)
    if beeps:
        low, high = PITCHES[events[0]]
        pitch, slot = rng.uniform(low, high), RATE // SLOTS
        for at in sorted(rng.permutation(SLOTS)[: len(events)].tolist()):
            n = int(slot * rng.uniform(0.5, 0.65))
            begin = at * slot + int(rng.integers(0, slot // 5))
            wave_N[begin : begin + n] += tone(np.full(n, pitch))
        return Sound.from_samples(wave_N, RATE)
    room = RATE // len(events)
    for i, event in enumerate(events):
        n = int(room * rng.uniform(0.6, 0.85))
        begin = i * room + int(rng.integers(0, room - n))
        wave_N[begin : begin + n] += draw_event(event, n, rng)
    return Sound.from_samples(wave_N, RATE)


def draw_event(event: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """[n] samples of one event."""
    if event == "noise":
        return rng.normal(0, 0.15, n) * fade(n)
    if event in PITCHES:
        return tone(np.full(n, rng.uniform(*PITCHES[event])))
    begin, end = SWEEP if event == "rise" else SWEEP[::-1]
    return tone(np.linspace(begin, end, n) * rng.uniform(0.9, 1.1))


def tone(hertz_N: np.ndarray, level: float = 0.4) -> np.ndarray:
    """[N] a sine with the pitch of each moment, faded in and out."""
    phase_N = 2 * np.pi * np.cumsum(hertz_N) / RATE
    return level * np.sin(phase_N) * fade(len(hertz_N))


def fade(n: int) -> np.ndarray:
    """[n] from 0 to 1 in 10 ms, and back at the end."""
    steps = np.arange(n)
    return np.minimum(1, np.minimum(steps, steps[::-1]) / (RATE / 100))
