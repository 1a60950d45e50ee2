"""The recipe that settings name, with their overrides; settings over others."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Literal, get_args

from palaestra import catalogue, values
from palaestra.context import RewardFn, Runnable, Source
from palaestra.engines.select import samples_apart
from palaestra.errors import PalaestraError, UserError
from palaestra.judges.pointwise import Judge
from palaestra.method import Recipe
from palaestra.objective.mismatch import TIS
from palaestra.pipeline import Pipeline, WithModels
from palaestra.schedule import HasSmallest, change_inside
from palaestra.services.chat.named import client_from_text
from palaestra.settings.fields import VALUE, Settings, Use, flag_of, setting_names
from palaestra.settings.rewards import JUDGE, reward_by_name
from palaestra.suggest import from_elsewhere, suggestion_or_all
from palaestra.tasks.user_code import locate_error
from palaestra.update import AdamW, AdamW8bit

APART = 2.0  # cap of the importance weights where the engine samples apart and nobody names one
SMOKE = {  # a recipe at its smallest, see `make_smallest`
    "schedule.prompts": 2,
    "draw.tasks": 8,
    "collect.links.0.n": 2,
    "collect.links.0.link.n": 2,
    "collect.links.0.room.turns": 2,
    "evaluate.rooms.sample.room.turns": 2,
    "evaluate.rooms.tasks": 2,
    "pool.size": 2,
    "pool.batches": 1,
    "n": 2,
    "tasks": 4,
    "problems": 4,
    "evaluate.new worlds.rounds": 2,
}
SMOKE_EXAM = 4  # most problems that an exam of such a run asks
EXAM_SIZE = re.compile(r"evaluate\.[^.]+\.(n|tasks)")


def merge(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Merges `given` over `settings`; overrides in `set` are kept unless replaced."""
    known = [f.name for f in fields(settings)]
    for key in given:
        if key not in known:
            raise UserError(
                f"unknown setting {key!r}{from_elsewhere(key) or suggestion_or_all(key, known)}"
            )
    words = given.get("set", {})
    changed = replace(settings, **{k: v for k, v in given.items() if k != "set"})
    changed, by_flag = read_flags(changed, words)
    words = {**words, **by_flag}
    return replace(changed, set={**lasting_overrides(settings, changed, words), **words})


