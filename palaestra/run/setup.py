"""From settings to a run: recipe, bench, models, context. `config.toml` of a run folder holds the
settings, complete.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from palaestra import catalogue, values
from palaestra.context import Bench, RewardFn, Runnable, Source
from palaestra.engines import select
from palaestra.errors import PalaestraError, UserError
from palaestra.judges.pointwise import Judge
from palaestra.method import Recipe
from palaestra.models.load import load
from palaestra.models.lora import LoRA
from palaestra.models.model import Model
from palaestra.models.precision import SMALL, precision_for
from palaestra.objective.mismatch import TIS
from palaestra.pipeline import Pipeline
from palaestra.rollout.collect import Score
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.origin import files_of_settings, problem_conditions
from palaestra.run.programs import WithModels
from palaestra.run.rewards import JUDGE, reward_by_name, reward_text
from palaestra.run.settings import TASK, VALUE, Settings, Use, flag_of, setting_names, words_of
from palaestra.run.unmet import arguments_of_run, check_needs
from palaestra.schedule import Scheduled, settling_step
from palaestra.services.chat.named import client_from_text
from palaestra.services.tools.names import GIVEN
from palaestra.suggest import from_elsewhere, suggestion_or_all
from palaestra.tasks.user_code import locate_error
from palaestra.trackers.registry import tracker_names
from palaestra.types import Player
from palaestra.worlds.toolbox import tool_names

SMOKE = {  # a recipe at its smallest, see `make_smallest`
    "schedule.prompts": 2,
    "draw.tasks": 8,
    "collect.links.0.n": 2,
    "collect.links.0.link.n": 2,
    "pool.size": 2,
    "n": 2,
    "tasks": 4,
    "evaluate.new worlds.rounds": 2,
}


def from_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file. Raises UserError with the line of an unknown one or a value of
    another type.
    """
    return values.from_toml(path, get_type_hints(Settings))


