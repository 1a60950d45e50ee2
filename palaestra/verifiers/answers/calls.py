"""The tool calls of a reply: those that it makes, and text that is a call in another form.

A reply makes its calls at its end, in <tool_call></tool_call>: a host would run them, and nobody
has yet seen their results. So text behind a call makes it no call (a result that is made up, a
withdrawal), and so do fences, quotation marks, and words before it that only mention it.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

from palaestra.verifiers.answers.short import strict_json
from palaestra.verifiers.base import fences

ToolCall: TypeAlias = tuple[str, Mapping[str, Any]]  # name, arguments

BLOCK = re.compile(r"<tool_call>((?:(?!</?tool_call>).)*)</tool_call>", re.DOTALL)
ARGUMENT_KEYS = ("arguments", "args", "parameters")
BESIDE_KEYS = {"id", "type"}  # what OpenAI's API puts beside a call
OTHER_MARKS = re.compile(  # of a call in another form than the one that is asked for
    r"<\s*[|｜/]?\s*(?:tool|function)[_ ▁]?calls?\b|<\|?tool▁calls?|\[TOOL_CALLS\]|\[/?TOOL_CALL"
    r"|<function\b|<invoke\b|<tool(?:_use|_name|_code)?\b|<param(?:eter)?\b|<arg_(?:key|value)>"
    r"|<\|(?:python_tag|plugin|action_start|tool_calls?\w*|channel)\|>|\bto=functions\."
    r"|\bfunctions\.\w+:\d|✿FUNCTION✿|<start_function_call>|\"?tool_?calls\"?\s*[:=]"
    r"|</?[a-z]+_[a-z_]+(?:\s[^<>]*)?/?>"
    r"|^\W*action(?:\W*input)\W*:|^\W*action\W*:\W*\w+(?:[(\[{].*)?\W*$"
    r"|^\W*(?:tool|function)(?:\W*(?:name|call))?\W*:\W*\w+\W*$",
    re.IGNORECASE | re.MULTILINE,
)
NAME_KEY = re.compile(
    r"[\"'](?:name|function|tool|action|recipient|(?:tool|function|recipient)_?name)\\?[\"']\s*:"
    r"\s*\\?[\"'{]",
    re.IGNORECASE,
)
ARGUMENTS_KEY = re.compile(
    r"[\"'](?:arguments|args|kwargs|param(?:eter)?s|(?:tool_?|action_?)?inputs?)\\?[\"']\s*:"
    r"\s*(?:\\?[\"']\s*)?[{\[]",
    re.IGNORECASE,
)
CALL_FENCES = (
    "tool_code",
    "tool_call",
    "tool_calls",
    "tool",
    "function_call",
    "function",
    "action",
)
PYTHON_FENCES = ("python", "py", "python3", "")
PYTHON_CALL = re.compile(r"[\[(]?\s*(?:await\s+)?[A-Za-z_][\w.]*\(.*\)\s*[\])]?;?", re.DOTALL)
LABEL = re.compile(r"^\s*(?:[-*>]+\s+|\d+[.)]\s+)?(?:[A-Za-z_ ]{1,30}:)?[\s`*]*")
LONGEST = 4000  # characters of a text that is tried as Python
MENTIONED = re.compile(  # words before a call by which it is only shown
    r"\b(?:e\.g\.|(?:for|as an?|an|another) (?:example|instance)\b|examples?:|hypothetical"
    r"|(?:would|might) (?:look|write|call|use|run|make|send)\b|(?:could|should) look\b"
    r"|would be\W*\Z|instead of\b|rather than\b|(?:imagine|suppose|pretend)\b"
    r"|(?:no|wrong|bad|incorrect|invalid) (?:tools?|functions?|calls?)\b)"
    r"|(?:\b(?:not|never|refuse to|decline to|avoid)|n['’]t)\s+"
    r"(?:(?!without|unless|until|before)\w+\s+){0,3}?"
    r"(?:call|run|execut|invok|us[ei]|mak[ei]|send|need|necessary|do\b)",
    re.IGNORECASE,
)
QUOTED = re.compile(r"(?:[`'\"“”‘’«„|\\]|<!--|//|^\s*[>#%].*)[^\S\n]*\Z", re.MULTILINE)


def call_of(given: Any) -> ToolCall | None:
    """A call as data; None for what is none.

    It is {"name", "arguments"}, or OpenAI's {"type", "id", "function": {...}}. The arguments are an
    object, or its JSON text; they may be left out, and `args` and `parameters` are other names of
    them. Any other key makes it no call: it may hold arguments too.
    """
    if not isinstance(given, Mapping):
        return None
    if "function" in given and not {"function"} ^ {k for k in given if k not in BESIDE_KEYS}:
        return call_of(given["function"])
    keys = [k for k in given if k in ARGUMENT_KEYS]
    name = given.get("name")
    if not isinstance(name, str) or not name or len(keys) > 1:
        return None
    if {*given} - {"name", *keys} - BESIDE_KEYS or given.get("type", "function") != "function":
        return None
    arguments: Any = given[keys[0]] if keys else {}
    try:
        arguments = strict_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None
    return (name, arguments) if isinstance(arguments, Mapping) else None


def calls_of(text: str) -> list[ToolCall] | None:
    """The calls in the tags of a text, each tag with a call or a list of them; None where one
    cannot be read.
    """
    calls: list[ToolCall] = []
    blocks = BLOCK.findall(text)
    if not len(blocks) == text.count("<tool_call>") == text.count("</tool_call>"):
        return None
    for block in blocks:
        try:
            given = strict_json(block)
        except ValueError:
            return None
        each = [call_of(x) for x in given] if isinstance(given, list) else [call_of(given)]
        if not each:
            return None
        for call in each:
            if call is None:
                return None
            calls.append(call)
    return calls


def makes_calls(text: str) -> bool:
    """Whether a host would run what stands in the tags, and the text says nothing against it: the
    tags are its end, and nothing before them quotes, fences, denies or only mentions them.
    """
    before, *behind = BLOCK.sub("\0", text).split("\0")
    if any(part.strip() for part in behind):
        return False
    fenced = len(re.findall(r"^\s*(?:```|~~~)", before, re.MULTILINE)) % 2
    return not (
        fenced or QUOTED.search(before) or MENTIONED.search(before) or has_other_call(before)
    )


def has_other_call(text: str) -> bool:
    """Whether a text holds a call in a form other than <tool_call>: the marks of another model,
    JSON with a name and arguments, an action of ReAct, a line of Python that only calls.
    """
    if OTHER_MARKS.search(text) or (NAME_KEY.search(text) and ARGUMENTS_KEY.search(text)):
        return True
    if fences(text, CALL_FENCES, cut=True):
        return True
    lines = [LABEL.sub("", line).rstrip("`*. ") for line in text.splitlines() if "(" in line]
    return any(map(is_python_call, (text, *fences(text, PYTHON_FENCES, cut=True), *lines)))


def is_python_call(text: str) -> bool:
    """Whether a text is Python that only calls, something that is none of Python's own functions."""
    text = text.strip()
    if len(text) > LONGEST or not PYTHON_CALL.fullmatch(text):
        return False
    try:
        with warnings.catch_warnings():  # Python's remarks on the style of what was written
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return all(isinstance(s, ast.Expr) for s in tree.body) and any(
        isinstance(n, ast.Call) and is_tool_name(n.func) for n in ast.walk(tree)
    )


def is_tool_name(node: ast.expr) -> bool:
    """Whether a name, or a name with dots, is none of Python's own."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and not hasattr(builtins, node.id)
