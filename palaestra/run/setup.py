"""From settings to a run: problem, models, context; and what is to be said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from palaestra import catalogue, values
from palaestra.abilities import WritesQuestions
from palaestra.card import Card
from palaestra.context import MOST_DRAWN, Bench, Runnable
from palaestra.engines import select
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.models.load import load
from palaestra.models.lora import LoRA
from palaestra.models.model import Model
from palaestra.models.precision import SMALL, precision_for
from palaestra.models.quantised import describe_bits
from palaestra.pipeline import Pipeline
from palaestra.rollout.collect import Score
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.machine import untested
from palaestra.run.origin import files_of_settings, problem_conditions
from palaestra.run.own_verifier import names_of, own_verifier
from palaestra.run.study import holds_out, study_of
from palaestra.run.unmet import (
    arguments_of_run,
    check_models,
    check_needs,
    needs_of_recipe,
    partly_there,
)
from palaestra.schedule import Scheduled, settling_step
from palaestra.settings.fields import INTERPRETER, TASK, Settings, flag_of
from palaestra.settings.overrides import APART, arguments, build, read_arguments
from palaestra.types import Player


def context(
    settings: Settings,
    *,
    out: Path | None = None,
    talk: bool = True,
    recipe: Runnable | None = None,
    begun: bool = False,
    judged: bool = False,
) -> RunContext:
    """Models and bench of a run, ready to evaluate, or to train by `recipe`; `begun`: it goes on;
    `judged`: something else than the problem may judge, so that data needs no answers.
    """
    if settings.engine.startswith("openai:"):
        raise UserError(
            f"--engine {settings.engine}: what is behind an endpoint can be evaluated, not trained"
        )
    given: Mapping[str, Any] | None = None
    if recipe is not None and holds_out(study_of(recipe)):
        check_held_out(settings)
    if recipe is not None and not begun:
        given = given_arguments(settings)
        check_models(settings, given)
    bench, players = bench_of(
        settings,
        judged=judged or brings_reward(recipe),
        instruction=instruction_of(recipe),
        recipe=recipe,
    )
    bench = with_data_seed(bench, settings.data_seed)
    if given is not None:
        check_needs(settings, bench, given)
    lora = lora_of(settings)
    model = load(settings.model, dtype=settings.precision, device=settings.where, lora=lora)
    model.recompute, model.offload = settings.recompute, settings.activation_offloading
    select.check(settings.engine, model)
    ctx = RunContext(
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
        open_problem=lambda problem, recipe=None: bench_of_part(settings, problem, recipe),
        problem_conditions=lambda problem: conditions_of_part(settings, problem, out or Path()),
    )
    for line in partly_there(settings, bench, given) if given is not None else ():
        ctx.say(line)
    if line := untested(settings.where):
        ctx.say(line)
    return ctx


def with_data_seed(bench: Bench, seed: int | None) -> Bench:
    """A bench whose training problems are drawn by a seed of their own; None = as without one."""
    if seed is None:
        return bench
    return replace(bench, first_drawn=seed * MOST_DRAWN, data_seed=seed)


def given_arguments(settings: Settings) -> dict[str, Any]:
    """The arguments of the method's `build` in a run, as values, defaults included."""
    takes = arguments(settings.recipe)
    given, _ = read_arguments(takes, {k: v for k, v in settings.set.items() if k in takes})
    return arguments_of_run(takes, given)


def measures_its_data(settings: Settings) -> bool:
    """Whether the test data is the training data."""
    data, test = settings.data, settings.test_data
    return bool(data and test) and Path(data).resolve() == Path(test).resolve()


def check_held_out(settings: Settings) -> None:
    """Raises UserError where a run would be measured on what it is trained on."""
    if measures_its_data(settings):
        raise UserError(
            f"{settings.test_data}: the test data is the training data, so nothing is held out; name "
            "another file, or leave --test-data off, and a tenth of the prompts is held out (to "
            f"measure a model on all rows: palaestra eval --data {settings.data} --test-data "
            f"{settings.test_data})"
        )


def lora_of(settings: Settings) -> LoRA | None:
    """The adapters that settings ask for. Raises UserError for settings of adapters without any."""
    if not settings.lora:
        idle = [n for n in ("lora_alpha", "lora_targets", "load_in_4bit") if settings.says(n)]
        if idle:
            raise UserError(
                f"{flag_of(idle[0])} is of adapters; give their rank too, e.g. --lora 16"
            )
        return None
    names = tuple(n.strip() for n in settings.lora_targets.split(",") if n.strip())
    return LoRA(
        rank=settings.lora,
        alpha=settings.lora_alpha,
        targets=tuple(dict.fromkeys(names)),
        load_in_4bit=settings.load_in_4bit,
    )


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


