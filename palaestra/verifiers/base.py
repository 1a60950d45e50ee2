"""What a verifier is: a response and a reference in, a judgement out. It never raises for what a
policy wrote.

    verifier(response, answer, **fields) -> Judgement

A verifier is a frozen dataclass whose keyword-only parameters are the fields it reads, in the types
that data must have. What the user got wrong (no answer, a broken gold query) is a UserError, a dead
service a Fault; whatever a response does is an outcome with a score.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from palaestra.errors import Fault, UserError
from palaestra.identity import name_of
from palaestra.types import value_class
from palaestra.verifiers.typed import check_fields, describe_types, describe_value

LONGEST = 200_000  # characters of a response that is read at all


@value_class
class Judgement:
    """A score in [0, 1] with its named parts.

    status: "ok" | "unparsable" (no answer that can be read where it belongs) | "timeout" | "failed"
    (code or a query that broke) | "weak" (right, but the reference proves too little). All of these
    are the policy's doing. What a verifier cannot judge for reasons of its own is a Fault, which
    leaves the episode unscored. The part "paper", where there is one, is the reward on the scale of
    the paper that the verifier comes from.
    """

    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    status: str = "ok"


@runtime_checkable
class Verifier(Protocol):
    """Judges a response by a reference. Keyword-only parameters of its call are fields it reads.

    What a verifier may say beside this: `ReadsFields`, `PaysLeast`, `WritesReference`.
    """

    def __call__(self, response: str, answer: Any, /, **fields: Any) -> Judgement: ...


@runtime_checkable
class PutsReference(Protocol):
    """A plugin's verifier that says how a reference stands in a response. Without it, alone."""

    @property
    def put(self) -> str:
        """With {} where the reference goes, e.g. "<answer>{}</answer>"; "" = it is no response."""
        ...


@runtime_checkable
class ReadsForm(Protocol):
    """A plugin's verifier that says whether it reads no answer: then it is no reward by itself."""

    @property
    def form(self) -> bool: ...


@runtime_checkable
class ReadsFields(Protocol):
    """A verifier that says which fields it reads. Without it the parameters of its call do."""

    @property
    def fields(self) -> Mapping[str, bool] | None:
        """The fields, and whether it must have them; None = those of the call."""
        ...


@runtime_checkable
class PaysLeast(Protocol):
    """A verifier that says what a response that is not read gets on its paper's scale."""

    @property
    def least(self) -> float | None:
        """None = nothing is said."""
        ...


@runtime_checkable
class KnowsNulls(Protocol):
    """A verifier by tests that has candidates which solve nothing."""

    def null_passes(self, **fields: Any) -> list[tuple[str, tuple[str, ...]]]:
        """Each test as text, and the names of those candidates that pass it."""
        ...


@runtime_checkable
class WritesReference(Protocol):
    """A verifier that writes its reference in a way of its own, e.g. as the letter of an option."""

    def gold_text(self, answer: Any, **fields: Any) -> str:
        """The reference as text; `fields` are those that a judgement reads."""
        ...


P = ParamSpec("P")
V = TypeVar("V")
JudgeCall = Callable[Concatenate[V, str, Any, P], Judgement]


def guard_verifier(judge: JudgeCall[V, P]) -> JudgeCall[V, P]:
    """Of every verifier: blank and endless responses score 0, lone surrogates are replaced, deep
    nesting is unparsable.

    Where bad form costs something on the paper's scale, the verifier's `least` is what such a
    response gets there.

    A field of another type than the call declares is the user's mistake: a UserError. Null stands
    for a field left out. Any other exception, or a score outside [0, 1], is the verifier's own: a
    Fault, not a zero.
    """

    @functools.wraps(judge)
    def call(self: V, response: str, answer: Any, *args: P.args, **kwargs: P.kwargs) -> Judgement:
        kwargs = cast(Any, check_fields(judge, self, answer, kwargs))
        least = self.least if isinstance(self, PaysLeast) else None
        unread = (
            failed_judgement("unparsable")
            if least is None
            else failed_judgement("unparsable", paper=least)
        )
        if not isinstance(response, str) or not response.strip() or len(response) > LONGEST:
            return unread
        try:
            judgement = judge(
                self, response.encode("utf-8", "replace").decode(), answer, *args, **kwargs
            )
        except RecursionError:
            return unread
        except UserError as error:  # a database's own words may have several lines
            raise UserError(" ".join(str(error).split())) from None
        except Fault:
            raise
        except Exception as error:
            raise Fault(
                "verifier", f"{type(self).__name__} raised {type(error).__name__}: {error}"
            ) from error
        return sound(judgement, self)

    return call


