"""The README.md of a model on the Hugging Face hub, made from the run that trained it.

It names no place on this machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from palaestra import __version__, catalogue, markdown, values
from palaestra.ends import HeldOutKind, end_of
from palaestra.errors import UserError
from palaestra.models.load import OWN_MODELS
from palaestra.settings import overrides
from palaestra.settings.fields import Settings, Use, flag_of, setting_names, words_of
from palaestra.store.folder import RunFolder
from palaestra.view.privacy import OUTSIDE, guarantee, without_private_numbers
from palaestra.view.report import ONE_SEED, facts
from palaestra.view.verdict import ends, verdict

HUB = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}  # what comes from it by another way

ANSWERED = (
    "The model answered each held-out problem once, greedily, and the reward of the problem judged "
    "the answers."
)
PAIRED = (
    "The model compared the two recorded answers to each held-out problem; a tie counts one half."
)
HOW: Mapping[HeldOutKind, str] = {
    "accuracy": ANSWERED,
    "reward": ANSWERED,
    "ranking": PAIRED,
    "margin": PAIRED,
    "loss": "It is the mean of -log p over the tokens of the recorded answers, in nats.",
}


# what the hub calls the work of models, by the class of transformers that loads them
TASKS = {
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForImageTextToText": "image-text-to-text",
    "AutoModelForMultimodalLM": "audio-text-to-text",
}


def model_card(
    run: RunFolder, step: int, repo: str, alone: bool = True, loads: str = "AutoModelForCausalLM"
) -> str:
    """The card of the checkpoint after `step` steps, for a repository "OWNER/NAME".

    `alone`: the run has no other learner, so that its digest of weights is this model's. `loads`: the
    class of transformers that loads it; see `palaestra.store.folder.loading_class`.
    """
    settings = settings_of(run)
    last, run = run.summary.get("steps"), run_until(run, step)
    privacy, run = guarantee(run), without_private_numbers(run)
    judgement = verdict(run)
    page = {
        "metadata": metadata(run, settings, repo, TASKS[loads]).to_yaml().strip(),
        "name": repo.rpartition("/")[2],
        "repo": repo,
        "loads": loads,
        "reader": "tokenizer" if loads == "AutoModelForCausalLM" else "processor",
        "model": base_model(settings) or f"The model {plain(settings.model)}",
        "problem": plain(settings.problem),
        "method": method(settings.recipe),
        "what": judgement["what"],
        "ends": judgement["ends"],
        "words": judgement["words"],
        "beside": judgement["beside"],
        "how": HOW[run.of],
        "one_seed": ONE_SEED,
        "part": "" if (run.folder / "config.toml").is_file() else run.folder.name,
        "caveat": run.name("caveat"),
        "privacy": privacy,
        "outside": OUTSIDE,
        "facts": facts(run),
        "checkpoint": checkpoint(step, last),
        "version": __version__,
        "weights": run.summary.get("weights_sha256") if alone else None,
        "command": ""
        if run.summary.get("changed") or run.summary.get("set")
        else command(settings),
        "own_files": has_own_files(settings),
    }
    return markdown.render("model_card.md", **page) + "\n"


def settings_of(run: RunFolder) -> Settings:
    """The settings of a run's config.toml that this version knows."""
    known = {f.name for f in fields(Settings)}
    return Settings(**{k: v for k, v in run.config.items() if k in known})


def run_until(run: RunFolder, step: int) -> RunFolder:
    """The run as it was after `step` steps: an accuracy of another step is not this model's."""
    if run.summary.get("steps") == step:
        return run
    begun = not run.summary or end_of(run.summary, "before")
    return replace(
        run,
        summary={
            k: run.summary[k] for k in ("seed", "caveat", "changed", "set") if k in run.summary
        },
        steps=[r for r in run.steps if r["step"] <= step],
        evaluations=[e for e in run.evaluations if e[0] == step or (e[0] == 0 and begun)],
    )


