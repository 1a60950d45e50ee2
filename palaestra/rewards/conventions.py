"""How a user's reward function is called: the conventions of this package and of others, told apart
by the names of the parameters.

- Ours: `(responses, answers, **fields)`, lists for the whole batch, the first two by their place;
  or for one answer `(response, answer, **fields)`.
- TRL: `(prompts, completions, **columns)`, lists. Texts where the data wrote the prompt as text,
  lists of messages where it is a conversation.
  https://huggingface.co/docs/trl/grpo_trainer#using-a-custom-reward-function
- verl: `compute_score(data_source, solution_str, ground_truth, extra_info)` for one answer, or with
  plural names for a batch; a number, or a dictionary whose "score" is the reward and whose "acc"
  says what is right. https://verl.readthedocs.io/en/latest/preparation/reward_function.html
- verifiers: any of `prompt, completion, answer, state, info, task`, for one answer, and in plural
  for the answers to one prompt. https://docs.primeintellect.ai/verifiers/environments
- OpenRLHF: `(queries, prompts, labels)`, lists; a tensor, or a dictionary with "rewards".
  https://openrlhf.readthedocs.io/en/latest/agent_training.html
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from numbers import Real
from typing import Any, Literal, TypeAlias

from palaestra.tasks.user_code import with_own_data
from palaestra.types import Episode, Message, Task, value_class

Row: TypeAlias = Mapping[str, Any]
Unit: TypeAlias = Literal["answer", "group", "batch"]


def read_parts(value: Any) -> Any:
    """Named parts as ours: where "score" stands without "total" it is the reward, as in verl, where
    "acc" says what is right. Other numbers are parts, other texts labels; verl's further values,
    such as lists, are left out.
    """
    if not isinstance(value, Mapping) or "score" not in value or "total" in value:
        return value
    others = {k: v for k, v in value.items() if k not in ("score", "acc")}
    kept = {k: v for k, v in others.items() if isinstance(v, str) or is_number(v)}
    known = {"solved": value["acc"]} if value.get("acc") in (0, 1) else {}
    return {**kept, "total": value["score"], **known}


def is_number(x: Any) -> bool:
    return isinstance(x, Real) or (hasattr(x, "item") and set(getattr(x, "shape", (0,))) <= {1})


@value_class
class Attempt:
    """One answer that waits for its reward; `text` is what the policy said last."""

    task: Task
    episode: Episode
    text: str


@value_class
class Convention:
    """How functions of one kind are called.

    `marks` are parameters that all of them have. `row` gives what a function may ask for of one
    attempt; a call for a group or a batch has lists of these. `read` turns what was returned for
    one answer into a number, None or named parts; `unwrap` what was returned for many into a list.
    """

    name: str
    marks: tuple[frozenset[str], ...]  # any one of these sets
    unit: Unit
    row: Callable[[Attempt], Row]
    read: Callable[[Any], Any] = read_parts
    unwrap: Callable[[Any], Any] = lambda x: x
    constants: Mapping[str, Any] = field(default_factory=dict)
    by_place: int = 0  # parameters that are given by place, whatever they are called

    def fits(self, names: Sequence[str]) -> bool:
        return any(mark <= set(names) for mark in self.marks)

    def arguments(self, attempts: Sequence[Attempt]) -> dict[str, Any]:
        """All that a function may ask for, by name. Each attempt has lists and dictionaries of its
        own: a function that changes them changes those of no other attempt.
        """
        rows = [self.row(replace(a, task=with_own_data(a.task))) for a in attempts]
        if self.unit == "answer":
            return {**self.constants, **rows[0]}
        names = dict.fromkeys(k for row in rows for k in row)
        return {**self.constants, **{k: [row.get(k) for row in rows] for k in names}}


def convention_of(function: Callable[..., Any]) -> Convention | None:
    """The first convention that a function's parameters follow; None = none of them."""
    names = list(inspect.signature(function).parameters)
    for each in CONVENTIONS:
        if each.fits(names):
            return each
    return BY_PLACE if len(positional(function)) >= BY_PLACE.by_place else None


def positional(function: Callable[..., Any]) -> list[str]:
    """The parameters that can be given by their place."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


# parameters that say nothing of what is right
OF_THE_TEXT = frozenset(
    {"prompt", "prompts", "completion", "completions", "completion_ids", "queries"}
    | {"trainer_state", "log_extra", "log_metric"}
)


def names_more_than_text(function: Callable[..., Any]) -> bool:
    """Whether a function asks for more than prompts and completions, by place or by name."""
    parameters = inspect.signature(function).parameters.values()
    return any(
        p.name not in OF_THE_TEXT
        for p in parameters
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    )


def messages_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


def last_user_text(task: Task) -> str:
    users = [m.content for m in task.prompt if m.role == "user"]
    return users[-1] if users else ""


def own_row(a: Attempt) -> Row:
    """Of ours. The data's own columns give way to these names."""
    return {
        **a.task.meta,
        "responses": a.text,
        "answers": a.task.answer,
        "prompts": last_user_text(a.task),
        "messages": messages_of(a.task.prompt),
        "ids": a.task.id,
        "domains": a.task.domain,
    }


