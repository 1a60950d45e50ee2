"""Texts as a reader takes them: words, sentences, forbidden words, scripts; short translations; calls in other forms."""

import math

import pytest
from palaestra.errors import UserError
from palaestra.verifiers.answers.tools import ToolAnswer, ToolCalls
from palaestra.verifiers.registry import get_verifier
from palaestra.verifiers.text.constraints import Constraints, keeps_constraint
from palaestra.verifiers.text.formats import Clean, script_of
from palaestra.verifiers.text.translation import Translation
from palaestra.verifiers.text.writing import sentences_in, visible_form, words_in


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("A well-known author speaks", 4),
        ("state-of-the-art work is here", 4),
        ("my 10-year-old son", 3),
        ("this-is-a-really-long text", 6),  # more than four parts: each counts
        ("the-cat sat-on the-mat", 6),  # too many compounds: each part counts
        ("far_beyond_the limit", 4),
        ("I don't know, they’re off at five o'clock", 8),
        ("this'goes'on'and'on'without'end", 6),  # goes is no ending, and three pieces at most are one
        ("three\u200b\u2060 wo\u00adrds here", 3),
        ("我爱 you", 3),
        ("", 0),
    ],
)
def test_words(text, n):
    assert words_in(text) == n


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("U.S. policy is changing.", 1),
        ("He lives in the U.S. The rest do not.", 2),
        ("The U.S. Army is large.", 1),
        ("We met at 5 p.m. sharp.", 1),
        ("We left at 5 p.m. Then we slept.", 2),
        ("It is 5 p.m.", 1),
        ("Dr. J. K. Smith, Ph.D., has a pen, a book, etc. in No. 5.", 1),
        ("Apples, pears, etc. Then we left.", 2),
        ("It was I. Then we left.", 2),
        ("No. I will not.", 2),
        ("Pi is 3.14. Wait... what?!", 3),
        ("e.g. this, i.e. that. And more.", 2),
        ("一句。两句！", 2),
        ("a. b. c.", 3),
    ],
)
def test_sentences(text, n):
    assert sentences_in(text) == n


def test_forbidden_words_and_marks_are_looked_for_as_they_look():
    used = lambda text, *words: not keeps_constraint(text, ["content", "forbidden", *words])
    for text in (
        "a cat_ sat",
        "a c\u200bat",
        "a c\u0430t",
        "a ｃａｔ",
        "a \u0421\u0410\u0422",
        "a c\u00adat",
        "a \u03f2\u03b1t",
        "_cat_",
    ):
        assert used(text, "cat"), ascii(text)
    for text in ("a cats sat", "concat", "the dog"):
        assert not used(text, "cat"), text
    assert used("\u041a\u043e\u0442 \u0442\u0443\u0442", "\u043a\u043e\u0442") and used("snake_case name", "snake case")
    assert used("the \u041aing", "king") and not used("the king", "kings")
    for mark, text in (
        (",", "a， b"),
        (",", "a، b"),
        ("!", "no！"),
        ("-", "a\u2011b"),
        ("e", "l\u0435t"),
        ("\u200b", "a\u200bb"),
    ):
        assert not keeps_constraint(text, ["content", "without", mark]), ascii(text)
    assert keeps_constraint("a b", ["content", "without", ",", "\u200b"]) and keeps_constraint(
        "Eve", ["content", "without", "x"]
    )
    assert visible_form("\u0410\u0412") == "AB" and visible_form("ﬁ１") == "fi1"


def test_scripts_by_any_case():
    for name in ("latin", "Latin", "LATIN"):
        assert keeps_constraint("all letters", ["language", "script", name]) and script_of(name) == "LATIN"
    assert keeps_constraint("汉字", ["language", "script", "Chinese"]) and not keeps_constraint(
        "汉字", ["language", "script", "latin"]
    )
    assert Clean(script="latin")("a few words of text", None).score == 1.0
    for name in ("latn", 5, "?"):
        with pytest.raises(UserError, match="no script"):
            keeps_constraint("x", ["language", "script", name])


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([5], "constraints is list '.5.'; give it as a list, each a list"),
        (5, "constraints is int '5'"),
        ([[5]], "is unknown"),
        ([[["x"], "y"]], "is unknown"),
        ([["content", "keyword", 5]], "see palaestra"),
        ([["content", "forbidden", 5]], "see palaestra"),
        ([["content", "without", 5]], "see palaestra"),
        ([["length", "words", "at most", None]], "see palaestra"),
        ([], "a prompt has none"),
    ],
)
def test_a_constraint_of_another_type_is_the_users_mistake(constraints, message):
    with pytest.raises(UserError, match=message) as found:
        Constraints()("some words", None, constraints=constraints)
    assert "\n" not in str(found.value)


def translated(text, answer, **more):
    pytest.importorskip("sacrebleu")
    return Translation(**more)(f"<think>x</think><translate>{text}</translate>", answer, source="Hallo")


def test_short_references_know_a_right_answer():
    for text in ("Hello world!", "OK", "Yes.", "你好", "今日は"):
        for more in (
            {},
            {"metric": "mix"},
            {"metric": "sem"},
            {"language": "ja"},
            {"language": "ko"},
            {"language": "zh"},
        ):
            assert translated(f" {text} ", f"{text} ", **more).score == 1.0, (text, more)
    lex = lambda text, answer: translated(text, answer).parts["lex"]
    assert lex("Hello", "Hello world!") == pytest.approx(math.exp(1 - 3))  # precision 1, brevity exp(1 - 3 / 1)
    assert lex("Hello world", "Hello world!") == pytest.approx(math.exp(1 - 3 / 2))
    assert lex("Hello world! x", "Hello world!") == pytest.approx((3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3))
    assert lex("Good moon!", "Hello world!") == lex("Bye", "OK") == 0.0
    assert lex("the cat", "the cat sat on the mat") == 0.0  # a long reference keeps the order of four
    assert translated("今日は悪い天気です。", "今日はいい天気です。", language="ja").parts["lex"] == pytest.approx(
        0.658037, abs=1e-6
    )


def test_a_source_of_another_type_is_the_users_mistake():
    with pytest.raises(UserError, match="source is int '5'"):
        Translation()("<think>x</think><translate>x</translate>", "y", source=5)
    for more, message in (({"turns": 5}, "turns is int"), ({"tools": 5}, "tools is int")):
        with pytest.raises(UserError, match=message):
            ToolAnswer()("5", "5", **more)
    with pytest.raises(UserError, match="prompt is int"):
        get_verifier("clean")("x", None, prompt=5)


def test_where_no_tool_is_due_a_call_in_any_form_is_one():
    call = '{"name": "get", "arguments": {"n": 1}}'
    for text in (
        f"```json\n{call}\n```",
        call,
        "{'function': 'get', 'parameters': {}}",
        f"<function_call>{call}</function_call>",
        "<tool_calls>x",
        "[TOOL_CALLS] [get]",
        "<|python_tag|>get()",
        "<function=get>1</function>",
    ):
        for partial in (False, True):
            found = ToolCalls(partial=partial)(text, [])
            assert (found.score, found.status) == (0.0, "unparsable"), text
    for text in (
        "Hello!",
        'Its "name": Ann',
        "The function's arguments are a and b.",
        "<think>" + call + "</think>Hello!",
    ):
        assert ToolCalls()(text, []).score == 1.0, text
