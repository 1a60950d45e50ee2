"""The models of a study beside the one that is studied, and its problems beside that of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestra.chat.dialect import Chat
from palaestra.chat.template import specials
from palaestra.errors import UserError
from palaestra.needs.declared import NeededModel
from palaestra.store.folder import read_config
from palaestra.studies.training import run_of, training_remark

OWN = "own"  # the template of each model's tokenizer
DIFFER = "the models' chat templates differ"
# what a study compares with, as its card declares it
BASE = NeededModel(
    "base",
    "base",
    "the model before training",
    inert="policy",
    otherwise="what the run of --model began with",
)


def start_of(model: str) -> str:
    """The model that the training run began with whose checkpoint a folder is; "" = it is no
    checkpoint of a run.
    """
    run = run_of(model)
    return str(read_config(run).get("model", "")) if run else ""


def knows_base(ctx: Any, base: str) -> bool:
    """Whether a study that can do without it has a model to compare with: given by name or by the run, or
    known as what the model of a checkpoint began with.
    """
    return bool(base) or "base" in ctx.models or bool(start_of(ctx.model("policy").name))


def bring_models(
    ctx: Any, base: str, others: Mapping[str, str] | None = None, template: str = OWN
) -> str:
    """Adds the frozen models of a study to its context, unless they are there: "base", what training
    began with, and `others` by their names. Says what the run of the model was trained on.

    Args:
        base: a name or folder; "" = what the run of the model under study began with; "policy" = a
            copy of that model.
        others: likewise.
        template: the chat template of all of them; see `hold_template`.

    Returns:
        Which templates the models are asked with, in a sentence.

    Raises:
        UserError: no base is given and none is known.
    """
    if "base" not in ctx.models:
        source = base or start_of(ctx.model("policy").name)
        if not source:
            raise UserError(
                f"{ctx.model('policy').name} is compared with what it was before training; name that: "
                "base=DIR (it is known by itself where --model is a checkpoint of a run)"
            )
        ctx.reference("base", source)
    for name, source in (others or {}).items():
        if name not in ctx.models:
            ctx.reference(name, source)
    if remark := training_remark(ctx):
        ctx.say(f"note: {remark}")
    held = hold_template(ctx, ("base", *(others or {}), "policy"), template)
    if held.startswith(DIFFER):
        ctx.say(f"note: {held}")
    return held


def hold_template(ctx: Any, names: Sequence[str], template: str = OWN) -> str:
    """Asks several models with one chat template, before any of them is sampled.

    Args:
        ctx: of the study.
        names: of the models in the run.
        template: "own" = each with that of its tokenizer; "base" = all with that of the start; else a
            file with one.

    Returns:
        What was done, in a sentence; where own templates differ, that they do.

    Raises:
        UserError: no such file, or the template writes a special token that a model does not have.
    """
    own = {name: str(ctx.model(name).tokenizer.chat_template or "") for name in names}
    differ = len({*own.values()}) > 1
    if template == OWN:
        if differ:
            return f"{DIFFER}, and what is measured is both changes; template=base holds them fixed"
        return "the templates of the models' tokenizers, which are the same"
    if template == "base":
        text, source = own["base"], "the start's"
    else:
        file = Path(template).expanduser()
        if not file.is_file():
            raise UserError(f"template={template}: no such file; give own, base or a file with one")
        text, source = file.read_text(encoding="utf-8"), f"that of {template}"
    marks = specials(ctx.model("base").tokenizer)
    for name in names:
        model = ctx.model(name)
        missing = [m for m in marks if m in text and m not in specials(model.tokenizer)]
        if missing:
            raise UserError(
                f"template={template} writes {missing[0]}, which is no special token of {model.name}; take "
                "another template, or template=own"
            )
        if own[name] != text:
            model.tokenizer.chat_template = text or None
            ctx.dialects.pop(name, None)
            ctx.engine(name).dialect = Chat(model.tokenizer, model.places, model.sight)
    changed = "they differ by themselves" if differ else "they are alike by themselves"
    return f"one template for all models, {source}; {changed}"


def on_problem(ctx: Any, problem: str) -> Any:
    """The context with another problem, and the same models.

    Args:
        problem: a file, of which all rows are held out, or a built-in task.
    """
    if ctx.open_problem is None:
        raise UserError(f"{problem}: this run's problem is given, and no other can be opened")
    is_file = Path(problem).exists() or Path(problem).suffix != ""
    named = {"data": problem, "test_data": problem} if is_file else {"task": problem}
    bench, players = ctx.open_problem(named)
    return ctx.with_bench(replace(bench, first_held_out=ctx.bench.first_held_out), players)


def listed(text: str) -> list[str]:
    """Names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]