def single_row(a: Attempt) -> Row:
    """Of ours, for one answer."""
    return {
        **a.task.meta,
        "response": a.text,
        "answer": a.task.answer,
        "prompt": last_user_text(a.task),
        "messages": messages_of(a.task.prompt),
        "id": a.task.id,
        "domain": a.task.domain,
    }


def columns_of(task: Task) -> Row:
    """The data's columns by the names that they have there."""
    return {"answer": task.answer, "answers": task.answer, **task.meta}


def trl_row(a: Attempt) -> Row:
    prompt: Any = messages_of(a.task.prompt)
    completion: Any = [{"role": "assistant", "content": a.text}]
    if not a.task.conversational:
        prompt, completion = last_user_text(a.task), a.text
    ids = [list(s.ids) for r in a.episode.rows for s in r.segments if s.logp is not None]
    given = {"prompts": prompt, "completions": completion, "completion_ids": ids[-1] if ids else []}
    return {**columns_of(a.task), **given}


def verl_row(a: Attempt) -> Row:
    return {
        "data_source": a.task.meta.get("data_source", a.task.domain),
        "solution_str": a.text,
        "ground_truth": a.task.answer,
        "extra_info": a.task.meta.get("extra_info") or {},
    }


def verl_batch_row(a: Attempt) -> Row:
    return {f"{name}s": x for name, x in verl_row(a).items()}


def verifiers_row(a: Attempt) -> Row:
    """`state` has what the others are, as a dictionary of the rollout's own."""
    row: dict[str, Any] = {
        "prompt": messages_of(a.task.prompt),
        "completion": [{"role": "assistant", "content": a.text}],
        "answer": a.task.answer,
        "info": a.task.meta.get("info") or {},
        "task": a.task.meta.get("task", a.task.domain),
    }
    return {**a.task.meta, **row, "state": {**a.task.meta, **row}}


def verifiers_group_row(a: Attempt) -> Row:
    one = verifiers_row(a)
    plural = {f"{k}s": one[k] for k in ("prompt", "completion", "answer", "state", "task", "info")}
    return {**a.task.meta, **plural}


def openrlhf_row(a: Attempt) -> Row:
    prompt = "\n".join(m.content for m in a.task.prompt)
    return {"queries": prompt + a.text, "prompts": prompt, "labels": a.task.answer}


def unwrap_openrlhf(value: Any) -> Any:
    return value["rewards"] if isinstance(value, Mapping) and "rewards" in value else value


def ignore(*_: Any, **__: Any) -> None:
    """Stands for a trainer's logging, which a run has of its own."""


OURS = Convention(
    name="(responses, answers, **fields)",
    marks=(frozenset({"responses", "answers"}),),
    unit="batch",
    row=own_row,
)
BY_PLACE = replace(OURS, marks=(), by_place=2)
CONVENTIONS = (
    OURS,
    Convention(
        name="verl's compute_score",
        marks=(frozenset({"solution_str"}),),
        unit="answer",
        row=verl_row,
    ),
    Convention(
        name="verl's compute_score of a batch",
        marks=(frozenset({"solution_strs"}),),
        unit="batch",
        row=verl_batch_row,
    ),
    Convention(
        name="OpenRLHF's reward_func",
        marks=(frozenset({"queries", "labels"}),),
        unit="batch",
        row=openrlhf_row,
        unwrap=unwrap_openrlhf,
    ),
    Convention(
        name="verifiers' group reward",
        marks=tuple(frozenset({"completions", x}) for x in ("states", "infos", "tasks")),
        unit="group",
        row=verifiers_group_row,
    ),
    Convention(
        name="TRL's reward_func",
        marks=(frozenset({"completions"}),),
        unit="batch",
        row=trl_row,
        constants={"trainer_state": None, "log_extra": ignore, "log_metric": ignore},
    ),
    Convention(
        name="verifiers' reward",
        marks=(frozenset({"completion"}), frozenset({"state"})),
        unit="answer",
        row=verifiers_row,
    ),
    Convention(
        name="(response, answer, **fields)",
        marks=(frozenset({"response", "answer"}),),
        unit="answer",
        row=single_row,
    ),
)
