"""Facts of episodes and columns of tasks: declared where they are written, once and alike."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.declared import COMMON_COLUMNS, COMMON_FACTS, DeclaredName, declare

PACKAGE = Path(pl.__file__).parent
COMMON = {"facts": COMMON_FACTS, "columns": COMMON_COLUMNS}
NOTES = {
    "can",
    "question",
    "rules",
    "playbook",
    "episodes",
    "responses",
}  # facts of notes (`curriculum.Note`), not of episodes
TRAINERS = {"data_source", "extra_info", "info", "task"}  # columns that rewards of other trainers are given


@cache
def trees():
    return [ast.parse(p.read_text()) for p in sorted(PACKAGE.rglob("*.py"))]


@cache
def entries(kind):
    """(name, what else was said of it) of every entry of a `declare` in the package."""
    found = defaultdict(set)
    for call in (n for tree in trees() for n in ast.walk(tree) if isinstance(n, ast.Call)):
        if ast.unparse(call.func) in ("declare", "pl.declare"):
            for entry in (e for k in call.keywords if k.arg == kind for e in k.value.elts):
                name, *more = (
                    (entry.elts[0].value, *map(ast.unparse, entry.elts[1:]))
                    if isinstance(entry, ast.Tuple)
                    else (entry.value,)
                )
                found[name].add(tuple(more))
    return found


def names_in(tree, attribute):
    """Names that code reads or writes of `.facts` or `.meta`, where they stand there as text or as a constant of the file."""
    constants = {
        t.id: n.value.value
        for n in tree.body
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
        for t in n.targets
        if isinstance(t, ast.Name)
    }

    def named(node):
        text = constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
        return [text] if isinstance(text, str) else []

    def of(node):
        return isinstance(node, ast.Attribute) and node.attr == attribute

    for n in ast.walk(tree):
        if isinstance(n, ast.Subscript) and of(n.value):
            yield from named(n.slice)
        elif (
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "get" and of(n.func.value)
        ):
            yield from named(n.args[0])
        elif isinstance(n, ast.Compare) and any(map(of, n.comparators)):
            yield from named(n.left)
        elif isinstance(n, ast.keyword) and n.arg == attribute and isinstance(n.value, ast.Dict):
            yield from (name for key in n.value.keys if key is not None for name in named(key))


@pytest.mark.parametrize(
    ("attribute", "kind", "others"),
    [("facts", "facts", NOTES), ("meta", "columns", TRAINERS)],
)
def test_every_name_in_the_code_is_declared(attribute, kind, others):
    used = {name for tree in trees() for name in names_in(tree, attribute)}
    assert len(used) > 20
    cards = [catalogue.find(e.id).CARD for e in catalogue.all_entries() if e.built]
    asked = {c.name for card in cards for c in card.needs.columns}  # which a user's file has, with type and meaning
    assert sorted(used - set(entries(kind)) - set(COMMON[kind]) - others - asked) == []


@pytest.mark.parametrize("kind", COMMON)
def test_a_name_has_one_type_and_one_meaning(kind):
    for name, said in entries(kind).items():
        assert len(said) == 1, f"{name}: say it once, in COMMON_{kind.upper()}"
        assert (said == {()}) == (name in COMMON[kind])


def test_a_declaration_is_on_the_class_and_its_instances():
    @declare(facts=(("right", bool, "whether it is right"), "turns"), reads=("left",), reads_columns=("box",))
    class Part:
        pass

    assert Part().writes_facts == (DeclaredName("right", bool, "whether it is right"), COMMON_FACTS["turns"])
    assert Part().reads_facts == ("left",) and Part().reads_columns == ("box",) and not hasattr(Part, "writes_columns")


def test_a_name_without_type_and_meaning_is_refused():
    with pytest.raises(ValueError, match=r"'turnz' has no type and meaning.*did you mean turns"):
        declare(facts=("turnz",))
