"""A web form as a tree of elements, read from HTML: clicked on and typed into without a browser.

What a form holds is one text a control, a value of Python: text as it was typed, "yes" or "no" of a
checkbox, and the text of the chosen option of a group of radio buttons or of a list, "" = none. Scripts do
not run.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal, TypeAlias

import palaestra as pl

# what a click or a text does to an element; "other" takes neither
ElementKind: TypeAlias = Literal["other", "text", "check", "radio", "option", "submit", "reset"]
ControlKind: TypeAlias = Literal["text", "check", "choice"]
FormValues: TypeAlias = tuple[str, ...]  # what each control holds

VOID = {"input", "br", "hr", "img", "meta", "link", "area", "base", "col", "embed", "source", "wbr"}
UNSEEN = {"script", "style", "template", "noscript", "head", "datalist"}
KEPT = {
    "a",
    "button",
    "fieldset",
    "form",
    "input",
    "label",
    "legend",
    "option",
    "select",
    "textarea",
}
CONTROLS = {"input", "select", "textarea", "button"}
CLICKED = {"button", "image", "reset", "submit"}  # types of an input that hold no value
SUFFIXES = (".html", ".htm")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def words_of(text: str) -> tuple[str, ...]:
    """Words in small letters; "departureCity" and "departure_city" are two."""
    return tuple(WORD.findall(CAMEL.sub(" ", text).casefold()))


@pl.value_class
class FormElement:
    """An element that is seen.

    Args:
        words: of its text and of what names it.
        text: what is shown; of an option or a radio button what choosing it writes.
        parent: its index; -1 = the page.
        control: that it belongs to; -1 = none.
        target: the element that a click acts on, such as a label's.
    """

    tag: str
    kind: ElementKind
    words: tuple[str, ...]
    text: str
    parent: int
    depth: int
    control: int
    target: int


@pl.value_class
class FormControl:
    """What holds one value.

    Args:
        names: that it may be called by: its name, id and label.
        options: of a choice, their texts.
        aliases: other ways to write a value, such as an option's attribute `value`, to its text.
    """

    name: str
    kind: ControlKind
    names: tuple[str, ...]
    initial: str
    options: tuple[str, ...] = ()
    aliases: Mapping[str, str]


@pl.value_class
class FormPage:
    """A page with its elements in the order of the document."""

    name: str
    elements: tuple[FormElement, ...]
    controls: tuple[FormControl, ...]

    @property
    def initial(self) -> FormValues:
        return tuple(c.initial for c in self.controls)

    def act(self, values: FormValues, element: int, text: str | None) -> tuple[FormValues, bool]:
        """What the form holds afterwards, and whether it was submitted.

        Args:
            text: that is typed into the element; None = it is clicked on. Text goes nowhere but into
                fields of text, and a click on those changes nothing.
        """
        e = self.elements[element]
        if text is not None:
            return (write(values, e.control, text) if e.kind == "text" else values), False
        e = self.elements[e.target]
        if e.kind == "check":
            values = write(values, e.control, "no" if values[e.control] == "yes" else "yes")
        elif e.kind in ("radio", "option"):
            values = write(values, e.control, e.text)
        elif e.kind == "reset":
            values = self.initial
        return values, e.kind == "submit"

    def control_named(self, name: str) -> int | None:
        """The control that has this name, id or label; None = none, or more than one."""
        wanted = " ".join(name.split()).casefold()
        exact = [i for i, c in enumerate(self.controls) if c.name == name]
        alike = [i for i, c in enumerate(self.controls) if wanted in c.names]
        hits = exact or alike
        return hits[0] if len(hits) == 1 else None

    def oracle(self, values: FormValues, wanted: Mapping[int, str]) -> list[tuple[int, str | None]]:
        """Actions (element, text) that bring the controls to what is wanted, without the submission."""
        actions = list[tuple[int, str | None]]()
        for control, value in wanted.items():
            if values[control] != value:
                kind = self.controls[control].kind
                actions.append(
                    (self.element_for(control, value), value if kind == "text" else None)
                )
        return actions

    def element_for(self, control: int, value: str) -> int:
        """The element that a value is given by: an option of a choice, else the control's own."""
        own = [i for i, e in enumerate(self.elements) if e.control == control and e.target == i]
        if self.controls[control].kind == "choice":
            own = [i for i in own if self.elements[i].text == value]
        return own[0]


