"""Clients as text, as `judge=...` and its like take them on the command line.

endpoint(url='http://localhost:8000/v1', model='m')      a server; the fields of `Endpoint`
endpoint('http://localhost:8000/v1', 'm')                the same
policy                                                   the model that is trained, as it is
DIR, or an id of the hub                                 a frozen model, loaded beside it
transcript:FILE                                          the replies that a run has kept
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Any

from palaestra.context import Source
from palaestra.errors import UserError
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.local import LocalModel
from palaestra.services.chat.scoring import ScoringEndpoint
from palaestra.services.chat.transcript import ReplyTranscript
from palaestra.suggest import no_setting

ENDPOINT = re.compile(r"endpoint\(.*\)", re.DOTALL)
REPLAYED = "transcript:"
FORM = "endpoint(url='http://HOST:PORT/v1', model='NAME'), policy, or a model's folder"


def client_from_text(text: str, name: str) -> tuple[Source, str]:
    """The client that a text names, and the model that has to be loaded for it; "" = none.

    Args:
        name: what the argument is called, which is what the loaded model is called in the run.

    Raises:
        UserError: it cannot be read.
    """
    given = text.strip()
    if ENDPOINT.fullmatch(given):
        return _endpoint(given, name), ""
    if given.startswith(REPLAYED):
        return ReplyTranscript(given.removeprefix(REPLAYED)), ""
    if not given or "(" in given:
        raise UserError(f"{name}={text} cannot be read; write {FORM}")
    if given == "policy":
        return LocalModel(), ""
    return LocalModel(name), given


def is_endpoint(text: str) -> bool:
    """Whether a text names an endpoint, rather than a model's folder."""
    return ENDPOINT.fullmatch(text.strip()) is not None


def scoring_from_text(text: str, name: str) -> ScoringEndpoint:
    """The endpoint that a text names, as one that says how likely given tokens are; beside the fields
    of `Endpoint` it takes `tokenizer`, a folder.

    Raises:
        UserError: it cannot be read.
    """
    settings = _settings(text, name, ("tokenizer",))
    tokenizer = str(settings.pop("tokenizer", ""))
    return ScoringEndpoint(_made(settings, text, name), tokenizer)


def _endpoint(text: str, name: str) -> Endpoint:
    return _made(_settings(text, name), text, name)


def _made(settings: dict[str, Any], text: str, name: str) -> Endpoint:
    try:
        return Endpoint(**settings)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}={text}: {error}") from None


def _settings(text: str, name: str, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings of an endpoint by name; `more` are those of whom it serves."""
    known = [*(f.name for f in fields(Endpoint)), *more]
    wrong = f"{name}={text} cannot be read; write {FORM}"
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or len(call.args) > 2:
            raise UserError(wrong)
        first = {known[i]: _value(x) for i, x in enumerate(call.args)}
        named = {k.arg or "": _value(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(wrong) from None
    for key in named:
        if key not in known:
            raise UserError(no_setting("endpoint", key, known))
        if key in first:
            raise UserError(f"{name}={text}: {key} is said twice")
    settings: dict[str, Any] = first | named
    if not isinstance(settings.get("url"), str) or not settings["url"]:
        raise UserError(f"{name}={text} has no url; write {FORM}")
    return settings


def _value(node: ast.expr) -> Any:
    """A Python literal; a bare word is text."""
    x = node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
    return tuple(x) if isinstance(x, list) else x
