"""The driver of a recipe: steps, evaluations, checkpoints, the run folder. Killed at any moment, it
goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import resource
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from palaestra import __version__
from palaestra.attempts import DraftCounts
from palaestra.ends import (
    NOT_JUDGED,
    at_ends,
    beside_ends,
    describe_changes_on_the_way,
    evaluation_of,
)
from palaestra.errors import Fault, Paused, Stopped, UserError
from palaestra.method import Recipe
from palaestra.models.ears import EARS
from palaestra.models.eyes import EYES
from palaestra.models.load import Model, trainable_copy
from palaestra.models.optimiser_files import FOLDER, read_state
from palaestra.models.tower import set_rates
from palaestra.models.vocabulary import check_vocabulary
from palaestra.rollout.cast import Moving
from palaestra.rollout.collect import Sample
from palaestra.run.best import check_choice, follow_best, is_patience_spent
from palaestra.run.checks import check_problem
from palaestra.run.evaluation import (
    attempt_tasks,
    bounds_of_pay,
    measure_held_out,
    sampled_scores,
)
from palaestra.run.evaluators import OWN_EVALUATION, attempts_kept, evaluators_of, run_evaluators
from palaestra.run.first_step import check_weights, first_step_notes
from palaestra.run.measuring import check_sayable
from palaestra.run.parts import Interrupt, stop_signals
from palaestra.run.plan import Plan
from palaestra.run.record_checks import check_recorded, write_omissions
from palaestra.run.saving import Saves, describe_sizes, folder, save_rollouts
from palaestra.run.snapshots import follow_learners
from palaestra.run.stages import check_stages
from palaestra.run.steering import SteeringAnswer, answer_of, keep_set, with_set
from palaestra.schedule import resolve
from palaestra.step import start, step
from palaestra.store import checkpoint, rollouts
from palaestra.terminal.display import Progress, Pulse
from palaestra.terminal.streams import is_unheard
from palaestra.types import SPAN, SPAN_LOGP, Metrics, Result, State
from palaestra.update import AdamW

if TYPE_CHECKING:
    from palaestra.run.context import RunContext


@runtime_checkable
class FinishesRun(Protocol):
    """A draw with a budget of its own, such as actions in an environment: it ends the run."""

    def is_finished(self, state: State) -> bool:
        """Whether it is used up, from the state that the newest step left."""
        ...


MOST_SKIPS = 5  # skipped updates in a row that end a run


async def train(recipe: Recipe, ctx: RunContext) -> Result:
    """Runs the recipe in `ctx`, from the newest whole checkpoint of its folder where
    there is one.
    """
    plan = ctx.plan
    steps = length(recipe, plan)
    prepare(recipe, ctx)
    await check_problem(recipe, ctx)
    await check_recorded(recipe, ctx)
    write_omissions(ctx)
    state, log = resume(recipe, ctx)
    if log is not None:
        ctx.trackers.start(ctx.folder, state["step"])
    progress, stop = Progress(steps, stream=sys.stderr) if ctx.talk else None, StopSignal()
    note_changes(ctx, state, log)
    own, recipe = recipe, with_set(recipe, state)
    say_what_is_set(ctx, state)
    saves, announced, skipped = Saves(ctx), False, dict[str, int]()
    paused = save_on_pause(saves, lambda: state)
    with carriage(recipe, ctx), stop, progress or nullcontext(), paused:
        follow_learners(recipe, ctx, state)
        if "before" not in state["run"]:
            state["run"] |= await measure(recipe, ctx, log, state, "before")
        while state["step"] < steps and not is_budget_spent(recipe, plan, state):
            begin, sampling, before = time.perf_counter(), ctx.engine_seconds, ctx.sampled_tokens
            drafts, phases = ctx.draft_counts, dict(ctx.seconds)
            with pulse(ctx, f"step {state['step'] + 1}", progress):
                state, metrics = await step(recipe, ctx, state)
            skipped = count_skips(skipped, metrics)
            follow_learners(recipe, ctx, state)
            ctx.seconds["rollout"] += ctx.engine_seconds - sampling
            sampled = ctx.sampled_tokens - before
            clock(ctx, state, begin, sampled)
            keep_tool_use(recipe, ctx, state, metrics)
            record = metrics | counters(state, sampled, time.perf_counter() - begin)
            record |= seconds_since(ctx, phases) | drafts_since(ctx, drafts, state)
            if log is not None:
                save_rollouts(ctx, state["step"])
            answer = ask_on_step(recipe, ctx, log, state, record)
            recipe, record = with_set(own, state), {**record, **answer.log}
            if log is not None and ctx.talk and not announced:
                ctx.say(describe_sizes(ctx, None if plan.tokens else steps))
                announced = True
            if progress:
                progress.update(state["step"], record)
            over = answer.stop or await ends_early(recipe, ctx, log, state)
            stop.listen()
            most = max(skipped.values(), default=0)
            ends = over or stop.asked or most >= MOST_SKIPS
            await saves.after_step(state, last=over, now=bool(ends))
            check_diverged(ctx, most)
            if stop.asked and not over:
                raise Stopped(f"stopped after step {state['step']} of {steps}", stop.asked)
            if over:
                break
    await saves.finish(state)
    last = await measure(recipe, ctx, log, state, "after")
    metrics = summary(ctx, state, last) | await measure_samples(ctx, plan)
    return Result(metrics=metrics, artifacts=artifacts(ctx, state["step"]))


async def ends_early(
    recipe: Recipe, ctx: RunContext, log: checkpoint.AppendLog | None, state: State
) -> bool:
    """Whether the method or what is measured between steps ends the run before its last step."""
    return is_over(recipe, ctx, state) or await measure_between(recipe, ctx, log, state)


def check_diverged(ctx: RunContext, skipped: int) -> None:
    """Raises Fault where that many updates in a row were not finite."""
    if skipped >= MOST_SKIPS:
        message = f"{skipped} updates in a row were not finite; see {ctx.out}/cases"
        raise Fault("diverged", message)


def count_skips(before: Mapping[str, int], metrics: Metrics) -> dict[str, int]:
    """Skipped updates in a row, by the name of the metric, which several learners prefix; without
    an update as before.
    """
    skips = {k: v for k, v in metrics.items() if k.rpartition("/")[2] == "skipped"}
    return {**before, **{k: before.get(k, 0) + 1 if v else 0 for k, v in skips.items()}}


@contextmanager
def carriage(recipe: Recipe, ctx: RunContext) -> Generator[None]:
    """Where the recipe's rollouts happen, for as long as it takes; what was counted stays."""
    ctx.carrier = ctx.open_carrier(recipe, ctx)
    try:
        yield
    finally:
        ctx.carrier.close()


