"""What is to be filled in: instructions drawn from a list of fields, held-out ones, and how they are made
easier at the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.qweb.page import FormControl, FormPage, FormValues
from palaestra.recipes.agents.qweb.toy import CITIES, PEOPLE

Pair: TypeAlias = tuple[str, str]  # what a field is called, and its value
CHECKED = {"yes": "yes", "true": "yes", "on": "yes", "1": "yes",
           "no": "no", "false": "no", "off": "no", "0": "no"}  # fmt: skip
FEWEST = 5  # values of a field of text; with fewer none is held out
HELD_OUT = 5  # one in so many values of text


@pl.value_class
class FormField:
    """A field that instructions may name.

    Args:
        control: its number on the page.
        names: that an instruction may call it, at least one.
        values: that are drawn in training.
        held_out: that are drawn in tests alone; () = the same.
    """

    control: int
    names: tuple[str, ...]
    values: tuple[str, ...]
    held_out: tuple[str, ...] = ()


@pl.value_class
class FillableForm:
    """A page and its fields."""

    page: FormPage
    fields: tuple[FormField, ...]

    @property
    def instructions(self) -> int:
        """How many there are with every field, values counted and not what fields are called."""
        counts = [len({*f.values, *f.held_out}) for f in self.fields]
        return int(np.prod(counts, dtype=object))


@pl.value_class
class FormGoal:
    """An instruction, and what the controls then hold.

    Args:
        form: the number of its form.
        pairs: the instruction, which the agent reads.
        wanted: control to value, which it does not see.
    """

    form: int
    pairs: tuple[Pair, ...]
    wanted: Mapping[int, str]


def potential(values: FormValues, wanted: Mapping[int, str]) -> float:
    """phi: the share of wanted controls that hold the right value. Of nothing wanted it is 1."""
    right = sum(values[c] == v for c, v in wanted.items())
    return right / len(wanted) if wanted else 1.0


def dense_reward(before: float, after: float, gamma: float = 1.0) -> float:
    """gamma phi(s') - phi(s)."""
    return gamma * after - before


# ---- curriculum


def warm_probability(start: float, share: float, until: float) -> float:
    """p_ws: the probability that an episode starts with some fields right, `start` at first, and 0 from
    the share `until` of training on.
    """
    return start * max(0.0, 1 - share / until) if until > 0 else 0.0


def simulated_size(n: int, share: float, until: float) -> int:
    """Fields of n that an instruction may have at a share of training: 1 at first, all from `until` on."""
    return n if share >= until else min(n, 1 + int(n * share / until))


def cut_goal(goal: FormGoal, size: int, rng: np.random.Generator) -> FormGoal:
    """A smaller goal: `size` of its fields, drawn alike, in their order."""
    kept = sorted(rng.permutation(len(goal.pairs))[:size].tolist())
    wanted = list(goal.wanted.items())
    return replace(
        goal, pairs=tuple(goal.pairs[i] for i in kept), wanted=dict(wanted[i] for i in kept)
    )


def warm_start(
    page: FormPage, wanted: Mapping[int, str], rng: np.random.Generator
) -> tuple[FormValues, int]:
    """What the form holds after an oracle filled 1 to all of the wanted controls, as many alike, and how
    many of them it made right.
    """
    todo = {c: v for c, v in wanted.items() if page.initial[c] != v}
    if not todo:
        return page.initial, 0
    chosen = rng.permutation(list(todo))[: rng.integers(1, len(todo) + 1)].tolist()
    values = page.initial
    for element, text in page.oracle(values, {c: wanted[c] for c in chosen}):
        values, _ = page.act(values, element, text)
    return values, len(chosen)


# ---- drawing


def draw_goal(
    forms: Sequence[FillableForm], rng: np.random.Generator, held_out: bool = False
) -> FormGoal:
    """A goal with every field of a form, both drawn alike; fields in random order."""
    n = int(rng.integers(len(forms)))
    pairs, wanted = list[Pair](), dict[int, str]()
    for i in rng.permutation(len(forms[n].fields)).tolist():
        field = forms[n].fields[i]
        values = (held_out and field.held_out) or field.values
        value = values[int(rng.integers(len(values)))]
        pairs.append((field.names[int(rng.integers(len(field.names)))], value))
        wanted[field.control] = value
    return FormGoal(form=n, pairs=tuple(pairs), wanted=wanted)


def draw_other(
    forms: Sequence[FillableForm],
    tests: Sequence[FormGoal],
    rng: np.random.Generator,
    tries: int = 100,
) -> FormGoal | None:
    """A goal that no test has; None where `tries` draws gave none."""
    known = [(g.form, dict(g.wanted)) for g in tests]
    for _ in range(tries):
        goal = draw_goal(forms, rng)
        if (goal.form, dict(goal.wanted)) not in known:
            return goal
    return None


def fill_at_random(form: FillableForm, rng: np.random.Generator) -> dict[int, str]:
    """A random policy by rules: it visits every field in random order and gives it one of its values.

    Returns:
        control to value, as the form then holds them.
    """
    page, values = form.page, form.page.initial
    for i in rng.permutation(len(form.fields)).tolist():
        field = form.fields[i]
        value = field.values[int(rng.integers(len(field.values)))]
        for element, text in page.oracle(values, {field.control: value}):
            values, _ = page.act(values, element, text)
    return {f.control: values[f.control] for f in form.fields}


# ---- a user's files


def form_without_list(page: FormPage, rng: np.random.Generator) -> FillableForm:
    """Every control is a field, called by its label, and text is made up."""
    made_up = (*CITIES, *PEOPLE)
    fields = [
        field_of(i, c, (c.names[-1],), made_up if c.kind == "text" else (), rng)
        for i, c in enumerate(page.controls)
    ]
    return FillableForm(page=page, fields=tuple(fields))


def field_of(
    number: int,
    control: FormControl,
    names: tuple[str, ...],
    values: Sequence[str],
    rng: np.random.Generator,
) -> FormField:
    """A field whose values are given, or those that the control allows; of text one value in five is held
    out for tests.
    """
    allowed = ("yes", "no") if control.kind == "check" else control.options
    given = tuple(dict.fromkeys(values)) or allowed
    held_out: tuple[str, ...] = ()
    if control.kind == "text" and len(given) >= FEWEST:
        given = tuple(given[i] for i in rng.permutation(len(given)))
        held_out, given = given[: len(given) // HELD_OUT], given[len(given) // HELD_OUT :]
    return FormField(control=number, names=names, values=given, held_out=held_out)


def value_for(control: FormControl, value: Any, where: str) -> str:
    """A value as the form holds it. Raises UserError for one that the control cannot take."""
    if value is None or isinstance(value, list | dict):
        raise pl.UserError(
            f"{where}: {control.name!r} is {value!r}; write one value, or leave the field out"
        )
    text = str(value).strip()
    if control.kind == "check":
        if text.casefold() not in CHECKED:
            raise pl.UserError(
                f"{where}: {control.name!r} is a checkbox; write yes or no, not {text!r}"
            )
        return CHECKED[text.casefold()]
    if control.kind == "text":
        if not text:
            raise pl.UserError(f"{where}: {control.name!r} has an empty value; leave the field out")
        return text
    alike = [o for o in control.options if o.casefold() == text.casefold()]
    if text in control.options or alike or text in control.aliases:
        return text if text in control.options else (alike or [control.aliases.get(text, "")])[0]
    offered = ", ".join(map(repr, control.options))
    raise pl.UserError(f"{where}: {control.name!r} offers {offered}, not {text!r}")


def text_list(value: Any) -> list[Any]:
    """A list as it is, another value as a list of one, nothing as none."""
    if isinstance(value, list | tuple):
        return list(value)
    return [] if value is None or value == "" else [value]


class FieldList:
    """The lines of a user's files, read for some pages."""

    def __init__(self, pages: Sequence[FormPage], rng: np.random.Generator):
        self.pages, self.rng = pages, rng

    def forms(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[FillableForm, ...]:
        """The forms of a list of fields, of pages that it names; others are left out.

        Args:
            rows: (where, record) with `control`, and `page`, `field` and `values` if they are given.

        Raises:
            UserError: for a control that is not there, or text without values.
        """
        fields: dict[int, dict[int, FormField]] = {}
        for where, row in rows:
            n = self.page_of(row, where)
            i = self.control_of(n, row.get("control"), where)
            control, own = self.pages[n].controls[i], fields.setdefault(n, {})
            if i in own:
                raise pl.UserError(
                    f"{where}: {control.name!r} has a line already; `field` takes a list of names"
                )
            values = [value_for(control, v, where) for v in text_list(row.get("values"))]
            if control.kind == "text" and not values:
                raise pl.UserError(
                    f'{where}: {control.name!r} takes text; give some to draw from: "values": ["..."]'
                )
            names = tuple(str(x).strip() for x in text_list(row.get("field"))) or (
                control.names[-1],
            )
            own[i] = field_of(i, control, names, values, self.rng)
        if not fields:
            raise pl.UserError(
                'the list of fields is empty; a line is {"control": "from", "values": ["Oslo"]}'
            )
        return tuple(
            FillableForm(page=self.pages[n], fields=tuple(own.values()))
            for n, own in fields.items()
        )

    def page_of(self, row: Mapping[str, Any], where: str) -> int:
        if (name := row.get("page")) is None and len(self.pages) == 1:
            return 0
        hits = [n for n, p in enumerate(self.pages) if p.name == name]
        if not hits:
            known = ", ".join(p.name for p in self.pages)
            raise pl.UserError(f"{where}: which page? write one of {known} in the column 'page'")
        return hits[0]

    def control_of(self, n: int, name: Any, where: str) -> int:
        page = self.pages[n]
        i = page.control_named(name) if isinstance(name, str) else None
        if i is None:
            known = ", ".join(c.name for c in page.controls)
            raise pl.UserError(
                f"{where}: {page.name} has no one control {name!r}; there are {known}"
            )
        return i


def read_goals(
    forms: Sequence[FillableForm], rows: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[FormGoal, ...]:
    """A user's instructions.

    Args:
        rows: (where, record) with `instruction`, a record of values by what fields are called, `page` where
            there are several, and `goal`, a record of values by control, where a name in the instruction
            is none of the list and of no control.

    Raises:
        UserError: for a row whose goal is not clear.
    """
    lists, goals = FieldList([f.page for f in forms], np.random.default_rng(0)), list[FormGoal]()
    for where, row in rows:
        n, instruction, given = lists.page_of(row, where), row.get("instruction"), row.get("goal")
        if (
            not isinstance(instruction, Mapping)
            or not instruction
            or not isinstance(given, Mapping | None)
        ):
            raise pl.UserError(
                f'{where}: an instruction is a record, {{"instruction": {{"from": "Oslo"}}}}'
            )
        page, wanted = forms[n].page, dict[int, str]()
        names = {x.casefold(): f.control for f in forms[n].fields for x in f.names}
        for name, value in (given or instruction).items():
            i = names.get(str(name).casefold()) if given is None else None
            i = lists.control_of(n, name, where) if i is None else i
            wanted[i] = value_for(page.controls[i], value, where)
        pairs = tuple((str(k), str(v)) for k, v in instruction.items())
        if given is None:  # what is typed is what the form shall hold
            pairs = tuple((k, v) for (k, _), v in zip(pairs, wanted.values(), strict=True))
        goals.append(FormGoal(form=n, pairs=pairs, wanted=wanted))
    return tuple(goals)
