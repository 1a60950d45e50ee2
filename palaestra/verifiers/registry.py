"""Verifiers by name: `math`, `number(relative=0.01)`, or a weighted mean of several,
`tags*0.1+math`.

Another package adds one as `palaestra.verifiers`: its class, or a function of settings that makes
it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from functools import lru_cache
from typing import Any

from palaestra.errors import UserError
from palaestra.plugins import Plugin, find, pick
from palaestra.suggest import no_setting
from palaestra.tasks.spec import names_in, parse_spec
from palaestra.types import value_class
from palaestra.verifiers.base import PutsReference, ReadsForm, Verifier, fields_of
from palaestra.verifiers.compose import WeightedMean


@value_class
class VerifierEntry:
    """A verifier in the registry.

    `put` is how a reference is written as a response ("" = the reference is no response); `copies`
    names the field that the copy-input baseline repeats. A verifier that reads no answer (`form`)
    is a gate or a part of a sum, never a reward alone. `probe` is a response that shows whether a
    reference can be read; "" = judging one starts a program, so only types are looked at.
    """

    make: str  # module:Class; of a plugin as its entry point says it
    settings: Mapping[str, Any] = field(default_factory=dict)
    put: str = "{}"
    copies: str = "prompt"
    extra: str = ""
    form: bool = False
    probe: str = "\\boxed{7}"


ANSWER = "<answer>{}</answer>"
PYTHON = "<think>The call changed.</think><answer>```python\n{}\n```</answer>"
TRANSLATE = "<think>Word by word.</think><translate>{}</translate>"
VERIFIERS: Mapping[str, VerifierEntry] = {
    "exact": VerifierEntry(make="answers.short:ExactAnswer"),
    "number": VerifierEntry(make="answers.short:NumberAnswer"),
    "set": VerifierEntry(make="answers.short:SetAnswer"),
    "set-f1": VerifierEntry(make="answers.short:SetAnswer", settings={"partial": True}),
    "list": VerifierEntry(make="answers.short:SetAnswer", settings={"ordered": True}),
    "json": VerifierEntry(make="answers.short:JsonAnswer"),
    "f1": VerifierEntry(make="answers.short:TokenF1"),
    "keywords": VerifierEntry(make="answers.short:Keywords", put=""),
    "abstention": VerifierEntry(make="answers.short:Abstention"),
    "choice": VerifierEntry(make="answers.choice:MultipleChoice", put=ANSWER),
    "choice-boxed": VerifierEntry(
        make="answers.choice:MultipleChoice", settings={"only_boxed": True}, put="\\boxed{{{}}}"
    ),
    "contained": VerifierEntry(make="answers.choice:ContainedOption"),
    "boxed": VerifierEntry(make="text.formats:Boxed", put="\\boxed{{{}}}"),
    "tags": VerifierEntry(
        make="text.formats:Tags", put="<think>Hm.</think><answer>{}</answer>", form=True
    ),
    "label": VerifierEntry(make="text.formats:Label", put="\\conclusion{{{}}}"),
    "clean": VerifierEntry(make="text.formats:Clean", form=True),
    "theorem": VerifierEntry(
        make="text.formats:TheoremVariant",
        put="Checked it case by case, as asked.\n<answer>\\boxed{{{}}}</answer>",
    ),
    "math": VerifierEntry(make="maths.expressions:Math", put="\\boxed{{{}}}", extra="math"),
    "antiderivative": VerifierEntry(make="maths.expressions:Antiderivative", put="", extra="math"),
    "countdown": VerifierEntry(make="maths.expressions:Countdown", put=""),
    "code": VerifierEntry(make="code.programs:CodeTests", put="", extra="sandbox", probe=""),
    "code-partial": VerifierEntry(
        make="code.programs:CodeTests",
        settings={"partial": True},
        put="",
        extra="sandbox",
        probe="",
    ),
    "api-migration": VerifierEntry(
        make="code.programs:ApiMigration", put=PYTHON, copies="old", probe=""
    ),
    "verilog": VerifierEntry(
        make="verilog.designs:VerilogDesign", put="```verilog\n{}\n```", extra="iverilog", probe=""
    ),
    "patch": VerifierEntry(make="code.patches:Patch", put="", copies="prompt", probe=""),
    "sql": VerifierEntry(make="sql.queries:Sql", probe=""),
    "sql-partial": VerifierEntry(
        make="sql.queries:PartialSql",
        put="<reasoning>Read the schema.</reasoning><answer>{}</answer>",
        probe="",
    ),
    "sql-table": VerifierEntry(
        make="sql.queries:TableSql",
        put="<think>Read the schema.</think><answer>{}</answer>",
        probe="",
    ),
    "sql-duckdb": VerifierEntry(
        make="sql.queries:Sql", settings={"engine": "duckdb"}, extra="duckdb", probe=""
    ),
    "constraints": VerifierEntry(make="text.constraints:Constraints", put=""),
    "constraints-share": VerifierEntry(
        make="text.constraints:Constraints", settings={"every": False}, put=""
    ),
    "translation": VerifierEntry(
        make="text.translation:Translation",
        put=TRANSLATE,
        copies="source",
        extra="translation",
        probe="",
    ),
    "translation-mix": VerifierEntry(
        make="text.translation:Translation",
        settings={"metric": "mix"},
        put=TRANSLATE,
        copies="source",
        extra="translation",
        probe="",
    ),
    "stl": VerifierEntry(make="logic.temporal:Temporal"),
    "stl-surface": VerifierEntry(make="logic.temporal:Temporal", settings={"surface": True}),
    "spelling": VerifierEntry(make="text.spelling:Spelling", copies="source"),
    "tool-calls": VerifierEntry(make="answers.tools:ToolCalls", put=""),
    "tool-calls-partial": VerifierEntry(
        make="answers.tools:ToolCalls", settings={"partial": True}, put=""
    ),
    "tool-answer": VerifierEntry(make="answers.tools:ToolAnswer"),
    "gym": VerifierEntry(make="gym:GymAnswer", put=ANSWER, extra="gym", probe=""),
    "verdict": VerifierEntry(make="answers.judgement:Verdict", put="[[{}]]"),
    "factuality": VerifierEntry(
        make="answers.judgement:Factuality", put="<think>Hm.</think><answer>{}</answer>"
    ),
    "selective": VerifierEntry(make="answers.judgement:Selective", put=ANSWER),
}


@lru_cache(maxsize=256)
def get_verifier(spec: str) -> Any:
    """The verifier that a string names. Raises UserError."""
    parts = parse_spec(spec, "verifier")
    made = [
        (p.name, make_verifier(p.name, p.settings), 1.0 if p.weight is None else p.weight)
        for p in parts
    ]
    if len(parts) > 1:
        return WeightedMean(tuple(made))
    if parts[0].weight is not None:
        raise UserError(
            f"verifier {spec!r}: a weight needs other parts beside it; write {parts[0].name!r}"
        )
    return made[0][1]


def make_verifier(name: str, settings: Mapping[str, Any]) -> Any:
    entry, kind = verifier_entry(name), verifier_class(name)
    known = inspect.signature(kind).parameters
    if strange := [k for k in settings if k not in known]:
        raise UserError(no_setting(f"verifier {name!r}", strange[0], sorted(known)))
    return kind(**{**entry.settings, **settings})


def verifier_entry(name: str) -> VerifierEntry:
    return pick("verifiers", name, VERIFIERS, plugin_entry)


def known_entry(spec: str) -> VerifierEntry | None:
    """The entry of a string that is a name alone; None = it has settings or several parts."""
    return verifier_entry(spec) if names_in(spec) == [spec] else None


def plugin_entry(plugin: Plugin) -> VerifierEntry:
    """What another package's verifier says of itself, by the attributes `put` and `form`."""
    verifier = factory(plugin)()
    put = verifier.put if isinstance(verifier, PutsReference) else "{}"
    form = verifier.form if isinstance(verifier, ReadsForm) else False
    if not isinstance(put, str) or not isinstance(form, bool):
        raise plugin.refusal(
            f"put is {put!r} and form is {form!r}; they are a text and a truth value"
        )
    return VerifierEntry(make=plugin.entry.value, put=put, form=form)


def factory(plugin: Plugin) -> Callable[..., Any]:
    return plugin.factory(Verifier, "a verifier, a callable")


def verifier_class(name: str) -> Callable[..., Any]:
    """What makes a verifier from its settings."""
    if name not in VERIFIERS and (plugin := find("verifiers", name)) is not None:
        return factory(plugin)
    module, _, kind = verifier_entry(name).make.partition(":")
    return getattr(importlib.import_module(f"palaestra.verifiers.{module}"), kind)


def describe_verifier(name: str) -> dict[str, Any]:
    """What `palaestra score --list` says of a verifier."""
    entry, kind, verifier = verifier_entry(name), verifier_class(name), make_verifier(name, {})
    known = fields_of(verifier)
    summary = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    settable = fields(verifier) if is_dataclass(verifier) else ()
    return {
        "name": name,
        "summary": summary,
        "fields": ["response", "answer", *known],
        "required": ["response", *(n for n, must in known.items() if must)],
        "settings": {f.name: getattr(verifier, f.name) for f in settable},
        "extra": entry.extra,
        "alone": not entry.form,
    }