def write(values: FormValues, control: int, value: str) -> FormValues:
    return (*values[:control], value, *values[control + 1 :])


# ---- reading


@dataclass
class PageNode:
    """A node of the document, as it is read."""

    tag: str
    attributes: dict[str, str]
    parent: int
    pieces: list[tuple[int, str]] = field(
        default_factory=list[tuple[int, str]]
    )  # (nodes before, text)
    unseen: bool = False


class TreeReader(HTMLParser):
    """The nodes of a page; node 0 is the page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.nodes = [PageNode("page", {}, -1)]
        self.open = [0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("option", "optgroup") and self.nodes[self.open[-1]].tag == "option":
            self.open.pop()
        if tag == "body":  # which ends a head that nothing else ends
            self.handle_endtag("head")
        attributes = {k: v or "" for k, v in attrs}
        parent = self.open[-1]
        hidden = tag in UNSEEN or "hidden" in attributes or attributes.get("type") == "hidden"
        style = attributes.get("style", "").replace(" ", "").casefold()
        hidden = hidden or "display:none" in style or "visibility:hidden" in style
        seen = PageNode(tag, attributes, parent, unseen=hidden or self.nodes[parent].unseen)
        self.nodes.append(seen)
        if tag not in VOID:
            self.open.append(len(self.nodes) - 1)

    def handle_endtag(self, tag: str) -> None:
        depths = [d for d, n in enumerate(self.open) if d and self.nodes[n].tag == tag]
        if depths:
            del self.open[depths[-1] :]

    def handle_data(self, data: str) -> None:
        self.nodes[self.open[-1]].pieces.append((len(self.nodes), data))


@dataclass
class PageBuilder:
    """Makes elements and controls of nodes."""

    name: str
    nodes: list[PageNode]
    controls: list[FormControl] = field(default_factory=list[FormControl])

    def text(self, n: int, without: Iterable[str] = ()) -> str:
        """The text inside a node, in order, without that inside some tags."""
        pieces = list[tuple[int, int, str]]()
        for i, node in enumerate(self.nodes):
            if not node.unseen and self.is_inside(i, n, set(without)):
                pieces += [(at, k, text) for k, (at, text) in enumerate(node.pieces)]
        return " ".join(" ".join(text for _, _, text in sorted(pieces)).split())

    def is_inside(self, i: int, n: int, without: set[str]) -> bool:
        while i != n:
            if i < n or self.nodes[i].tag in without:
                return False
            i = self.nodes[i].parent
        return True

    def parent_of(self, n: int, *tags: str) -> int | None:
        n = self.nodes[n].parent
        while n >= 0 and self.nodes[n].tag not in tags:
            n = self.nodes[n].parent
        return n if n >= 0 else None

    def label(self, n: int) -> str:
        """The text that names a control: of its label, else its own attributes, else what stands before it."""
        own = self.nodes[n].attributes
        if key := own.get("id"):
            for i, node in enumerate(self.nodes):
                if node.tag == "label" and node.attributes.get("for") == key:
                    return self.text(i, CONTROLS)
        if (around := self.parent_of(n, "label")) is not None:
            return self.text(around, CONTROLS)
        given = own.get("aria-label") or own.get("placeholder") or own.get("title") or ""
        return given or self.before(n)

    def before(self, n: int) -> str:
        """The last text in front of a node, within its parent, behind any other control."""
        parent = self.nodes[n].parent
        since = [
            i for i in range(parent + 1, n)
            if self.nodes[i].tag in CONTROLS and self.is_inside(i, parent, set())
        ]  # fmt: skip
        first = since[-1] if since else parent
        texts = [
            (at, k, text)
            for i in range(parent, n)
            if self.is_inside(i, parent, set(CONTROLS))
            for k, (at, text) in enumerate(self.nodes[i].pieces)
            if first < at <= n and text.strip()
        ]
        return " ".join(max(texts)[2].split()) if texts else ""

    def page(self) -> FormPage:
        owners = self.read_controls()
        kept = [0]
        for n in range(1, len(self.nodes)):
            node = self.nodes[n]
            own_text = any(text.strip() for _, text in node.pieces)
            if not node.unseen and (node.tag in KEPT or own_text):
                kept.append(n)
        index = {n: i - 1 for i, n in enumerate(kept)}
        elements = list[FormElement]()
        for n in kept[1:]:
            parent = self.nodes[n].parent
            while parent not in index:
                parent = self.nodes[parent].parent
            above = index[parent]
            depth = elements[above].depth + 1 if above >= 0 else 0
            elements.append(self.element(n, above, depth, owners, len(elements)))
        targets = {i: self.target(n, kept, index, elements) for n, i in index.items() if i >= 0}
        return FormPage(
            name=self.name,
            elements=tuple(replace(e, target=targets[i]) for i, e in enumerate(elements)),
            controls=tuple(self.controls),
        )

    def element(
        self, n: int, parent: int, depth: int, owners: Mapping[int, int], own: int
    ) -> FormElement:
        node, control = self.nodes[n], owners.get(n, -1)
        kind, attributes = kind_of(node), node.attributes
        if "disabled" in attributes or ("readonly" in attributes and kind == "text"):
            kind = "other"
        if kind in ("text", "check", "radio", "option") and control < 0:
            kind = "other"
        label = self.label(n) if node.tag in ("input", "textarea", "select") else ""
        text = self.shown(n)
        named = (
            attributes.get(a, "") for a in ("name", "id", "placeholder", "title", "aria-label")
        )
        about = self.controls[control].names if control >= 0 and kind in ("radio", "option") else ()
        words = dict.fromkeys(words_of(" ".join((text, label, *named, *about))))
        return FormElement(
            tag=node.tag, kind=kind, words=tuple(words), text=text, parent=parent, depth=depth,
            control=control, target=own,
        )  # fmt: skip

    def shown(self, n: int) -> str:
        """What a person reads on the element itself."""
        node = self.nodes[n]
        if node.tag == "input":
            if node.attributes.get("type", "").casefold() == "radio":
                return self.label(n) or node.attributes.get("value", "")
            button = node.attributes.get("type", "").casefold() in CLICKED
            return node.attributes.get("value", "") if button else ""
        if node.tag in ("option", "button", "a", "label", "legend"):
            return self.text(n, CONTROLS - {node.tag}) or node.attributes.get("value", "")
        return " ".join(" ".join(text for _, text in node.pieces).split())

    def target(
        self, n: int, kept: Sequence[int], index: Mapping[int, int], elements: Sequence[FormElement]
    ) -> int:
        """A label stands for its checkbox, radio button or field; anything else for itself."""
        node = self.nodes[n]
        if node.tag != "label":
            return index[n]
        key = node.attributes.get("for")
        for m in kept[1:]:
            hit = self.nodes[m].attributes.get("id") == key if key else self.is_inside(m, n, set())
            if hit and elements[index[m]].kind in ("check", "radio", "text"):
                return index[m]
        return index[n]

    def read_controls(self) -> dict[int, int]:
        """Fills `controls`; node to the number of its control."""
        owners, groups = dict[int, int](), dict[tuple[int | None, str], int]()
        for n, node in enumerate(self.nodes):
            kind = kind_of(node)
            if node.unseen or "disabled" in node.attributes:
                continue
            if kind == "radio":
                key = (self.parent_of(n, "form"), node.attributes.get("name", ""))
                owners[n] = groups.setdefault(key, len(self.controls))
                if owners[n] == len(self.controls):
                    members = [m for m, x in enumerate(self.nodes) if kind_of(x) == "radio"
                               and (self.parent_of(m, "form"), x.attributes.get("name", "")) == key
                               and "disabled" not in x.attributes and not x.unseen]  # fmt: skip
                    legend = self.legend(n)
                    self.controls.append(self.choice(n, members, legend, "checked"))
            elif node.tag == "select":
                options = [m for m, x in enumerate(self.nodes)
                           if x.tag == "option" and self.is_inside(m, n, set())
                           and "disabled" not in x.attributes and not x.unseen]  # fmt: skip
                if options:
                    owners |= dict.fromkeys(options, len(self.controls))
                    self.controls.append(self.choice(n, options, self.label(n), "selected"))
            elif kind == "check":
                owners[n] = len(self.controls)
                start = "yes" if "checked" in node.attributes else "no"
                self.add(n, "check", self.label(n), start)
            elif kind == "text" and "readonly" not in node.attributes:
                owners[n] = len(self.controls)
                start = self.text(n) if node.tag == "textarea" else node.attributes.get("value", "")
                self.add(n, "text", self.label(n), start)
        return owners

    def legend(self, n: int) -> str:
        """The legend of the fieldset around a node."""
        box = self.parent_of(n, "fieldset")
        legends = [i for i, x in enumerate(self.nodes) if x.tag == "legend" and x.parent == box]
        return self.text(legends[0]) if box is not None and legends else ""

    def add(self, n: int, kind: ControlKind, label: str, initial: str) -> None:
        name, names = self.called(n, label)
        self.controls.append(
            FormControl(name=name, kind=kind, names=names, initial=initial, aliases={})
        )

    def choice(self, n: int, members: Sequence[int], label: str, start: str) -> FormControl:
        name, names = self.called(n, label)
        texts = {m: self.shown(m) for m in members}
        chosen = [texts[m] for m in members if start in self.nodes[m].attributes]
        first = texts[members[0]] if start == "selected" else ""  # a list shows its first option
        return FormControl(
            name=name, kind="choice", names=names, initial=chosen[0] if chosen else first,
            options=tuple(dict.fromkeys(texts.values())),
            aliases={v: texts[m] for m in members if (v := self.nodes[m].attributes.get("value"))},
        )  # fmt: skip

    def called(self, n: int, label: str) -> tuple[str, tuple[str, ...]]:
        """The name of a control, which no other has, and all in small letters that it may be called by."""
        attributes = self.nodes[n].attributes
        given = [attributes.get("name", ""), attributes.get("id", ""), label.rstrip(" :*")]
        name = next(filter(None, given), f"{self.nodes[n].tag} {len(self.controls) + 1}")
        taken, wanted = {c.name for c in self.controls}, name
        for k in range(2, len(taken) + 2):
            wanted = wanted if wanted not in taken else f"{name} {k}"
        return wanted, tuple(
            dict.fromkeys(" ".join(x.split()).casefold() for x in (wanted, *given) if x)
        )


def kind_of(node: PageNode) -> ElementKind:
    type_ = node.attributes.get("type", "").casefold()
    if node.tag == "button":
        return "submit" if type_ in ("", "submit") else "reset" if type_ == "reset" else "other"
    if node.tag == "input":
        if type_ in ("submit", "image"):
            return "submit"
        fixed: Mapping[str, ElementKind] = {"checkbox": "check", "radio": "radio", "reset": "reset"}
        return fixed.get(type_, "other" if type_ in ("button", "file", "hidden") else "text")
    return "text" if node.tag == "textarea" else "option" if node.tag == "option" else "other"


def read_page(name: str, html: str) -> FormPage:
    """The form of a page. Raises UserError where nothing can be filled in or submitted."""
    reader = TreeReader()
    reader.feed(html)
    reader.close()
    page = PageBuilder(name, reader.nodes).page()
    if not page.controls:
        raise pl.UserError(
            f"{name}: nothing can be filled in on this page; take it out of the folder"
        )
    if not any(e.kind == "submit" for e in page.elements):
        raise pl.UserError(f'{name}: nothing submits this form; add <button type="submit">')
    return page


def read_pages(path: str) -> tuple[FormPage, ...]:
    """The forms of an HTML file, or of those of a folder, by name. Raises UserError where there is none."""
    given = Path(path).expanduser()
    files = [given] if given.is_file() else sorted(given.rglob("*"))
    files = [f for f in files if f.is_file() and f.suffix.casefold() in SUFFIXES]
    if not files:
        raise pl.UserError(
            f"{path}: no form is there; name an HTML file, or a folder with .html files"
        )
    named = ((f.name if given.is_file() else str(f.relative_to(given)), f) for f in files)
    return tuple(
        read_page(n, f.read_text(encoding="utf-8-sig", errors="replace")) for n, f in named
    )