def sound(judgement: Any, verifier: object) -> Judgement:
    """A judgement with a score in [0, 1] and finite parts; UserError for none, Fault
    for another.
    """
    if not isinstance(judgement, Judgement):
        name, kind = name_of(type(verifier)), type(judgement).__name__
        raise UserError(
            f"the verifier {name} gave {kind}; return a palaestra.verifiers.base.Judgement"
        )
    if not 0.0 <= judgement.score <= 1.0 or not all(map(math.isfinite, judgement.parts.values())):
        raise Fault("verifier", f"{type(verifier).__name__} gave {judgement}")
    return judgement


def failed_judgement(status: str, **parts: float) -> Judgement:
    return Judgement(score=0.0, parts=parts, status=status)


def binary_judgement(right: bool, **parts: float) -> Judgement:
    """A judgement that scores 1 if `right`, else 0; `parts` are named shares of it, in [0, 1]."""
    return Judgement(score=float(right), parts=parts)


def strip_thinking(response: str) -> str:
    """What follows the thinking; nothing if the thinking was never closed."""
    _, closed, rest = response.rpartition("</think>")
    return rest if closed or "<think>" not in response else ""


def fences(text: str, languages: tuple[str, ...] = ("",), cut: bool = False) -> list[str]:
    """The contents of the closed fenced blocks in one of these languages, in order; with `cut`, of
    one that the end cuts too.
    """
    blocks: list[str] = []
    language, block = None, list[str]()
    for line in text.split("\n"):
        bare = line.strip()
        if language is None:
            if bare.startswith("```") and "`" not in bare[3:]:
                language, block = bare[3:].strip().lower(), []
        elif bare == "```":
            blocks += ["".join(f"{x}\n" for x in block)] if language in languages else []
            language = None
        else:
            block.append(line)
    if cut and language is not None and language in languages:
        blocks.append("\n".join(block))
    return blocks


def require_field(given: Any, name: str, kind: type | tuple[type, ...], verifier: object) -> Any:
    """`given`, if it is of the type `kind`.

    Args:
        given: a reference or a field of the task.
        name: what it is called in the message.
        kind: a type, or several of which one will do.
        verifier: the one that needs it.

    Raises:
        UserError: it is missing, or of another type.
    """
    allowed = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(given, allowed) or (isinstance(given, bool) and bool not in allowed):
        raise UserError(
            f"{type(verifier).__name__}: {name} is {describe_value(given)}; give it as "
            f"{describe_types(allowed)}"
        )
    return given


def fields_of(verifier: Any) -> dict[str, bool]:
    """The fields a verifier reads, and whether it must have them."""
    made = not isinstance(verifier, type)
    if made and isinstance(verifier, ReadsFields) and verifier.fields is not None:
        return dict(verifier.fields)
    kind: Any = verifier if isinstance(verifier, type) else type(verifier)
    call = verifier if inspect.isfunction(verifier) else kind.__call__
    parameters = inspect.signature(call).parameters.values()
    return {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}


def select_fields(verifier: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields at hand those that a verifier reads. Raises UserError for one it needs and has
    not got.
    """
    wanted = fields_of(verifier)
    if missing := [n for n, must in wanted.items() if must and n not in given]:
        raise UserError(
            f"{type(verifier).__name__} needs the field {missing[0]!r}; the data has "
            f"{', '.join(given) or 'none'}"
        )
    return {n: given[n] for n in wanted if n in given}


def judge_response(
    verifier: Any, response: str, answer: Any, given: Mapping[str, Any]
) -> Judgement:
    """One judgement, with the fields that the verifier reads. What it raises of its own
    is a Fault.
    """
    read = select_fields(verifier, given)
    try:
        judgement = verifier(response, answer, **read)
    except (UserError, Fault):
        raise
    except Exception as error:
        what = f"{type(verifier).__name__} raised {type(error).__name__}: {error}"
        raise Fault("verifier", what) from error
    return sound(judgement, verifier)
