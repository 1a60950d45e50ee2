"""The settings of a run as keywords of `train`, `evaluate` and `compare`, for editors and type
checkers; and what a program reads in place of flags.

A setting is written in `palaestra.settings.fields`, with its default and its help. Here stand its name
and what a program may give for it, which for some is more than a file of settings can hold. A test
holds both together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, get_type_hints

from palaestra.errors import UserError
from palaestra.settings.fields import Settings
from palaestra.suggest import from_elsewhere, suggestion_or_all
from palaestra.trackers.base import Tracker

File: TypeAlias = str | Path
Rows: TypeAlias = Iterable[Mapping[str, Any]]
# files, rows, or a mapping of both splits, {"train": rows, "test": rows}
Data: TypeAlias = File | Rows | Mapping[str, Rows]
# texts as on the command line, functions, rewards, several that are added, or with their weights
RewardLike: TypeAlias = (
    str | Callable[..., Any] | Sequence[str | Callable[..., Any]] | Mapping[Any, float]
)
ToolsLike: TypeAlias = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]


class RunKeywords(TypedDict, total=False):
    """What names a problem, and how it is gone about."""

    task: str
    columns: str | Mapping[str, str]  # as on the command line, or what each column is read as
    skip_bad: str
    max_prompt_tokens: int
    overlong: str
    max_pixels: int
    max_frames: int
    max_duration: float
    reward: RewardLike
    reward_timeout: int
    env: File
    docs: File
    graph: File
    tools: ToolsLike
    tool_turns: int
    tool_seconds: float
    tool_chars: int
    break_tool: str
    agent: str
    agent_seconds: float
    agent_keep: bool
    agent_processes: int
    dtype: str
    device: str
    lora: int
    lora_alpha: int
    lora_targets: str
    load_in_4bit: bool
    engine: str
    slots: int
    cache_mb: int
    recompute: bool
    activation_offloading: bool
    max_tokens: int


class EvaluateKeywords(RunKeywords, total=False):
    """Settings of `evaluate`."""

    data: Data
    test_data: Data
    seed: int


class CompareKeywords(RunKeywords, total=False):
    """Settings of `compare`, whose runs are processes of their own: data is a file."""

    data: File
    test_data: File
    model: File
    data_seed: int | None
    evaluate: int
    set: Mapping[str, Any]


class TrainKeywords(RunKeywords, total=False):
    """Settings of `train`."""

    data: Data
    test_data: Data
    model: File
    seed: int
    data_seed: int | None
    goal: str
    llm: str
    optim: str
    tis: float
    cluster: str
    steps: int | None
    evaluate: int
    exams: str | Sequence[str]
    evaluate_every: int
    checkpoint_every: int | None
    keep_best: str
    patience: int
    keep: int
    merged: bool
    rollouts: str
    anyway: bool
    track: str | Tracker | Sequence[str | Tracker]
    track_seconds: int
    set: Mapping[str, Any]


def check_keywords(call: Callable[..., Any], settings: type, given: Mapping[str, Any]) -> None:
    """Raises UserError for a keyword that a function has not, with those that it has.

    Args:
        call: the function.
        settings: the TypedDict of the settings that it takes beside its own keywords.
        given: what it was called with, by name.
    """
    own = [
        p.name
        for p in inspect.signature(call).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    known = [*own, *get_type_hints(settings)]
    for name, value in given.items():
        if name not in known:
            meant = from_elsewhere(name, value=value) or suggestion_or_all(name, known)
            raise UserError(f"unknown setting {name!r}{meant}")


# ---- flags as keywords

KEYWORDS = {f.name.replace("_", "-"): f.name for f in fields(Settings)} | {
    "out": "out",
    "resume": "resume",
    "accept-changes": "accept_changes",
    "key-env": "key_env",
    "rewards": "rewards",
    "lengths": "lengths",
    "group": "groups",
}
SWITCHES = {"accept-changes"} | {
    f.name.replace("_", "-") for f in fields(Settings) if f.default is False
}
# a command, which stays as it is; or a flag, and the text behind it where that is a value
WORDS = re.compile(
    r"\bpalaestra [a-z]+ [^;`]*"
    r"|(?<![\w-])--([a-z][a-z-]*)(?: ([\w./]+=[\w.,=#/]*[\w#]|[\w./-]+\.py:\w+))?"
)


@contextmanager
def flags_as_keywords() -> Generator[None]:
    """What a UserError inside says of flags, it says of keywords outside."""
    try:
        yield
    except UserError as error:
        text = keyword_text(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error


def keyword_text(text: str) -> str:
    """A message with keywords for flags."""
    return WORDS.sub(_keyword, text)


def _keyword(match: re.Match[str]) -> str:
    name, given = match[1], match[2]
    if name not in KEYWORDS:
        return match[0]
    if name in SWITCHES:
        return f"{KEYWORDS[name]}=True"
    return f'{KEYWORDS[name]}="{given}"' if given else KEYWORDS[name]
