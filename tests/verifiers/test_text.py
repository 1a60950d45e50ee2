"""Texts as a reader takes them: words, sentences, forbidden words, scripts; short translations; calls in other forms."""

import json
import math

import pytest
from palaestra.errors import UserError
from palaestra.verifiers.answers.tools import ToolAnswer, ToolCalls
from palaestra.verifiers.registry import get_verifier
from palaestra.verifiers.text.constraints import Constraints, keeps_constraint
from palaestra.verifiers.text.formats import Clean, script_of
from palaestra.verifiers.text.translation import Translation
from palaestra.verifiers.text.writing import sentences_in, visible_form, words_in

from tests.rows import every


@every(
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


@every(
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


WEATHER = [{"name": "weather", "arguments": {"city": "Paris"}}]
MADE = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
NOW = [{"name": "now", "arguments": {}}]


def tagged(**call):
    return f"<tool_call>{json.dumps(call)}</tool_call>"


@every(
    "text",
    [
        f"One would write {MADE}, but it is not needed.",
        f"For example: {MADE}",
        f"I will not call {MADE}",
        f"A call could look like this: {MADE}",
        f"`{MADE}`",
        f'It says "{MADE}',
        f"> {MADE}",
        f"<!-- {MADE}",
        f"```xml\n{MADE}",
        f"```\n{MADE}\n```",
        f"~~~\n{MADE}\n~~~",
        f"{MADE}\nThe tool says 31 degrees.",
        f"{MADE}\nIt is 31.\n{MADE}",
        f"{MADE}\nNever mind.",
        f"{MADE}<tool_response>31</tool_response>",
        f"{MADE}</tool_response>",
        f"<think>{MADE}</think>",
        f"<think>{MADE}</think>Fine.",
        f"<think>Hm {MADE}",
        f"{MADE}</think>Fine.",
        f"{MADE}<think>Hm.</think>{tagged(name='now')}",
        f"{MADE}<function=delete_all>{{}}</function>",
        f"<function=delete_all>{{}}</function>{MADE}",
        f"delete_all(now=True)\n{MADE}",
        f"```python\ndelete_all()\n```\n{MADE}",
        f"Action: delete_all\nAction Input: {{}}\n{MADE}",
        f'[{{"tool": "delete_all", "input": {{}}}}]\n{MADE}',
        f'{MADE}<tool_call>{{"name": "del',
        f"{MADE}<tool_call>[]</tool_call>",
        tagged(name="Weather", arguments={"city": "Paris"}),
        tagged(name="weather", arguments={"city": "Paris"}, delete=True),
        tagged(name="weather", arguments='{"city": "paris"}'),
        tagged(name="weather", arguments='{"city": "Rome", "city": "Paris"}'),
        tagged(name="weather", arguments={"city": "Paris"}, parameters={}),
    ],
)
def test_calls_that_no_host_would_run_or_that_something_stands_against_are_not_paid(text):
    for partial in (False, True):
        assert ToolCalls(partial=partial)(text, WEATHER).score < 1, text
    assert ToolCalls()(text, WEATHER).score == 0


@every(
    "call",
    [
        {"name": "now", "parameters": {"delete": True}},
        {"name": "now", "args": {"delete": True}},
        {"name": "now", "input": {"delete": True}},
        {"name": "now", "delete": True},
        {"name": "now", "arguments": [1]},
        {"name": "now", "arguments": "delete"},
        {"name": "now", "arguments": "[]"},
        {"function": {"name": "now", "arguments": {"delete": True}}},
        {"function": {"name": "now"}, "arguments": {"delete": True}},
        {"type": "delete", "name": "now"},
    ],
)
def test_no_key_of_a_call_is_taken_for_no_arguments(call):
    assert ToolCalls()(tagged(**call), NOW).score == 0
    assert ToolCalls()(tagged(name="now"), NOW).score == 1


@pytest.mark.parametrize(
    "text",
    [
        tagged(id="1", type="function", name="weather", arguments={"city": "Paris"}),
        tagged(name="weather", arguments='{"city": "Paris"}'),
        tagged(name="weather", parameters={"city": "Paris"}),
        tagged(type="function", id="1", function={"name": "weather", "arguments": '{"city": "Paris"}'}),
        f"<tool_call>[{json.dumps(WEATHER[0])}]</tool_call>",
        f"I look it up. {MADE}\n",
        f"I can't know that without calling a tool, so I ask:\n\n{MADE}",
        f"<think>Not now() but <tool_call>oh</tool_call>?</think>\n{MADE}",
        f"Such calls are in a fence:\n```\nNo\n```\n{MADE}",
    ],
)
def test_a_call_in_each_way_that_hosts_write_it_is_paid(text):
    assert ToolCalls()(text, WEATHER).score == 1, text


@pytest.mark.parametrize("key", ["arguments", "args", "parameters"])
def test_arguments_of_a_reference_are_never_lost(key):
    gold = [{"name": "weather", key: {"city": "Paris"}}]
    assert ToolCalls()(MADE, gold).score == 1
    assert ToolCalls()(tagged(name="weather", arguments={}), gold).score == 0
    wrapped = [{"type": "function", "function": {"name": "weather", key: json.dumps({"city": "Paris"})}}]
    assert ToolCalls()(MADE, wrapped).score == 1


@pytest.mark.parametrize(
    "gold",
    [
        {"name": "weather", "input": {"city": "Paris"}},
        {"name": "weather", "city": "Paris"},
        {"name": "weather", "arguments": {}, "parameters": {"city": "Paris"}},
        {"name": "weather", "arguments": ["Paris"]},
        {"name": "weather", "arguments": None},
        {"tool": "weather", "arguments": {}},
    ],
)
def test_a_reference_with_a_key_that_is_not_read_is_refused(gold):
    with pytest.raises(UserError, match="a key beside its name and arguments; write"):
        ToolCalls()(MADE, [gold])


@every(
    "text",
    [
        "delete_all(now=True)",
        "I call:\n\n- `delete_all()`",
        "[delete_all(now=True), now()]",
        "```python\nprint(api.delete_all())\n```",
        "```tool_code\nx\n```",
        '[{"tool": "delete_all", "input": {}}]',
        '{"function": {"name": "delete_all", "arguments": "{}"}}',
        '{\\"name\\": \\"delete_all\\", \\"arguments\\": {}}',
        "Action: delete_all\nAction Input: {}",
        "Action: Delete[all]",
        "<tool_call>{",
        "<TOOL_CALL>delete",
        "<delete_all></delete_all>",
        "<|tool_calls_section_begin|>functions.delete_all:0",
        "<\uff5ctool\u2581calls\u2581begin\uff5c>delete_all",
        "<think>Which one?",
    ],
)
def test_where_no_call_is_due_each_form_of_one_is_seen(text):
    assert ToolCalls()(text, []).score == 0, text


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ann", "args": 3} is what you sent me.',
        "Use `print(x)` for that, or sorted(xs).",
        "```python\ndef f(x):\n    return g(x)\n```",
        "```python\nprint(len(x))\n```",
        "Paris (France) is warm.",
        "Action is what counts: begin.",
        "<answer>No tool fits.</answer>",
    ],
)
def test_where_no_call_is_due_prose_and_programs_are_none(text):
    assert ToolCalls()(text, []).score == 1, text


def test_a_tool_answer_reads_calls_outside_of_thoughts_alone():
    said = "<think><tool_call>oh</tool_call></think>4"
    assert ToolAnswer()(said, "4", turns=[MADE]).score == 1
    assert ToolAnswer()("4", "4", turns=[f"<think>{MADE}</think>"], tools=["weather"]).score == 0
    assert ToolAnswer()("4", "4", turns=[f"{MADE}[TOOL_RESULTS]4"]).score == 0