@contextmanager
def save_on_pause(saves: Saves, now: Callable[[], State]) -> Generator[None]:
    """Saves the state where a step or an evaluation pauses the run: the models are those of the
    last whole step.
    """
    try:
        yield
    except Paused as paused:
        saves.give_up(now())
        raise Paused(f"paused after step {now()['step']}: {paused}") from None


def length(recipe: Recipe, plan: Plan) -> int:
    """Steps of the run; a budget of tokens stands for the recipe's own length."""
    if plan.steps is not None:
        return plan.steps
    return recipe.schedule.steps if plan.tokens is None else sys.maxsize


def is_budget_spent(recipe: Recipe, plan: Plan, state: State) -> bool:
    """Whether the budget of tokens, or of the recipe's own draw, is used up; a recipe that samples
    nothing ends with its schedule.
    """
    if isinstance(recipe.draw, FinishesRun) and recipe.draw.is_finished(state["draw"]):
        return True
    if plan.tokens is None:
        return False
    sampled = state["run"].get("sampled_tokens", 0)
    return sampled >= plan.tokens or (sampled == 0 and state["step"] >= recipe.schedule.steps)


def is_over(recipe: Recipe, ctx: RunContext, state: State) -> bool:
    """Whether the step was the last one: of the plan, or of the budget."""
    ends = state["step"] == length(recipe, ctx.plan)
    return ends or is_budget_spent(recipe, ctx.plan, state)


