"""What is played on a page: filling a form by an instruction, and naming what a filled form holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from palaestra.recipes.agents.qweb.goals import (
    FillableForm,
    FormGoal,
    dense_reward,
    potential,
)
from palaestra.recipes.agents.qweb.learner import Action
from palaestra.recipes.agents.qweb.network import (
    KINDS,
    MARKS,
    WORDS,
    PageView,
    shallow_encoding,
    word_rows,
)
from palaestra.recipes.agents.qweb.page import FormElement, FormPage, FormValues, words_of

SPARE = 4  # actions that a game may waste, beside as many as it has fields
Naming: TypeAlias = tuple[tuple[int, int], ...]  # (element, name) in the order of writing


@dataclass(frozen=True)
class PageArrays:
    """What of a page is always the same."""

    page: FormPage

    @cached_property
    def words(self) -> np.ndarray:
        return word_rows([e.words for e in self.page.elements])

    @cached_property
    def kind(self) -> np.ndarray:
        return np.array([KINDS.index(e.kind) for e in self.page.elements])

    @cached_property
    def links(self) -> np.ndarray:
        return tree_links([e.parent for e in self.page.elements])

    @cached_property
    def depth(self) -> np.ndarray:
        return np.array([e.depth for e in self.page.elements])

    @cached_property
    def shown(self) -> list[FormElement]:
        """The element whose state each shows: a label that of its target."""
        return [self.page.elements[e.target] for e in self.page.elements]

    def shallow(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return shallow_encoding([e.words for e in self.page.elements], pairs)

    def marks(self, values: FormValues) -> np.ndarray:
        """[E, 2] text that is held; a box or an option that is chosen. A label shows what it stands for."""
        rows = np.zeros((len(self.page.elements), MARKS), np.uint8)
        for i, e in enumerate(self.shown):
            if e.kind == "text":
                rows[i, 0] = values[e.control] != ""
            elif e.kind in ("check", "radio", "option"):
                rows[i, 1] = values[e.control] == ("yes" if e.kind == "check" else e.text)
        return rows

    def held(self, values: FormValues) -> list[str | None]:
        """What each element or a label's holds: nothing where it holds no value, or is not the chosen option."""
        texts = list[str | None]()
        for e in self.shown:
            holds = e.kind in ("text", "check") or (
                e.kind in ("radio", "option") and values[e.control] == e.text
            )
            texts.append(values[e.control] if holds else None)
        return texts


def tree_links(parents: Sequence[int]) -> np.ndarray:
    """[E, 3] the parent of each element, and the siblings before and behind it; -1 = none."""
    rows, last = np.full((len(parents), 3), -1), dict[int, int]()
    for i, parent in enumerate(parents):
        rows[i, 0] = parent
        if (before := last.get(parent)) is not None:
            rows[i, 1], rows[before, 2] = before, i
        last[parent] = i
    return rows


def actions_left(taken: int, limit: int) -> np.ndarray:
    """[1] the share of actions that are left."""
    return np.array([1 - taken / limit], np.float32)