def checkpoint(step: int, last: int | None) -> str:
    """Which one it is of the run."""
    if last is None:
        return f"the checkpoint after step {step}; the run had not ended"
    return f"the checkpoint after step {step} of {last}" + (", the last" if step == last else "")


def method(recipe: str) -> str:
    """A method's title, with its paper where it has one; of a recipe file its name."""
    try:
        card = catalogue.find(recipe).CARD
    except UserError:
        return f"a recipe of the author's own, `{plain(recipe)}`"
    link = re.sub(r"^arXiv:(\S+)$", r"[arXiv:\1](https://arxiv.org/abs/\1)", card.paper)
    return f"{card.title} (`{plain(recipe)}`" + (f", {link})" if link else ")")


def metadata(run: RunFolder, settings: Settings, repo: str, task: str) -> ModelCardData:
    """What the hub reads, of a model that is for a `task` of the hub. A mean reward, which is no share,
    is left to the text.
    """
    after, problem = ends(run)[1], plain(settings.problem)
    results, last = [], run.steps[-1] if run.steps else {}
    tags = ["palaestra", plain(settings.recipe)]
    sampled = run.summary.get("sampled_tokens", last.get("sampled_tokens"))
    if sampled:  # imitation alone samples nothing
        tags.append("reinforcement-learning")
    if after is not None and run.of == "accuracy":
        interval = f"95% interval {after.low:.4f} to {after.high:.4f}, n = {after.n}"
        results.append(
            EvalResult(
                task_type=task,
                dataset_type=problem,
                dataset_name=problem,
                metric_type="accuracy",
                metric_name=f"held-out accuracy, greedy ({interval})",
                metric_value=round(after.mean, 4),
            )
        )
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        base_model=base_model(settings) or None,
        tags=tags,
        model_name=repo.rpartition("/")[2],
        eval_results=results or None,
    )


def base_model(settings: Settings) -> str:
    """The model's id on the hub, where it has one."""
    name = HUB.get(settings.model, settings.model)
    return name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not Path(name).exists() else ""


def command(settings: Settings) -> str:
    """What repeats the run from its start; nothing where the recipe is a file that is not here."""
    try:
        changed = differences(settings)
    except UserError:
        return ""
    words = ["palaestra", "train", plain(settings.recipe)]
    for name in setting_names(Use.REPEATED):
        given = settings.meant(name)
        if settings.says(name):
            if given is True:
                words += [flag_of(name)]
                continue
            known = name == "engine" or (name == "model" and base_model(settings))
            for word in words_of(given):
                words += [flag_of(name), shlex.quote(word if known else plain(word))]
    words += ["--seed", str(settings.seed)]
    return " ".join([*words, *(shlex.quote(f"{k}={literal(v)}") for k, v in changed.items())])


def differences(settings: Settings) -> dict[str, Any]:
    """What is set in a recipe unlike what its settings make of it."""
    takes = overrides.arguments(settings.recipe)
    own = {k: v for k, v in settings.set.items() if k in takes}
    made = values.flatten(overrides.recipe_of(replace(settings, set=own)))
    known = {k: v for k, v in settings.set.items() if k in made}
    return own | {k: v for k, v in known.items() if not values.stored_as(made[k], v)}


def literal(given: Any) -> str:
    """As an override is written."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, list):
        return "[" + ", ".join(map(literal, given)) + "]"
    place = isinstance(given, str) and given.startswith(("/", "~", "."))
    return plain(given) if place else str(given)


def has_own_files(settings: Settings) -> bool:
    """Whether the command names files, which only its author has."""
    model = settings.model not in OWN_MODELS and not base_model(settings)
    code = ".py" in settings.recipe + settings.reward
    return bool(model or code or settings.data or settings.env)


def plain(name: str) -> str:
    """Of a path its end."""
    return name.rstrip("/").rpartition("/")[2]