def ask_on_step(
    recipe: Recipe,
    ctx: RunContext,
    log: checkpoint.AppendLog | None,
    state: State,
    record: Metrics,
) -> SteeringAnswer:
    """Logs the step with what the user's function says of it, and keeps the fields that it sets. The
    step is logged also where the function raises.
    """
    answer, at = SteeringAnswer(), state["step"]
    try:
        if ctx.on_step is not None:
            answer = answer_of(ctx.on_step(at, dict(record)), recipe, record)
        if answer.set and ctx.elsewhere:
            raise UserError(
                "on_step sets fields, and with --cluster other processes have the recipe as it was; "
                "give the field a schedule, or run without --cluster"
            )
        keep_set(state, answer)
    finally:
        if log is not None:
            note(ctx, log, {"step": at, **record, **answer.log})
            if answer.set:
                log.append({"step": at, "set": dict(answer.set)})
    return answer


def say_what_is_set(ctx: RunContext, state: State) -> None:
    """On going on: what a function set before, whether or not it is given again."""
    if now := state["run"].get("set"):
        fields = ", ".join(f"{k}={x}" for k, x in now.items())
        ctx.say(
            f"set by on_step, and kept: {fields}"
            + ("" if ctx.on_step is not None else "; this time there is no on_step")
        )


def prepare(recipe: Recipe, ctx: RunContext) -> None:
    """Frozen references, learners' models, heads and optimisers, from the models as they are before
    any step.

    A learner that has no model starts as a copy of the policy; where there are adapters, with
    adapters of its own on the policy's base weights. Raises UserError for a part of the
    recipe that does not fit its place.
    """
    check_choice(ctx.plan, recipe)
    check_stages(recipe)
    recipe = resolve(recipe, 0)
    prepare_models(recipe, ctx)
    for name, learner in recipe.learners.items():
        ctx.optimiser(name, learner)
        model = ctx.model(name)
        if model.window < model.positions:
            ctx.say(
                f"{name}: some layers of {model.name} see {model.window} tokens, so no sequence "
                "may be longer"
            )


def prepare_models(recipe: Recipe, ctx: RunContext) -> None:
    """`prepare` without the optimisers."""
    for name, learner in recipe.learners.items():
        for head in learner.heads if name in ctx.models else ():
            if head in (EYES, EARS):  # first, as references are copies and see and hear as it does
                _add_head(ctx.model(name), head)
    by_tokens = {
        name
        for learner in recipe.learners.values()
        for name, quantity in learner.needs
        if quantity not in (SPAN, SPAN_LOGP)
    }
    for name, source in recipe.references.items():
        there = name in ctx.models or name in ctx.scorers
        if not there and not isinstance(source, Moving):
            ctx.reference(name, source)
            if name in ctx.scorers:
                check_sayable(
                    name, (q for x in recipe.learners.values() for m, q in x.needs if m == name)
                )
            if name in by_tokens:
                remedy = (
                    "its log-probs of the policy's tokens mean nothing; take one of the same base, or a "
                    "method that compares texts (distil over=spans)"
                )
                check_vocabulary(ctx.model("policy"), ctx.spelling(name), remedy)
    for name, learner in recipe.learners.items():
        if name not in ctx.models:
            ctx.models[name] = trainable_copy(ctx.model("policy"), share=True)
        for head in learner.heads:
            _add_head(ctx.model(name), head)
        if learner.layers:
            ctx.model(name).freeze_below(learner.layers)
        if learner.rates:
            if not isinstance(learner.optimiser, AdamW) and set(learner.rates.values()) - {0, 1}:
                raise UserError(
                    f"rates: {type(learner.optimiser).__name__} has one rate for all weights; give "
                    "parts 0 or 1"
                )
            model = ctx.model(name)
            senses = {n: head for n, head in model.heads.items() if n in (EYES, EARS)}
            set_rates(model.module, model.causal, learner.rates, model.name, senses)