def field_words(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """[F, 2, W] words of names and values."""
    rows = word_rows([words_of(text) for pair in pairs for text in pair])
    return rows.reshape(len(pairs), 2, WORDS)


@dataclass(frozen=True)
class FormFilling:
    """An instruction is to be carried out on a form, and the form submitted: 1 where all that is wanted is
    right then, -1 where it is not, and where it was not submitted within the limit.

    Args:
        first: what the form holds at the start.
        dense: whether gamma phi(s') - phi(s) is paid too.
        gamma: of the potential.
    """

    arrays: PageArrays
    goal: FormGoal
    first: FormValues
    dense: bool = True
    gamma: float = 1.0
    helped: bool = False  # it starts with right values, or its instruction was cut

    @property
    def limit(self) -> int:
        return len(self.goal.pairs) + SPARE

    @cached_property
    def known(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words of fields, shallow encoding, and legal actions: all."""
        pairs, E = self.goal.pairs, len(self.arrays.page.elements)
        return field_words(pairs), self.arrays.shallow(pairs), np.ones((E, 1 + len(pairs)), bool)

    def start(self) -> tuple[FormValues, bool]:
        return self.first, False

    def view(self, state: tuple[FormValues, bool], taken: int = 0) -> PageView:
        a, values = self.arrays, state[0]
        fields, shallow, legal = self.known
        texts = [v for _, v in self.goal.pairs]
        holds = np.array([[t == v for v in texts] for t in a.held(values)], np.uint8)
        return PageView(
            words=a.words, fields=fields, kind=a.kind, links=a.links, depth=a.depth,
            shallow=shallow, marks=a.marks(values), holds=holds, legal=legal,
            left=actions_left(taken, self.limit),
        )  # fmt: skip

    def step(
        self, state: tuple[FormValues, bool], action: Action
    ) -> tuple[tuple[FormValues, bool], float, bool]:
        element, typed = action
        text = None if typed is None else self.goal.pairs[typed][1]
        values, over = self.arrays.page.act(state[0], element, text)
        before, after = self.progress(state), self.progress((values, over))
        reward = dense_reward(before, after, self.gamma) if self.dense else 0.0
        if over:
            reward += 1.0 if after == 1 else -1.0
        return (values, over), reward, over

    def failure(self) -> float:
        return -1.0

    def progress(self, state: tuple[FormValues, bool]) -> float:
        return potential(state[0], self.goal.wanted)

    def solved(self, state: tuple[FormValues, bool]) -> bool:
        return state[1] and self.progress(state) == 1

    def pairs(self, state: tuple[FormValues, bool]) -> tuple[tuple[str, str], ...]:
        return self.goal.pairs

    def describe(self, state: tuple[FormValues, bool], action: Action) -> str:
        """What an action is, such as "type 'Oslo' into input origin"."""
        page, (element, typed) = self.arrays.page, action
        e = page.elements[element]
        name = page.controls[e.control].name if e.control >= 0 else ""
        what = " ".join(filter(None, (e.tag, name, e.text)))
        return (
            f"click {what}" if typed is None else f"type {self.goal.pairs[typed][1]!r} into {what}"
        )


@dataclass(frozen=True)
class FormNaming:
    """A form is filled in, and the instruction that describes it is to be written: pairs of an element,
    whose value is copied, and a name out of those that fields may have. An element is named once, and it
    is over when all have a name: 1 where all names are right, else -1; phi is the share that is right.

    Args:
        values: control to value, as the form holds them.
        names: that can be written, in a fixed order.
    """

    arrays: PageArrays
    form: FillableForm
    values: Mapping[int, str]
    names: tuple[str, ...]
    dense: bool = True
    gamma: float = 1.0
    first: FormValues = field(init=False)

    def __post_init__(self) -> None:
        page = self.form.page
        filled = tuple(self.values.get(i, c.initial) for i, c in enumerate(page.controls))
        object.__setattr__(self, "first", filled)

    @property
    def limit(self) -> int:
        return len(self.values)

    @cached_property
    def right(self) -> Mapping[int, set[int]]:
        """The element of each field, and the names that are right for it."""
        page = self.form.page
        return {
            page.element_for(f.control, self.values[f.control]): {
                self.names.index(n) for n in f.names
            }
            for f in self.form.fields
            if f.control in self.values
        }

    @cached_property
    def known(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        pairs = [(name, "") for name in self.names]
        return field_words(pairs), self.arrays.shallow(pairs), self.arrays.marks(self.first)

    def start(self) -> Naming:
        return ()

    def view(self, state: Naming, taken: int = 0) -> PageView:
        a, (fields, shallow, marks) = self.arrays, self.known
        E, F = len(a.page.elements), len(self.names)
        holds, legal = np.zeros((E, F), np.uint8), np.zeros((E, 1 + F), bool)
        done = {element for element, _ in state}
        for element, name in state:
            holds[element, name] = 1
        legal[[e for e in self.right if e not in done] or list(self.right), 1:] = True
        return PageView(
            words=a.words, fields=fields, kind=a.kind, links=a.links, depth=a.depth,
            shallow=shallow, marks=marks, holds=holds, legal=legal,
            left=actions_left(taken, self.limit),
        )  # fmt: skip

    def step(self, state: Naming, action: Action) -> tuple[Naming, float, bool]:
        element, name = action
        after = (*state, (element, name if name is not None else -1))
        over = len(after) >= len(self.right)
        reward = (
            dense_reward(self.progress(state), self.progress(after), self.gamma)
            if self.dense
            else 0.0
        )
        if over:
            reward += 1.0 if self.progress(after) == 1 else -1.0
        return after, reward, over

    def failure(self) -> float:
        return -1.0

    def progress(self, state: Naming) -> float:
        right = sum(name in self.right.get(element, ()) for element, name in state)
        return right / len(self.right) if self.right else 1.0

    def solved(self, state: Naming) -> bool:
        return self.progress(state) == 1

    def instruction(self, state: Naming) -> tuple[tuple[str, str], ...]:
        """The pairs of name and value that were written."""
        elements = self.arrays.held(self.first)
        return tuple((self.names[name], elements[element] or "") for element, name in state)


def write_goal(played: FormNaming, state: Naming, number: int) -> FormGoal:
    """The generated task: the instruction that was written, and the form as it was filled in."""
    pairs = played.instruction(state)
    owner = {e: played.arrays.page.elements[e].control for e in played.right}
    wanted = {owner[e]: played.values[owner[e]] for e, _ in state}
    return FormGoal(form=number, pairs=pairs, wanted=wanted)