def read_flags(settings: Settings, words: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Flags that name an argument of the method, as its card says (`Requirements.flags`): the settings
    without them, and the arguments. Raises UserError where one is also given as a word.
    """
    if not (settings.env or settings.goal or settings.llm):
        return settings, {}
    flags = flags_of(settings.recipe)
    by_flag = {name: getattr(settings, flag) for flag, name in flags.items()}
    for flag, name in flags.items():
        if by_flag[name] and name in words:
            raise UserError(f"{flag_of(flag)} and {name}= name the same; leave out {name}=")
    rest = replace(settings, **dict.fromkeys(flags, ""))
    return rest, {name: x for name, x in by_flag.items() if x}


@contextmanager
def name_flags(method: str) -> Generator[None]:
    """An error inside that begins with an argument of the method, `asked=`, begins with its flag."""
    try:
        yield
    except UserError as error:
        argument, sign, rest = str(error).partition("=")
        flags = [flag for flag, name in flags_of(method).items() if sign and name == argument]
        if not flags:
            raise
        raise UserError(f"{flag_of(flags[0])} {rest}") from None


def flags_of(method: str) -> Mapping[str, str]:
    """The settings that name an argument of a method, as its card says, and the argument."""
    card = None if method == VALUE else getattr(catalogue.find(method), "CARD", None)
    return {} if card is None else card.needs.flags


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
    optim: str = "",
    engine: str = "",
) -> Runnable:
    """The recipe of a method. An override that names an argument of its `build` goes there, the
    others into the value.

    `tis` > 0 corrects for the engine's mismatch: truncated importance sampling with that cap.
    `rate` > 0 is the learning rate of every learner, unless an override says otherwise. `embedded`:
    what the method makes of its own problem, see `embeds`. `optim`: another optimiser for every learner.
    `engine`: what samples; where that is from another distribution and `tis` is 0, a cap of `APART`
    corrects what the method leaves uncorrected.
    """
    takes = arguments(method)
    with name_flags(method):
        given, models = read_arguments(takes, {k: v for k, v in overrides.items() if k in takes})
    own = embedded and embedded_takes(method, given)
    made = call_build(method, given, "embedded" if own else "build")
    made = change_parts(made, lambda r: add_models(r, models)) if models else made
    words = {k: v for k, v in overrides.items() if k not in takes}
    return change_recipe(made, words, tis, rate, optim, engine)


def read_arguments(
    takes: Mapping[str, inspect.Parameter], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Arguments of a `build` as their declared types, and the models that clients among them name,
    by the arguments.
    """
    read, models = dict[str, Any](), dict[str, str]()
    for name, x in given.items():
        hint = takes[name].annotation
        types = (hint, *get_args(hint))
        kinds = types if isinstance(x, str) and x != "none" else ()
        if says_none(x) and type(None) in types:
            read[name] = None  # `parse` knows no values of a protocol
        elif Source in kinds:
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


def says_none(given: object) -> bool:
    """Whether an argument is given as nothing."""
    return given is None or given == "none"


def add_models(runnable: Runnable, models: Mapping[str, str]) -> Runnable:
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


def embedded_takes(method: str, given: Mapping[str, Any]) -> bool:
    """Whether the recipe for a method's own problem takes these arguments: a model of the user, say,
    is for `build`.
    """
    takes = inspect.signature(catalogue.find(method).embedded).parameters.values()
    every = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes)
    return every or given.keys() <= {p.name for p in takes}


def change_recipe(
    recipe: Runnable,
    overrides: Mapping[str, Any],
    tis: float = 0.0,
    rate: float = 0.0,
    optim: str = "",
    engine: str = "",
) -> Runnable:
    """A recipe with a correction, an optimiser, a rate and fields by their paths, in this order; see
    `build`.
    """
    recipe = change_parts(recipe, lambda r: add_tis(r, tis)) if tis else recipe
    if engine and not tis and samples_apart(engine):
        recipe = change_parts(recipe, lambda r: correct(r, engine))
    recipe = change_parts(recipe, lambda r: set_optimiser(r, optim)) if optim else recipe
    recipe = change_parts(recipe, lambda r: set_rate(r, rate)) if rate else recipe
    for path, given in overrides.items():
        with point_to_flag(path, given):
            recipe = values.override(recipe, path, given)
    return recipe


