"""MiniWoB++ in a browser that is not shown, as pages that are played: https://miniwob.farama.org.

An action is a click on an element or the text of a field in it, done by Selenium in Chromium. The page pays 1
where the task is done and -1 where it is not; what of it is right meanwhile is not known. A browser has one
state, so an episode is played once and to its end before the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.qweb.games import SPARE, actions_left, field_words, tree_links
from palaestra.recipes.agents.qweb.learner import Action
from palaestra.recipes.agents.qweb.network import (
    KINDS,
    MARKS,
    PageView,
    shallow_encoding,
    word_rows,
)
from palaestra.recipes.agents.qweb.page import words_of

MISSING = (
    "MiniWoB++ is missing; `pip install 'palaestra[miniwob]'`, and Chromium with its driver: "
    "`apt-get install chromium chromium-driver`"
)
INPUTS = {"input_checkbox": "check", "input_radio": "radio", "option": "option", "textarea": "text",
          "button": "submit", "input_submit": "submit"}  # fmt: skip


@pl.value_class
class BrowserState:
    """What the browser shows.

    Args:
        elements: of the page, those that can be seen.
        pairs: the instruction.
        paid: 1 or -1 where it is over, else 0.
    """

    elements: tuple[Mapping[str, Any], ...]
    pairs: tuple[tuple[str, str], ...]
    paid: float = 0.0


def open_browsers(task: str, n: int) -> list[Any]:
    """`n` environments of a task, each with a browser of its own. Raises UserError where the library or the
    browser is missing, or the task is none of the library's.
    """
    try:
        gymnasium, library = import_module("gymnasium"), import_module("miniwob")
        binary = import_module("miniwob.reward").get_binary_reward
    except ImportError:
        raise pl.UserError(MISSING) from None
    gymnasium.register_envs(library)
    try:
        return [gymnasium.make(f"miniwob/{task}-v1", reward_processor=binary) for _ in range(n)]
    except gymnasium.error.Error as error:
        raise pl.UserError(f"miniwob={task}: {error}") from None
    except (
        Exception
    ) as error:  # of Selenium, which has no common class for a driver that is missing
        raise pl.UserError(f"{MISSING} ({type(error).__name__})") from None


def kind_of_tag(tag: str) -> str:
    tag = tag.casefold()
    return INPUTS.get(tag, "text" if tag.startswith("input") else "other")


@dataclass(frozen=True)
class BrowserPage:
    """An episode in a browser.

    Args:
        env: the environment of Gymnasium.
        seed: of the episode.
    """

    env: Any
    seed: int
    limit: int = 3 * SPARE
    helped: bool = False

    def start(self) -> BrowserState:
        seen, _ = self.env.reset(seed=self.seed)
        return self.read(seen, ())

    def read(
        self, seen: Mapping[str, Any], before: Sequence[Any], paid: float = 0.0
    ) -> BrowserState:
        """What is seen; the last page where none is shown any more."""
        elements = [e for e in seen["dom_elements"] if int(e["ref"]) > 0]
        pairs = tuple((str(k), str(v)) for k, v in seen["fields"])
        return BrowserState(elements=tuple(elements or before), pairs=pairs, paid=paid)

    def view(self, state: BrowserState, taken: int = 0) -> PageView:
        elements, pairs = state.elements, state.pairs
        index = {int(e["ref"]): i for i, e in enumerate(elements)}
        parents = [index.get(int(e["parent"]), -1) for e in elements]
        depth = list[int]()
        for parent in parents:
            depth.append(depth[parent] + 1 if 0 <= parent < len(depth) else 0)
        words = [words_of(f"{e['text']} {e['value']} {e['id']} {e['classes']}") for e in elements]
        kinds = [kind_of_tag(str(e["tag"])) for e in elements]
        marks = np.zeros((len(elements), MARKS), np.uint8)
        for row, e, kind in zip(marks, elements, kinds, strict=True):
            row[0] = kind == "text" and bool(e["value"])
            row[1] = kind in ("check", "radio") and str(e["value"]).casefold() == "true"
        holds = [[str(e["value"]) == v for _, v in pairs] for e in elements]
        return PageView(
            words=word_rows(words), fields=field_words(pairs),
            kind=np.array([KINDS.index(k) for k in kinds]), links=tree_links(parents),
            depth=np.array(depth), shallow=shallow_encoding(words, pairs), marks=marks,
            holds=np.array(holds, np.uint8).reshape(len(elements), len(pairs)),
            legal=np.ones((len(elements), 1 + len(pairs)), bool),
            left=actions_left(taken, self.limit),
        )  # fmt: skip

    def step(self, state: BrowserState, action: Action) -> tuple[BrowserState, float, bool]:
        element, typed = action
        ref = int(state.elements[element]["ref"])
        create = self.env.unwrapped.create_action
        if typed is None:
            given = create("CLICK_ELEMENT", ref=ref)
        else:
            given = create("FOCUS_ELEMENT_AND_TYPE_FIELD", ref=ref, field=typed)
        seen, paid, over, _, _ = self.env.step(given)
        after = self.read(seen, state.elements, float(paid)) if seen.get("fields") else None
        if after is None:
            after = BrowserState(elements=state.elements, pairs=state.pairs, paid=float(paid))
        return after, float(paid), bool(over)

    def failure(self) -> float:
        return -1.0

    def progress(self, state: BrowserState) -> float:
        """1 where the task is done; what of it is right before is not known."""
        return float(state.paid > 0)

    def pairs(self, state: BrowserState) -> tuple[tuple[str, str], ...]:
        return state.pairs

    def describe(self, state: BrowserState, action: Action) -> str:
        element, typed = action
        e = state.elements[element]
        what = " ".join(filter(None, (str(e["tag"]), str(e["id"]), str(e["text"]))))
        return f"click {what}" if typed is None else f"type {state.pairs[typed][1]!r} into {what}"

    def solved(self, state: BrowserState) -> bool:
        return state.paid > 0


@dataclass(frozen=True)
class BrowserProblem:
    """Episodes of a task, each of `envs` at a time; tests have seeds that training has not.

    Args:
        exam: how many tests there are.
    """

    envs: Sequence[Any]
    exam: int

    @property
    def together(self) -> int:
        return len(self.envs)

    def deal(self, share: float, rng: np.random.Generator) -> list[BrowserPage]:
        return [BrowserPage(env, self.exam + int(rng.integers(1 << 30))) for env in self.envs]

    def tests(self) -> list[BrowserPage]:
        return [BrowserPage(self.envs[i % self.together], i) for i in range(self.exam)]

    def close(self) -> None:
        for env in self.envs:
            env.close()