def describe_sampler(settings: Settings) -> str:
    """A line about an engine that samples from copies of the weights in fewer bytes; "" = it does not."""
    if not select.samples_apart(settings.engine):
        return ""
    cap = f"at most {settings.tis:g}" if settings.tis else f"at most {APART:g} (--tis CAP)"
    return (
        f"--engine {settings.engine}: answers are sampled from rounded weights, evaluations too; "
        f"importance weights, {cap}, correct the updates; see mismatch_kl and tis_capped in the metrics"
    )


def describe_adapters(model: Model) -> str:
    """A line about the layers of a model that have adapters; "" = none has."""
    if not model.adapted:
        return ""
    adapters: Any = next(iter(model.module.peft_config.values()))  # type: ignore[union-attr]
    return (
        f"adapters of rank {adapters.r} and alpha {adapters.lora_alpha} on "
        f"{', '.join(sorted(adapters.target_modules))}{describe_bits(model.module)}"
    )


def settings_for(runnable: Runnable, settings: Settings) -> Settings:
    """The settings of a run; where it names no problem and every part of its pipeline has one of its
    own, the last one's is the run's, and of other recipes that of their card. Questions of data are
    asked where the card says.
    """
    world = world_for(settings)
    if settings.docs and not settings.graph and (settings.data or writes_questions(runnable)):
        return replace(settings, env=search_of(settings.env, world))
    asked = settings.data and not settings.graph
    if not settings.env and (asked or (settings.task and world.startswith(INTERPRETER))):
        return replace(settings, env=world)
    if settings.task or settings.data or settings.env:
        return settings
    if card_of(settings.recipe).model and not settings.says("model"):
        settings = replace(settings, model=card_of(settings.recipe).model)
    parts = list(runnable.parts.values()) if isinstance(runnable, Pipeline) else []
    if parts and all(p.problem for p in parts):
        return replace(settings, **parts[-1].problem)
    return replace(settings, task=card_of(settings.recipe).task)


def world_for(settings: Settings) -> str:
    """Where the method's card asks questions; "" = nowhere, or the run names tools or an agent in
    the place of an interpreter, or tools in place of a search where the card asks for tools.
    """
    from palaestra.run.benches import SEARCHES

    card = card_of(settings.recipe)
    searches = card.world in SEARCHES and any(x.kind == "tools" for x in card.needs.places)
    theirs = card.world.startswith(INTERPRETER) or searches
    return "" if theirs and (settings.tools or settings.agent) else card.world


def writes_questions(runnable: Runnable | None) -> bool:
    """Whether what is run first writes questions about documents, so that it needs none."""
    first = next(iter(runnable.parts.values())).runnable if isinstance(runnable, Pipeline) else None
    return isinstance(first, WritesQuestions) and first.writes_questions


def search_of(env: str, world: str) -> str:
    """The search in which a method's questions are asked, with the settings of `env`: the plain one
    stands for the method's own, if it has one.
    """
    from palaestra.run.benches import RETRIEVES, SEARCH

    name, bracket, rest = env.partition("(")
    return f"{world}{bracket}{rest}" if world in RETRIEVES and name in ("", SEARCH) else env


def card_of(method: str) -> Card:
    """A method's card; an empty one where the recipe is a value, or a file without a card."""
    try:
        return getattr(catalogue.find(method), "CARD", Card(title=""))
    except UserError:
        return Card(title="")


def name_run(runnable: Runnable, settings: Settings) -> str:
    """The method, its problem and the model that learns, where a language model does."""
    needs = needs_of_recipe(settings.recipe)
    if needs is not None and not needs.policy:
        return settings.recipe
    return f"{settings.recipe} on {problems_of(runnable, settings)} with {settings.model}"


def problems_of(runnable: Runnable, settings: Settings) -> str:
    """What is learned, for people: of a pipeline whose parts have problems of their own, each
    part's.
    """
    parts = runnable.parts if isinstance(runnable, Pipeline) else {}
    if not any(p.problem for p in parts.values()):
        return settings.problem
    asked = {n: next(iter(p.problem.values()), settings.problem) for n, p in parts.items()}
    return ", ".join(f"{problem} ({n})" for n, problem in asked.items())