@contextmanager
def point_to_flag(path: str, given: Any) -> Generator[None]:
    """If the path names a setting of the run and no recipe field, the error says which flag to use."""
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
) -> Runnable:
    """What the `build` of a method returns, or its `embedded`. Raises UserError for what it refuses,
    and for any mistake in a user's own file.
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
        if (reason := mistake(method, str(module.__file__), error, bool(given))) is None:
            raise
        raise reason from error
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


def recipe_of(settings: Settings) -> Runnable:
    """The recipe with the settings' overrides; models that are not small get a smaller learning
    rate.
    """
    s = settings
    return build(s.recipe, s.set, s.tis, s.rate, s.embedded, s.optim, s.engine)


def adjust_recipe(recipe: object, settings: Settings) -> Runnable:
    """A recipe that is a value, with what the settings say of it."""
    if not isinstance(recipe, Runnable):
        raise UserError(f"{recipe!r} is no recipe; give a method's name, recipe(...) or vary(...)")
    s = settings
    return change_recipe(recipe, s.set, s.tis, s.rate, s.optim, s.engine)


def whole_recipe(recipe: Runnable | None, settings: Settings) -> Runnable:
    """The recipe of a run: the value that is given, else the one that settings name, with what they
    say of it.
    """
    return recipe_of(settings) if recipe is None else adjust_recipe(recipe, settings)


def without_fields(recipe: Runnable | None, settings: Settings) -> Runnable:
    """The recipe that settings name, or the value that is given, before fields of it are set."""
    if recipe is not None:
        return adjust_recipe(recipe, replace(settings, set={}))
    takes = arguments(settings.recipe)
    return recipe_of(replace(settings, set={k: v for k, v in settings.set.items() if k in takes}))


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
        with point_to_flag(word, words[word]):
            at = values.find(recipe, word)
        last = {k: v for k, v in last.items() if not f"{places.get(k, '')}.".startswith(f"{at}.")}
        recipe = values.override(recipe, word, words[word])
    return last


def change_parts(runnable: Runnable, change: Callable[[Runnable], Runnable]) -> Runnable:
    """The runnable changed; of a pipeline, every part."""
    if not isinstance(runnable, Pipeline):
        return change(runnable)
    parts = {
        n: replace(p, runnable=change_parts(p.runnable, change)) for n, p in runnable.parts.items()
    }
    return replace(runnable, parts=parts)


def make_smallest(runnable: Runnable) -> Runnable:
    """A recipe at its smallest: two prompts, two samples, few problems of each exam, and parts that
    say how small they may be (`schedule.HasSmallest`); of a pipeline, every part.
    """

    def small(recipe: Runnable) -> Runnable:
        known = values.flatten(recipe)
        exams = {
            path: SMOKE_EXAM
            for path, n in known.items()
            if EXAM_SIZE.fullmatch(path) and isinstance(n, int) and n > SMOKE_EXAM
        }
        for path, given in {**exams, **SMOKE}.items():
            recipe = values.override(recipe, path, given) if path in known else recipe
        return change_inside(recipe, shrink)

    return change_parts(runnable, small)


def shrink(part: Any) -> Any:
    """A part with the numbers of its `smallest` where its own are larger."""
    if not isinstance(part, HasSmallest):
        return part
    whole: Any = part
    smaller = {n: least for n, least in part.smallest.items() if getattr(part, n) > least}
    return replace(whole, **smaller) if smaller else part


def set_rate(runnable: Runnable, rate: float) -> Runnable:
    """A recipe whose learners all move at a rate; a program of its own stays as it is."""
    if not isinstance(runnable, Recipe):
        return runnable
    learners = {
        n: replace(l, optimiser=replace(l.optimiser, lr=rate)) for n, l in runnable.learners.items()
    }
    return replace(runnable, learners=learners)


def correct(runnable: Runnable, engine: str) -> Recipe:
    """A recipe whose learners all weight by pi / mu: by their own correction, else at most `APART`.

    Raises:
        UserError: it is a program, which importance weights do not reach.
    """
    if not isinstance(runnable, Recipe):
        raise UserError(
            f"--engine {engine} samples from another distribution than the trainer's, and this method "
            "is a program of its own, whose objectives importance weights do not reach; use --engine own"
        )
    given = {n: l for n, l in runnable.learners.items() if isinstance(l.objective, TIS)}
    return replace(runnable, learners={**add_tis(runnable, APART).learners, **given})


def set_optimiser(runnable: Runnable, optim: str) -> Recipe:
    """A recipe whose learners keep their moments in 8 bits.

    Raises:
        UserError: it is a program of its own, or one of its learners has another optimiser than AdamW.
    """
    if not isinstance(runnable, Recipe):
        raise UserError(
            "--optim changes the optimisers of a recipe; this method is a program of its own"
        )
    other = [n for n, l in runnable.learners.items() if type(l.optimiser) is not AdamW]
    if other:
        kind = type(runnable.learners[other[0]].optimiser).__name__
        raise UserError(f"--optim {optim} is for AdamW, and the learner {other[0]!r} has {kind}")
    paged = optim.startswith("paged")
    learners = {
        n: replace(l, optimiser=AdamW8bit(**vars(l.optimiser), paged=paged))
        for n, l in runnable.learners.items()
    }
    return replace(runnable, learners=learners)


def add_tis(runnable: Runnable, cap: float) -> Recipe:
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