def _add_head(model: Model, name: str) -> None:
    """A head, where the model has nothing that does its work."""
    if name == EYES:
        model.add_eyes()
    elif name == EARS:
        model.add_ears()
    else:
        model.add_head(name)


def resume(recipe: Recipe, ctx: RunContext) -> tuple[State, checkpoint.AppendLog | None]:
    """The state to go on from; a folder without a whole checkpoint starts from the beginning, and
    says so.
    """
    fresh = start(ctx.seed) | {"run": {}}
    if ctx.out is None:
        return fresh, None
    log = checkpoint.AppendLog(ctx.out / "metrics.jsonl")
    checkpoint.remove_drafts(ctx.out)
    latest, damaged = checkpoint.find_latest(ctx.out)
    for path, why in damaged:
        ctx.say(f"checkpoint {path} is damaged ({why}); using the one before it")
    if latest is None:
        if ctx.resumed:
            ctx.say(f"{ctx.out} has no whole checkpoint; starting from the beginning")
        log.truncate_after(-1)
        rollouts.remove_after(ctx.out, 0)
        return fresh, log
    whole = latest.state()
    if whole["optimisers"].keys() != recipe.learners.keys():
        raise UserError(
            f"{latest.path} was made by a recipe with the learners {', '.join(whole['optimisers'])}, "
            f"and this one has {', '.join(recipe.learners)}; go on with the recipe of before"
        )
    for name, learner in recipe.learners.items():
        where = latest.path / folder(recipe, name)
        tensors = latest.path / FOLDER / name
        ctx.restore(name, learner, where, read_state(whole["optimisers"][name], tensors))
    state: State = whole["state"]
    log.truncate_after(state["step"])
    rollouts.remove_after(ctx.out, state["step"])
    ctx.seconds |= state["run"].get("phase_seconds", {})  # before the first step there are none
    ctx.say(f"resuming after step {state['step']}")
    return state, log


def note_changes(ctx: RunContext, state: State, log: checkpoint.AppendLog | None) -> None:
    """Keeps what is not as it was at the checkpoint that the run goes on from. An evaluation before
    that is of another problem goes, and the log says so.
    """
    run, now = state["run"], {**ctx.plan.conditions, "name": {"task": ctx.bench.name}}
    # checkpoints of earlier versions hold the problem's name alone
    then = run.get("conditions") or (
        {"name": {"task": run["problem"]}} if "problem" in run else now
    )
    run["conditions"] = now
    kinds = {k: changed_names(then[k], now[k]) for k in ("problem", "name", "method") if k in then}
    problem = kinds.get("problem") or kinds.get("name") or []
    what = [*problem, *kinds.get("method", [])]
    if state["step"] == 0 and problem:
        for name in ("before", "evaluations before"):  # nothing was learned yet: measured anew
            run.pop(name, None)
    if state["step"] == 0 or not what:
        return
    change = {"after": f"step {state['step']}", "what": what, "problem": bool(problem)}
    run["changed"] = [*run.get("changed", ()), change]
    if problem:
        run["before"], run["evaluations before"] = {}, {}
        ctx.say(f"note: {describe_changes_on_the_way({'changed': [change]})}")
        if log is not None:
            log.append({"step": state["step"], "changed": what})