def bench_of_part(
    settings: Settings, problem: Mapping[str, str], recipe: Runnable | None = None
) -> tuple[Bench, Mapping[str, Player]]:
    """The bench of a part's own problem under the settings of its run, and its players. Where the `recipe` of the
    part judges by rewards of its own, its data need no answers.
    """
    return bench_of(own_settings(settings, problem), judged=brings_reward(recipe))


def own_settings(settings: Settings, problem: Mapping[str, str]) -> Settings:
    """Those of a part with a problem of its own; the same where it has none. Its documents are searched
    as those of the run, if it has some.
    """
    names = ("task", "env", "docs", "graph", "data", "test_data", "columns")
    own = {**dict.fromkeys(names, ""), **problem}
    if own["docs"] and settings.docs:
        own["env"] = settings.env
    return replace(settings, **own) if problem else settings


def conditions_of_part(
    settings: Settings, problem: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """What the numbers of a part with a problem of its own depend on, see `origin.conditions`."""
    own = own_settings(settings, problem)
    return problem_conditions(own, files_of_settings(own, folder))


def describe_rate(recipe: Runnable | None, settings: Settings, runnable: Runnable) -> str:
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
    names = " and ".join(dict.fromkeys(map(values.brief, moved)))
    return (
        f"learning rate {settings.rate:g}, for a model of {SMALL // 10**6} million weights or "
        f"more; the recipe's own is {names}; another one: optimiser.lr=..."
    )


def describe_schedules(settings: Settings, runnable: Runnable) -> str:
    """A line where a run has fewer steps than its recipe says, and numbers of the recipe follow
    schedules that end after it, within the recipe's own steps; "" = none do.
    """
    takes = arguments(settings.recipe)
    steps = settings.steps
    if not steps or not isinstance(runnable, Recipe) or steps >= runnable.schedule.steps:
        return ""
    ends = {k: settling_step(x) for k, x in values.walk(runnable) if isinstance(x, Scheduled)}
    late = [f"{k} (step {n})" for k, n in ends.items() if steps < n <= runnable.schedule.steps]
    if not late:
        return ""
    cure = f"; steps={steps} in place of --steps {steps} fits them" if "steps" in takes else ""
    return (
        f"note: the run ends after step {steps}, and what the recipe changes on its way goes on: "
        f"{', '.join(late)}{cure}"
    )


def learning_rates(runnable: Runnable) -> dict[str, Any]:
    """Of each learner, a number or a schedule; of a pipeline those of its parts."""
    if isinstance(runnable, Pipeline):
        return {
            f"{name}.{k}": x
            for name, part in runnable.parts.items()
            for k, x in learning_rates(part.runnable).items()
        }
    learners = runnable.learners if isinstance(runnable, Recipe) else {}
    return {name: learner.optimiser.lr for name, learner in learners.items()}


@runtime_checkable
class BringsReward(Protocol):
    """A part of a recipe or a program that judges what it makes by itself. Without it, data have to
    say what is right, unless every reward is the recipe's own.
    """

    @property
    def brings_reward(self) -> bool:
        """Whether data need no answers."""
        ...


def brings_reward(recipe: Runnable | None) -> bool:
    """Whether a recipe judges by rewards of its own, and never asks that of the problem."""
    parts = [recipe, *(part for _, part in values.walk(recipe))]
    judges = [part for part in parts if isinstance(part, Score)]
    own = any(isinstance(part, BringsReward) and part.brings_reward for part in parts)
    return bool(judges or own) and all(part.reward is not None for part in judges)


def instruction_of(runnable: Runnable | None) -> str:
    """What stands behind the prompts of a user's data; "" = nothing. The parts of a pipeline have
    the same prompts, so there it is that of the last part which has one.
    """
    if isinstance(runnable, Pipeline):
        each = [instruction_of(part.runnable) for part in runnable.parts.values()]
        return next((text for text in reversed(each) if text), "")
    return runnable.instruction if isinstance(runnable, Recipe) else ""


def describe_instruction(settings: Settings, runnable: Runnable) -> str:
    """A line where the recipe adds an instruction to the prompts of a user's data; "" = it does not."""
    instruction = instruction_of(runnable)
    if not instruction or not settings.data or (settings.env and not settings.docs):
        return ""
    return (
        f"prompts without a system message end with {values.brief(instruction)}, the form that the "
        "reward reads; instruction= leaves it off"
    )


def describe_verifier(recipe: Runnable, bench: Bench) -> str:
    """A line where answers to a user's held-out problems are judged by the recipe's own verifier;
    "" = they are not.
    """
    own = [own_verifier(recipe, without_answers=x) for x in (False, True)]
    if bench.reward is None or bench.reward not in own:
        return ""
    return (
        f"answers to held-out problems are judged by the method's own verifier, "
        f"{names_of(bench.reward)}; --reward names another one"
    )


def check_problem_settings(settings: Settings) -> None:
    """Raises UserError for settings that are both the problem, or need data and have none."""
    problems = ("task", "data") if settings.in_code else ("task", "data", "env")
    given = [n for n in problems if getattr(settings, n)]
    if len(given) > 1 and given != ["data", "env"]:
        raise UserError(
            f"--{given[0]} and --{given[1]} exclude each other: they are both the problem"
        )
    if settings.reward and ((settings.env and not settings.in_code) or not settings.data):
        raise UserError(
            "--reward needs --data: the built-in tasks and environments have their own rewards"
        )
    if settings.data:
        return
    if settings.test_data:
        raise UserError("--test-data needs --data: it holds out what your own data are measured on")
    if settings.columns:
        raise UserError("--columns needs --data: it says how your own rows are read")
    for name in ("skip_bad", "max_prompt_tokens"):
        if getattr(settings, name):
            raise UserError(f"{flag_of(name)} needs --data: it leaves out rows of your own")
    if settings.overlong:
        raise UserError("--overlong needs --data: it says what becomes of rows of your own")
    if settings.max_pixels:
        raise UserError("--max-pixels needs --data: it makes pictures of your own smaller")
    if settings.max_frames:
        raise UserError(
            "--max-frames needs --data: it says how many frames of your videos are shown"
        )
    if settings.max_duration:
        raise UserError("--max-duration needs --data: it cuts sounds of your own")


def bench_with_tools(bench: Bench, settings: Settings, room: str, *, judged: bool) -> Bench:
    """With an interpreter, or the user's tools, where the run has some. `room`: in which it plays; ""
    = none.

    Raises:
        UserError: where a tool shall fail that is not called.
    """
    from palaestra.run import benches, rooms
    from palaestra.worlds.outage import parse_outage
    from palaestra.worlds.tools import WithTools

    if settings.in_code:
        bench = benches.add_interpreter(bench, settings)
    elif settings.tools and room not in rooms.TAKES_TOOLS:
        limits = (settings.tool_turns, settings.tool_seconds, settings.tool_chars)
        outage = parse_outage(settings.break_tool) if settings.break_tool else None
        bench = benches.add_tools(bench, WithTools(settings.tools, *limits, outage), judged=judged)
    if settings.break_tool and not isinstance(bench.world, WithTools):
        raise UserError(
            "--break-tool lets a tool of --tools fail, and this run calls none; a search or programs in "
            'the reply take it in brackets, e.g. --env "search(fails=0.3,fails_from=10)"'
        )
    return bench


def bench_of(
    settings: Settings,
    *,
    judged: bool = False,
    instruction: str = "",
    recipe: Runnable | None = None,
) -> tuple[Bench, Mapping[str, Player]]:
    """What is learned, and who plays the seats that the policy does not.

    `judged`: the recipe has a reward of its own, so that data needs no answers. `instruction`:
    what stands behind the prompts of data, see `Recipe`. `recipe`: whose verifier judges answers to
    data where no reward is named.
    """
    from palaestra.run import benches, rooms, several

    check_problem_settings(settings)
    players: Mapping[str, Player] = {}
    room = rooms.room_of(settings)
    if room in benches.SEARCHES and not settings.data and writes_questions(recipe):
        bench = benches.documents_alone(settings)
    elif room:
        bench = rooms.ROOMS[room](settings, instruction)
    elif settings.env and not settings.in_code:
        records = benches.rows_of(settings, answers=False) if settings.data else None
        bench, players = several.from_envs(settings.env, records)
    elif settings.agent and settings.data and not settings.reward:
        bench = benches.rows_alone(settings)
    elif settings.data:
        bench = benches.from_data(
            settings.data,
            settings.test_data,
            settings.reward,
            settings.columns,
            timeout=settings.reward_timeout,
            judged=judged,
            skip=settings.skip_bad,
            longest=settings.max_prompt_tokens,
            overlong=settings.overlong,
            pixels=settings.max_pixels,
            frames=settings.max_frames,
            duration=settings.max_duration,
            instruction=instruction,
            recipe=recipe,
        )
    else:
        bench, players = benches.bench_by_name(settings.task or TASK)
    if settings.agent:
        bench = benches.add_agent(bench, settings)
    bench = bench_with_tools(bench, settings, room, judged=judged)
    return (
        replace(bench, max_tokens=settings.max_tokens) if settings.max_tokens else bench
    ), players
