"""What is written for a task or a verifier is what is read; the language is one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from palaestra.errors import UserError
from palaestra.tasks.spec import parse_spec, split_outside, write_part
from palaestra.verifiers.registry import get_verifier

NAMES = st.from_regex(r"(rg:)?[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
KEYS = st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True).map(lambda k: f"x{k}")  # no word of Python
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
WEIGHTS = st.none() | st.integers(0, 100_000).map(lambda n: n / 1000)
PARTS = st.lists(st.tuples(NAMES, st.dictionaries(KEYS, VALUES, max_size=3), WEIGHTS), min_size=1, max_size=4)


@given(PARTS)
@example([("a", {"x": "'\""}, 0.5), ("rg:b-c", {"x": ("\\", "+")}, None)])
@example([("a", {"x": ")*2+b(y=1"}, None)])
@example([("a", {"x": "\\"}, None), ("b", {}, 2.0)])
def test_what_is_written_is_read(parts):
    pieces = [write_part(n, s.items()) + ("" if w is None else f"*{w:.10g}") for n, s, w in parts]
    for plus in ("+", " + "):
        read = parse_spec(plus.join(pieces), "task")
        assert [(p.name, dict(p.settings), p.weight) for p in read] == parts
    assert split_outside("+".join(pieces), "+") == pieces


@given(st.text(alphabet="ab:(){}[]=,*+.'\"\\\n 01-", max_size=20))
def test_what_cannot_be_read_is_one_line(text):
    try:
        read = parse_spec(text, "verifier")
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and ("write" in str(error) or "at least" in str(error))
    else:
        assert all(p.name and (p.weight is None or p.weight >= 0) for p in read)


def test_bare_words_are_text_and_lists_are_tuples():
    (part,) = parse_spec("a(x=word, y=[1, [2]], z=-1, w=one+two+three)", "task")
    assert part.settings == {"x": "word", "y": (1, (2,)), "z": -1, "w": "one+two+three"} and part.weight is None
    with pytest.raises(UserError, match="cannot be read"):
        parse_spec("a(x=word+1)", "task")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "verifier an empty part in '' cannot be read; write NAME, NAME(setting=value) or NAME*2, joined by +"),
        ("exact+", "verifier an empty part in 'exact+' cannot be read"),
        ("exact(", "verifier 'exact(' in 'exact(' cannot be read"),
        ("exact*x+f1", "the weight in 'exact*x' is no number; write NAME*2"),
        ("exact*-1+f1", "the weight in 'exact*-1' must be at least 0"),
        ("exact*nan+f1", "the weight in 'exact*nan' must be at least 0"),
        (
            "number(1)",
            "'number(1)' cannot be read; write settings as number(name=value), values as numbers, 'text' or (1, 2)",
        ),
        ("number(relative=open('x'))", "write settings as number(name=value)"),
        ("exact*2", "verifier 'exact*2': a weight needs other parts beside it; write 'exact'"),
        ("Exact", "no verifier 'Exact'; did you mean exact?"),
    ],
)
def test_mistakes_in_a_verifier(spec, says):
    with pytest.raises(UserError) as error:
        get_verifier(spec)
    assert says in str(error.value) and "\n" not in str(error.value)