def changed_names(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [k for k in {**then, **now} if then.get(k) != now.get(k)]


async def measure(
    recipe: Recipe, ctx: RunContext, log: checkpoint.AppendLog | None, state: State, when: str
) -> dict[str, Any]:
    """How good the models are on held-out problems after a step, and what the evaluators find, also
    into the log: under `when` and "evaluations WHEN". The best model so far is kept.
    """
    plan, at, held = ctx.plan, state["step"], []
    now = resolve(recipe, at)
    with pulse(ctx, f"held-out problems {f'after step {at}' if at else 'before the first step'}"):
        if plan.evaluate:
            with attempts_kept(ctx, OWN_EVALUATION, at):
                held = await measure_held_out(ctx, now, plan.evaluate, plan.answers)
        before = state["run"].get("evaluations before", {})
        others = await run_evaluators(ctx, evaluators_of(now, plan), at, before)
    evaluation = evaluation_of(held)
    record = {"evaluation": evaluation} if evaluation else {}
    record |= {"evaluations": others} if others else {}
    # a run that went on from its own end finds it there
    if record and log is not None and log.last() != {"step": at, **record}:
        note(ctx, log, {"step": at, **record})
    follow_best(ctx, state, evaluation, others)
    return {when: evaluation, f"evaluations {when}": others}


async def measure_between(
    recipe: Recipe, ctx: RunContext, log: checkpoint.AppendLog | None, state: State
) -> bool:
    """Measures after the steps that the plan names; whether that ends the run."""
    every = ctx.plan.evaluate_every
    if not every or state["step"] % every:
        return False
    await measure(recipe, ctx, log, state, "between")
    return is_patience_spent(ctx, state)


def pulse(ctx: RunContext, name: str, progress: Progress | None = None) -> Any:
    """What says that something is still under way, to people whose terminal shows no `progress`
    that moves.
    """
    if not ctx.talk or (progress is not None and progress.live is not None):
        return nullcontext()
    before = ctx.sampled_tokens
    return Pulse(name, tell=lambda: f"{ctx.sampled_tokens - before:,} tokens sampled")


def note(ctx: RunContext, log: checkpoint.AppendLog, record: Mapping[str, Any]) -> None:
    """A line of the log, which the trackers are told too."""
    log.append(record)
    ctx.trackers.log(checkpoint.jsonable(record))


async def measure_samples(ctx: RunContext, plan: Plan) -> dict[str, Any]:
    """`sampled_scores` of the trained policy on the held-out tasks."""
    if not (plan.samples and plan.evaluate and plan.answers):
        return {}
    groups = await attempt_tasks(ctx, plan.evaluate, Sample(n=plan.samples), label="eval samples")
    return {"sampled_after": sampled_scores(groups, plan.samples, bounds_of_pay(ctx.bench))}


def clock(ctx: RunContext, state: State, begin: float, sampled: int) -> None:
    """Adds the step to the run's counters, which are part of the state so that a resumed run goes
    on counting.

    `sampled` is what the run's engines sampled in it: continuations, critiques and judges' verdicts
    count as answers do.
    """
    run = state["run"] = dict(state["run"])
    run["seconds"] = run.get("seconds", 0.0) + time.perf_counter() - begin
    run["sampled_tokens"] = run.get("sampled_tokens", 0) + sampled
    known = sum(v for k, v in ctx.seconds.items() if k != "other")
    ctx.seconds["other"] = max(0.0, run["seconds"] - known)
    run["phase_seconds"] = dict(ctx.seconds)


def keep_tool_use(recipe: Recipe, ctx: RunContext, state: State, metrics: Metrics) -> None:
    """Keeps how tools were used in the step that is over."""
    used = {
        k.removeprefix("tools/"): x
        for k, x in metrics.items()
        # times are of the clock, and turns are in metrics.jsonl
        if k.startswith("tools/") and k.count("/") < 3 and "seconds" not in k and math.isfinite(x)
    }
    if used:
        state["run"] |= {"tools": used}
    say_what_hinders(recipe, ctx, state, metrics)


def say_what_hinders(recipe: Recipe, ctx: RunContext, state: State, metrics: Metrics) -> None:
    """Raises UserError if a weight is not finite; says why the first step learned nothing."""
    check_weights(ctx, metrics)
    if state["step"] == 1:
        for line in first_step_notes(metrics, ctx.seen, recipe):
            ctx.say(f"note: {line}")


def counters(state: State, sampled: int, seconds: float) -> dict[str, float]:
    """Of the run so far; the speed of sampling only where it samples."""
    run = state["run"]
    speed = {"tokens_per_second": round(sampled / max(seconds, 1e-9), 1)}
    return {
        "sampled_tokens": run["sampled_tokens"],
        "seconds": round(run["seconds"], 3),
        **(speed if run["sampled_tokens"] else {}),
    }


def seconds_since(ctx: RunContext, before: Mapping[str, float]) -> dict[str, float]:
    """What each phase took since then: "seconds/PHASE"."""
    return {f"seconds/{k}": round(s - before.get(k, 0.0), 4) for k, s in ctx.seconds.items()}


def drafts_since(ctx: RunContext, before: DraftCounts, state: State) -> dict[str, float]:
    """What drafts did since then; nothing of a run that samples nothing."""
    sampled = state["run"]["sampled_tokens"]
    return ctx.draft_counts.since(before).metrics() if sampled else {}


def summary(ctx: RunContext, state: State, last: Mapping[str, Any]) -> dict[str, Any]:
    """`last`: what was measured after the last step, see `measure`."""
    run = state["run"]
    others = beside_ends(run.get("evaluations before", {}), last["evaluations after"])
    return {
        **ctx.plan.labels,
        "version": __version__,
        "seed": ctx.seed,
        "steps": state["step"],
        "sampled_tokens": run.get("sampled_tokens", 0),
        "seconds": round(run.get("seconds", 0.0), 3),
        **at_ends(run.get("before", {}), last["after"]),
        **({"evaluations": others} if others else {}),
        **({"tools": run["tools"]} if "tools" in run else {}),
        **(
            {"best": {k: run["best"][k] for k in ("measure", "value", "step")}}
            if "best" in run
            else {}
        ),
        **({} if ctx.plan.answers else NOT_JUDGED),
        **({"changed": run["changed"]} if run.get("changed") else {}),
        **({"set": run["set"]} if run.get("set") else {}),
        **({"made_with": digests_of(ctx.plan.conditions)} if ctx.plan.conditions else {}),
        "phase_seconds": {k: round(v, 3) for k, v in run.get("phase_seconds", ctx.seconds).items()},
        "peak_memory_mb": peak_memory_mb(),
        "weights_sha256": ctx.weights_sha256(next(iter(ctx.optimisers), "policy")),
    }


def digests_of(conditions: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Of each kind of what a run is made from, by which parts of a pipeline are compared."""
    whole = {kind: json.dumps(digest, sort_keys=True) for kind, digest in conditions.items()}
    return {kind: hashlib.sha256(text.encode()).hexdigest()[:12] for kind, text in whole.items()}


def peak_memory_mb() -> float:
    """The most this process has held, on the GPU if it uses one, else resident."""
    if torch.cuda.is_initialized():
        return round(torch.cuda.max_memory_reserved() / 2**20, 1)
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, else KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def artifacts(ctx: RunContext, steps: int) -> dict[str, str]:
    """Folders of the trained models by learner name."""
    if ctx.out is None:
        return {}
    names = list(ctx.optimisers)
    at = ctx.out / "checkpoints" / f"step-{steps}"
    return {n: str(at if folder(names, n) == "." else at / n) for n in names}


class StopSignal:
    """Turns SIGTERM, SIGINT and SIGHUP into a question asked at the end of a step. A second signal
    ends at once. That nobody reads what the run says is such a question too.
    """

    def __init__(self) -> None:
        self.asked = 0  # the number of the signal that asked
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        for number in stop_signals():
            try:
                self._before[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: whoever owns it handles signals
                continue
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Asks for the end where nobody reads standard error any more."""
        if is_unheard():
            self.asked = self.asked or signal.SIGPIPE

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise Interrupt(number)
        self.asked = number