def check_types(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as their declared types. Raises UserError for a value of another type; unknown names
    are left as they are.
    """
    known = get_type_hints(Settings)
    metavars = {f.name: f.metadata.get("metavar") for f in fields(Settings)}
    read: dict[str, Any] = {}
    for name, x in given.items():
        x = str(x) if isinstance(x, Path) and known.get(name) is str else x
        x = reward_text(x) if name == "reward" else x
        x = tool_names(x) if name == "tools" else x
        x = columns_text(x) if name == "columns" else x
        x = tracker_names(x) if name == "track" else x
        x = (x,) if name == "exams" and isinstance(x, str) else x
        if known.get(name) is str and not isinstance(x, str):
            form = ", ".join(filter(None, ("text", metavars[name])))
            raise UserError(f"{name} takes {form}, not a {type(x).__name__}")
        read[name] = values.parse(x, known[name], name) if name in known else x
    return read


def columns_text(given: Any) -> Any:
    """What each column is read as, as on the command line, where it is given as a mapping."""
    if not isinstance(given, Mapping):
        return given
    for column, use in given.items():
        if not (isinstance(column, str) and isinstance(use, str)):
            raise UserError(f"columns: {column!r}: {use!r} is no pair of texts")
        if {",", "="} & {*column, *use}:
            raise UserError(
                f"columns: {column!r}: {use!r} has a comma or =, which separate columns; write a "
                "function of a row, clean.py:row"
            )
    return ",".join(f"{column}={use}" for column, use in given.items())


def merge(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Settings with others over them; of `set` lasts what the others do not replace."""
    known = [f.name for f in fields(settings)]
    for key in given:
        if key not in known:
            raise UserError(
                f"unknown setting {key!r}{from_elsewhere(key) or suggestion_or_all(key, known)}"
            )
    words = given.get("set", {})
    changed = replace(settings, **{k: v for k, v in given.items() if k != "set"})
    return replace(changed, set={**lasting_overrides(settings, changed, words), **words})


def eval_command(given: Mapping[str, Any], model: str) -> str:
    """What measures a model on the held-out problems of these settings."""
    chosen = Settings(**{n: v for n in setting_names(Use.MEASURED) if (v := given.get(n))})
    named = {n: chosen.meant(n) for n in setting_names(Use.MEASURED) if chosen.says(n)}
    if not {"task", "data", "env"} & named.keys():
        named = {"task": Settings().problem, **named}
    flags = {n: "--n" if n == "evaluate" else flag_of(n) for n in named}
    told = (f"{flags[n]} {shlex.quote(x)}" for n, v in named.items() for x in words_of(v))
    return " ".join(["palaestra eval --model", shlex.quote(model), *told, "--k 8"])


def measure_command(given: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """What measures the policy that a run, or a part of it, trained with these settings; "" where
    no command can: no policy was kept, no answer can be judged, the part has a problem of its own,
    or only a program has the reward or the tools.
    """
    model = (summary.get("artifacts") or {}).get("policy")
    whole = given.get("env") or given.get("data") or given.get("task") or TASK
    elsewhere = summary.get("part") and summary.get("task", whole) != whole
    values_of_program = any(GIVEN in str(given.get(n, "")) for n in ("reward", "tools"))
    judged = summary.get("answers_judged", True)
    if not model or not judged or elsewhere or values_of_program:
        return ""
    return eval_command(given, str(model))


def inspect_command(given: Mapping[str, Any], summary: Mapping[str, Any], out: Path) -> str:
    """What to type to see more of a finished run: its policy on held-out problems, or all that was
    measured where no answers of a trained policy can be judged.
    """
    if measuring := measure_command(given, summary):
        return measuring
    text = (
        f"import palaestra; print(palaestra.open({json.dumps(str(out))}).evaluations.to_pylist())"
    )
    return f"python -c {shlex.quote(text)}"


def arguments(method: str) -> Mapping[str, inspect.Parameter]:
    """What the `build` of a method takes."""
    if method == VALUE:
        return {}
    return inspect.signature(catalogue.find(method).build).parameters


def build(
    method: str,
    overrides: Mapping[str, Any],
    tis: float = 0.0,
    rate: float = 0.0,
    embedded: bool = False,
) -> Any:
    """The recipe of a method. An override that names an argument of its `build` goes there, the
    others into the value.

    `tis` > 0 corrects for the engine's mismatch: truncated importance sampling with that cap.
    `rate` > 0 is the learning rate of every learner, unless an override says otherwise. `embedded`:
    what the method makes of its own problem, see `embeds`.
    """
    takes = arguments(method)
    given, models = read_arguments(takes, {k: v for k, v in overrides.items() if k in takes})
    made = call_build(method, given, "embedded" if embedded else "build")
    made = change_parts(made, lambda r: add_models(r, models)) if models else made
    return change_recipe(made, {k: v for k, v in overrides.items() if k not in takes}, tis, rate)


def read_arguments(
    takes: Mapping[str, inspect.Parameter], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Arguments of a `build` as their declared types, and the models that clients among them name,
    by the arguments.
    """
    read, models = dict[str, Any](), dict[str, str]()
    for name, x in given.items():
        hint = takes[name].annotation
        kinds = (hint, *get_args(hint)) if isinstance(x, str) and x != "none" else ()
        if Source in kinds:
            read[name], model = client_from_text(x, name)
            models |= {name: model} if model else {}
        elif Judge in kinds and not x.startswith(JUDGE):
            client, model = client_from_text(x, name)
            read[name] = Judge(client=client)
            models |= {name: model} if model else {}
        elif Judge in kinds or RewardFn in kinds:
            read[name] = reward_by_name(x)
        else:
            read[name] = values.parse(x, hint, name)
    return read, models


def add_models(runnable: Any, models: Mapping[str, str]) -> Any:
    """A recipe, or a program, with further frozen models beside its own."""
    if not isinstance(runnable, Recipe):
        return WithModels(runnable, models)
    return replace(runnable, references={**runnable.references, **models})


def embeds(settings: Settings) -> bool:
    """Whether a method that has a run on a problem of its own (`embedded`, beside `build`) trains
    it: where the user names no problem, model or recipe of their own.
    """
    named = settings.task or settings.data or settings.env or settings.model != Settings.model
    if named or settings.recipe == VALUE:
        return False
    return hasattr(catalogue.find(settings.recipe), "embedded")


def change_recipe(
    recipe: Any, overrides: Mapping[str, Any], tis: float = 0.0, rate: float = 0.0
) -> Any:
    """A recipe with a correction, a rate and fields by their paths, in this order; see `build`."""
    recipe = change_parts(recipe, lambda r: add_tis(r, tis)) if tis else recipe
    recipe = change_parts(recipe, lambda r: set_rate(r, rate)) if rate else recipe
    for path, given in overrides.items():
        with settings_told_apart(path, given):
            recipe = values.override(recipe, path, given)
    return recipe


@contextmanager
def settings_told_apart(path: str, given: Any) -> Generator[None]:
    """Says of a path that is no field of the recipe, but a setting of the run, which flag it is."""
    try:
        yield
    except UserError as error:
        flags = {f.name: f for f in fields(Settings) if f.metadata.get("flag", "none") != "none"}
        name = path.replace("-", "_")
        if name not in flags or "no field" not in str(error):
            raise
        raise UserError(
            f"{path} is a setting of the run and no field of the recipe; write {flag_of(name)} "
            f"{given}"
        ) from None


def call_build(
    method: str, given: Mapping[str, Any], name: Literal["build", "embedded"] = "build"
) -> Any:
    """What the `build` of a method returns, or its `embedded`. Raises UserError for what it refuses, and for any
    mistake in a user's own file.
    """
    if method == VALUE:
        raise UserError(
            "the recipe of this run is a value of a program; go on with palaestra.train(recipe, "
            "resume=...)"
        )
    module = catalogue.find(method)
    try:
        recipe = getattr(module, name)(**given)
    except Exception as error:
        if (told := mistake(method, str(module.__file__), error, bool(given))) is None:
            raise
        raise told from error
    if not isinstance(recipe, Runnable):
        raise UserError(
            f"{method}: build() returned {type(recipe).__name__}, not a recipe; return "
            "pl.vary(pl.recipe('grpo'), ...)"
        )
    return recipe


def mistake(method: str, file: str, error: Exception, given: bool) -> UserError | None:
    """What the user reads where a `build` in a file fails, with arguments or not; None = the error
    itself.
    """
    if catalogue.is_own_file(method):
        return UserError(locate_error(error, file))
    if isinstance(error, PalaestraError):
        return None
    if (plugin := catalogue.plugin_of(method)) is not None:
        return plugin.refusal(locate_error(error, file), given)
    return UserError(f"{method}: {error}") if isinstance(error, TypeError | ValueError) else None


def context(
    settings: Settings,
    *,
    out: Path | None = None,
    talk: bool = True,
    recipe: Any = None,
    begun: bool = False,
) -> RunContext:
    """Models and bench of a run, ready to evaluate, or to train by `recipe`; `begun`: it goes on."""
    if settings.engine.startswith("openai:"):
        raise UserError(
            f"--engine {settings.engine}: what is behind an endpoint can be evaluated, not trained"
        )
    bench, players = bench_of(settings, judged=brings_reward(recipe))
    if recipe is not None and not begun:
        takes = arguments(settings.recipe)
        check_needs(settings, bench, arguments_of_run(takes, settings.set))
    lora = lora_of(settings)
    model = load(settings.model, dtype=settings.precision, device=settings.where, lora=lora)
    model.recompute = settings.recompute
    select.check(settings.engine, model)
    return RunContext(
        bench=bench,
        seed=settings.seed,
        models={"policy": model},
        drive=train,
        out=out,
        players=dict(players),
        talk=talk,
        engine_name=settings.engine,
        slots=settings.slots,
        cache_mb=settings.cache_mb,
        lora=lora,
        open_problem=lambda problem: bench_of_part(settings, problem),
        problem_conditions=lambda problem: conditions_of_part(settings, problem, out or Path()),
    )


def lora_of(settings: Settings) -> LoRA | None:
    """The adapters that settings ask for. Raises UserError for settings of adapters without any."""
    if not settings.lora:
        idle = [n for n in ("lora_alpha", "lora_targets") if settings.says(n)]
        if idle:
            raise UserError(
                f"{flag_of(idle[0])} is of adapters; give their rank too, e.g. --lora 16"
            )
        return None
    names = tuple(n.strip() for n in settings.lora_targets.split(",") if n.strip())
    return LoRA(rank=settings.lora, alpha=settings.lora_alpha, targets=tuple(dict.fromkeys(names)))


def describe_numbers(settings: Settings) -> str:
    """A line about the gap between sampler and trainer where weights are in bfloat16; "" = they are
    not.
    """
    if settings.precision != "bfloat16":
        return ""
    why = precision_for(settings.model, settings.where).why
    more = "" if settings.tis else "; --tis 2 corrects for that, and --dtype float32 avoids it"
    return (
        f"weights in bfloat16 ({why}): the sampler's log-probs are not quite the trainer's, see "
        f"mismatch_gap in the metrics{more}"
    )


def describe_adapters(model: Model) -> str:
    """A line about the layers of a model that have adapters; "" = none has."""
    if not model.adapted:
        return ""
    adapters: Any = next(iter(model.module.peft_config.values()))  # type: ignore[union-attr]
    return (
        f"adapters of rank {adapters.r} and alpha {adapters.lora_alpha} on "
        f"{', '.join(sorted(adapters.target_modules))}"
    )


def settings_for(runnable: Any, settings: Settings) -> Settings:
    """The settings of a run; where it names no problem and every part of its pipeline has one of its
    own, the last one's is the run's, and of other recipes that of their card.
    """
    if settings.task or settings.data or settings.env:
        return settings
    parts = list(runnable.parts.values()) if isinstance(runnable, Pipeline) else []
    if parts and all(p.problem for p in parts):
        return replace(settings, **parts[-1].problem)
    return replace(settings, task=card_task(settings.recipe))


def card_task(method: str) -> str:
    """The task that a method's card names; "" = none, or the recipe is a value without a card."""
    try:
        return catalogue.find(method).CARD.task
    except UserError:
        return ""


def problems_of(runnable: Any, settings: Settings) -> str:
    """What is learned, for people: of a pipeline whose parts have problems of their own, each
    part's.
    """
    parts = runnable.parts if isinstance(runnable, Pipeline) else {}
    if not any(p.problem for p in parts.values()):
        return settings.problem
    asked = {n: next(iter(p.problem.values()), settings.problem) for n, p in parts.items()}
    return ", ".join(f"{problem} ({n})" for n, problem in asked.items())


def bench_of_part(
    settings: Settings, problem: Mapping[str, str]
) -> tuple[Bench, Mapping[str, Player]]:
    """The bench of a part's own problem under the settings of its run, and its players."""
    return bench_of(own_settings(settings, problem))


def own_settings(settings: Settings, problem: Mapping[str, str]) -> Settings:
    """Those of a part with a problem of its own; the same where it has none."""
    blank = {"task": "", "env": "", "data": "", "test_data": "", "columns": ""}
    return replace(settings, **{**blank, **problem}) if problem else settings


def conditions_of_part(
    settings: Settings, problem: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """What the numbers of a part with a problem of its own depend on, see `origin.conditions`."""
    own = own_settings(settings, problem)
    return problem_conditions(own, files_of_settings(own, folder))


def recipe_of(settings: Settings) -> Any:
    """The recipe with the settings' overrides; models that are not small get a smaller learning
    rate.
    """
    return build(settings.recipe, settings.set, settings.tis, settings.rate, settings.embedded)


def adjust_recipe(recipe: Any, settings: Settings) -> Any:
    """A recipe that is a value, with what the settings say of it."""
    if not isinstance(recipe, Runnable):
        raise UserError(f"{recipe!r} is no recipe; give a method's name, recipe(...) or vary(...)")
    return change_recipe(recipe, settings.set, settings.tis, settings.rate)


def without_fields(recipe: Any, settings: Settings) -> Any:
    """The recipe that settings name, or the value that is given, before fields of it are set."""
    if recipe is not None:
        return adjust_recipe(recipe, replace(settings, set={}))
    takes = arguments(settings.recipe)
    return recipe_of(replace(settings, set={k: v for k, v in settings.set.items() if k in takes}))


def describe_rate(recipe: Any, settings: Settings, runnable: Any) -> str:
    """A line where learners of a runnable have the rate that the model asks for in place of the
    recipe's own; "" = none has. `recipe`: what stands in the place of the one that settings name.
    """
    if not settings.rate:
        return ""
    takes = arguments(settings.recipe)
    given = {k: v for k, v in settings.set.items() if k in takes}
    plain = build(settings.recipe, given, embedded=settings.embedded) if recipe is None else recipe
    own, now = learning_rates(plain), learning_rates(runnable)
    moved = [own[k] for k, x in now.items() if x == settings.rate != own.get(k, x)]
    if not moved:
        return ""
    told = " and ".join(dict.fromkeys(map(values.brief, moved)))
    return (
        f"learning rate {settings.rate:g}, for a model of {SMALL // 10**6} million weights or "
        f"more; the recipe's own is {told}; another one: optimiser.lr=..."
    )


def describe_schedules(settings: Settings, runnable: Any) -> str:
    """A line where a run has fewer steps than its recipe says, and numbers of the recipe follow
    schedules that end after it; "" = none do.
    """
    takes = arguments(settings.recipe)
    steps = settings.steps
    if not steps or not isinstance(runnable, Recipe) or steps >= runnable.schedule.steps:
        return ""
    ends = {k: settling_step(x) for k, x in values.walk(runnable) if isinstance(x, Scheduled)}
    late = [f"{k} (step {n})" for k, n in ends.items() if n > steps]
    if not late:
        return ""
    cure = f"; steps={steps} in place of --steps {steps} fits them" if "steps" in takes else ""
    return (
        f"note: the run ends after step {steps}, and what the recipe changes on its way goes on: "
        f"{', '.join(late)}{cure}"
    )


def learning_rates(runnable: Any) -> dict[str, Any]:
    """Of each learner, a number or a schedule; of a pipeline those of its parts."""
    if isinstance(runnable, Pipeline):
        return {
            f"{name}.{k}": x
            for name, part in runnable.parts.items()
            for k, x in learning_rates(part.runnable).items()
        }
    learners = runnable.learners if isinstance(runnable, Recipe) else {}
    return {name: learner.optimiser.lr for name, learner in learners.items()}


def lasting_overrides(
    stored: Settings, changed: Settings, words: Mapping[str, Any]
) -> dict[str, Any]:
    """Which stored overrides last under changed settings and further overrides, `words`.

    A run stores every field of its recipe. One that only repeats what its settings made of it gives
    way to what the changed settings make of it; one that stands at or below a path among the words
    gives way to the word.
    """
    if not stored.set or not (
        words or any(getattr(stored, n) != getattr(changed, n) for n in setting_names(Use.MAKE))
    ):
        return dict(stored.set)
    takes = arguments(stored.recipe)
    own = values.flatten(without_fields(None, stored))
    last = {
        k: v
        for k, v in stored.set.items()
        if k in takes or not (k in own and values.stored_as(own[k], v))
    }
    takes = arguments(changed.recipe)
    recipe = recipe_of(
        replace(changed, set={**last, **{k: v for k, v in words.items() if k in takes}})
    )
    places = {k: values.find(recipe, k) for k in last if k not in takes}
    for word in (w for w in words if w not in takes):
        with settings_told_apart(word, words[word]):
            at = values.find(recipe, word)
        last = {k: v for k, v in last.items() if not f"{places.get(k, '')}.".startswith(f"{at}.")}
        recipe = values.override(recipe, word, words[word])
    return last


def change_parts(runnable: Any, change: Callable[[Any], Any]) -> Any:
    """The runnable changed; of a pipeline, every part."""
    if not isinstance(runnable, Pipeline):
        return change(runnable)
    parts = {
        n: replace(p, runnable=change_parts(p.runnable, change)) for n, p in runnable.parts.items()
    }
    return replace(runnable, parts=parts)


def make_smallest(runnable: Any) -> Any:
    """A recipe at its smallest: two prompts, two samples; of a pipeline, every part."""

    def small(recipe: Any) -> Any:
        known = values.flatten(recipe)
        for path, given in SMOKE.items():
            recipe = values.override(recipe, path, given) if path in known else recipe
        return recipe

    return change_parts(runnable, small)


def set_rate(runnable: Any, rate: float) -> Any:
    """A recipe whose learners all move at a rate; a program of its own stays as it is."""
    if not isinstance(runnable, Recipe):
        return runnable
    learners = {
        n: replace(l, optimiser=replace(l.optimiser, lr=rate)) for n, l in runnable.learners.items()
    }
    return replace(runnable, learners=learners)


def add_tis(runnable: Any, cap: float) -> Any:
    """A recipe whose learners weight by pi / mu, at most `cap`."""
    if not isinstance(runnable, Recipe):
        raise UserError(
            "--tis corrects the objectives of a recipe; this method is a program of its own"
        )
    learners = {
        name: replace(
            l,
            objective=TIS(objective=l.objective, model=name, cap=cap),
            needs=tuple(dict.fromkeys((*l.needs, (name, "logp")))),
        )
        for name, l in runnable.learners.items()
    }
    return replace(runnable, learners=learners)


def brings_reward(recipe: Any) -> bool:
    """Whether a recipe judges by rewards of its own, and never asks that of the problem."""
    judges = [part for _, part in values.walk(recipe) if isinstance(part, Score)]
    return bool(judges) and all(part.reward is not None for part in judges)


def bench_of(settings: Settings, *, judged: bool = False) -> tuple[Bench, Mapping[str, Player]]:
    """What is learned, and who plays the seats that the policy does not.

    `judged`: the recipe has a reward of its own, so that data needs no answers.
    """
    from palaestra.run.benches import add_tools, bench_by_name, from_data, from_env, records_of
    from palaestra.worlds.tools import WithTools

    given = [n for n in ("task", "data", "env") if getattr(settings, n)]
    if len(given) > 1 and given != ["data", "env"]:
        raise UserError(
            f"--{given[0]} and --{given[1]} exclude each other: they are both the problem"
        )
    players: Mapping[str, Player] = {}
    if settings.env:
        records = records_of(settings) if settings.data else None
        bench, players = from_env(settings.env, records)
    elif settings.data:
        bench = from_data(
            settings.data,
            settings.test_data,
            settings.reward,
            settings.columns,
            timeout=settings.reward_timeout,
            judged=judged,
            skip=settings.skip_bad,
            longest=settings.max_prompt_tokens,
        )
    else:
        bench, players = bench_by_name(settings.task or TASK)
    if settings.reward and (settings.env or not settings.data):
        raise UserError(
            "--reward needs --data: the built-in tasks and environments have their own rewards"
        )
    if settings.test_data and not settings.data:
        raise UserError("--test-data needs --data: it holds out what your own data are measured on")
    if settings.tools:
        limits = (settings.tool_turns, settings.tool_seconds, settings.tool_chars)
        bench = add_tools(bench, WithTools(settings.tools, *limits))
    if settings.columns and not settings.data:
        raise UserError("--columns needs --data: it says how your own rows are read")
    for name in ("skip_bad", "max_prompt_tokens"):
        if getattr(settings, name) and not settings.data:
            raise UserError(f"{flag_of(name)} needs --data: it leaves out rows of your own")
    return (
        replace(bench, max_tokens=settings.max_tokens) if settings.max_tokens else bench
    ), players
