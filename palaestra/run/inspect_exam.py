"""Tasks of Inspect (inspect.aisi.org.uk, github.com/UKGovernmentBEIS/inspect_ai), run by its own code on
the model of a run: `inspect:FILE.py@NAME`, `inspect:inspect_evals/gsm8k(limit_turns=5)`.

Inspect makes the prompts, calls the tools and scores; here the model answers. A task's file is Python that
runs with the user's rights, and its tools run where the task says.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.ends import HeldOut
from palaestra.errors import PalaestraError, UserError
from palaestra.run.harness import HarnessExam, harness_exam, is_harness
from palaestra.stats import proportion
from palaestra.store.checkpoint import make_folder
from palaestra.suggest import suggestion_or_all
from palaestra.tasks.spec import parse_alone
from palaestra.types import Call, Message, Sampling, ToolSchema, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.run.context import RunContext

PREFIX = "inspect:"
FOLDER = "inspect"  # of a run, with Inspect's logs
API = "palaestra"  # of which the run's models are, to Inspect
GENERATED = 256  # tokens of an answer where the task does not say


def library_exam(name: str, n: int) -> HarnessExam | InspectExam | None:
    """The exam of another library that a name asks for; None = the name is of a task here."""
    if is_harness(name):
        return harness_exam(name, n)
    return inspect_exam(name, n) if name.startswith(PREFIX) else None


def inspect_exam(name: str, n: int) -> InspectExam:
    """The exam that `inspect:TASK(setting=value, ...)` names; the settings are the task's own."""
    text = name.removeprefix(PREFIX)
    head, bracket, _ = text.partition("(")
    if not head:
        raise UserError(f"{name}: name a task, {PREFIX}FILE.py@NAME or {PREFIX}PACKAGE/NAME")
    given = (
        parse_alone(f"task{text[len(head) :]}", f"{PREFIX}TASK(setting=value)").settings
        if bracket
        else {}
    )
    check_named(head)
    return InspectExam(head, n, tuple(given.items()))


def check_named(task: str) -> None:
    """Raises UserError for FILE.py@NAME where the file nowhere has the name."""
    file, _, name = task.partition("@")
    if not name or not Path(file).is_file():
        return
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    if not re.search(rf"\b{re.escape(name)}\b", text):
        there = re.findall(r"^@(?:\w+\.)?task\b[^\n]*\n(?:async )?def (\w+)", text, re.MULTILINE)
        raise UserError(f"{PREFIX}{task}: no task {name!r}{suggestion_or_all(name, there)}")


@stage
class InspectExam:
    """A task of Inspect.

    Args:
        task: as `inspect eval` names it: FILE.py, FILE.py@NAME, or PACKAGE/NAME.
        n: samples of its data set, at most.
        settings: arguments of the task, as `inspect eval -T NAME=VALUE` gives them.
    """

    task: str
    n: int = 256
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        need_at_least(self, n=1)

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        """The metrics of each scorer as Inspect names them: of one scorer "accuracy", of several
        "match/accuracy". Logs, which `inspect view` shows, go to inspect/step-N of the run's folder.

        Raises:
            UserError: no such library or task, or the task failed.
        """
        try:
            library, models = import_module("inspect_ai"), import_module("inspect_ai.model")
        except ImportError as error:
            raise UserError(
                f"{PREFIX}{self.task} needs inspect_ai ({error}): pip install 'palaestra[inspect]'"
            ) from None
        file = Path(self.task.partition("@")[0])
        if file.suffix == ".py" and not file.is_file():
            raise UserError(f"{PREFIX}{self.task}: there is no file {file}")
        model = run_model(ctx, models, asyncio.get_running_loop())
        try:
            logs = await asyncio.to_thread(self._measure, ctx, library, model)
        except PalaestraError:
            raise
        except Exception as error:  # of the library, the task or its data
            what = " ".join(str(error).split())[:300]
            raise UserError(f"inspect, {self.task}: {type(error).__name__}: {what}") from error
        return metrics_of(self.task, logs)

    def _measure(self, ctx: RunContext, library: Any, model: Any) -> Sequence[Any]:
        """In a thread: Inspect has a loop of its own."""
        with tempfile.TemporaryDirectory() as place:
            kept = ctx.out / FOLDER / f"step-{ctx.measured_at}" if ctx.out else Path(place)
            logs = library.eval(
                self.task,
                model=model,
                task_args=dict(self.settings),
                limit=self.n,
                display="none",
                log_dir=str(make_folder(kept)),
                log_format="json",
                fail_on_error=True,
                score_display=False,
                seed=ctx.seed,
            )
        taken = {name for log in logs for name in log.eval.task_args}
        if logs and (strange := [k for k, _ in self.settings if k not in taken]):
            raise UserError(f"{PREFIX}{self.task}: the task has no setting {strange[0]!r}")
        return logs


def metrics_of(task: str, logs: Sequence[Any]) -> dict[str, Any]:
    """The numbers of Inspect's logs. An accuracy that is the share of correct samples has its interval.

    Raises:
        UserError: there was no task, or it did not end well.
    """
    if not logs:
        raise UserError(
            f"{PREFIX}{task}: Inspect found no such task; FILE.py@NAME names one of a file"
        )
    read = dict[str, Any]()
    for log in logs:
        if log.status != "success":
            why = log.error.message if log.error else log.status
            raise UserError(f"inspect, {task}: {' '.join(str(why).split())[:300]}")
        scores = log.results.scores if log.results else []
        for score in scores:
            head = f"{log.eval.task}/" if len(logs) > 1 else ""
            head += f"{score.name}/" if len(scores) > 1 else ""
            for metric, value in score.metrics.items():
                read[head + metric] = measured(float(value.value), metric, log, score.name)
    return read


def measured(value: float, metric: str, log: Any, scorer: str) -> Any:
    """A metric as it is, or as an accuracy where it is a share of samples, each right or wrong once."""
    scored = [(s.scores or {}).get(scorer) for s in log.samples or ()]
    right = [x.value in ("C", 1, True) for x in scored if x is not None]
    plain = all(x is not None and x.value in ("C", "I", 0, 1) for x in scored)
    if (
        metric != "accuracy"
        or not right
        or not plain
        or abs(sum(right) / len(right) - value) > 1e-9
    ):
        return value
    return HeldOut(of="accuracy", interval=proportion(sum(right), len(right))).json()


# ---- a model as Inspect asks it


def run_model(ctx: RunContext, models: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """The policy of a run as a model of Inspect."""

    class RunAPI(models.ModelAPI):
        """Answers with the engine of the run, whose loop is another one."""

        def __init__(self, model_name: str = "policy", config: Any = None, **_: Any) -> None:
            super().__init__(model_name, None, None, [], config or models.GenerateConfig())
            self.asked = 0

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
            self.asked += 1
            key = (ctx.seed, PREFIX, self.asked)
            work = answer(ctx, models, input, () if tool_choice == "none" else tools, config, key)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    models.modelapi(name=API)(RunAPI)
    return models.get_model(f"{API}/policy", memoize=False)


async def answer(
    ctx: RunContext,
    models: Any,
    messages: Sequence[Any],
    tools: Sequence[Any],
    config: Any,
    key: Any,
) -> Any:
    """What the policy replies to messages of Inspect, as its ModelOutput."""
    engine, model = ctx.engine("policy"), ctx.model("policy")
    schemas = tuple(map(schema_of, tools))
    pieces = engine.dialect.extend(
        tuple(map(message_of, messages)), first=True, closed=False, tools=schemas
    )
    prompt = tuple(i for p in pieces for i in p.ids)
    room = model.context - len(prompt)
    if room < 1:
        return models.ModelOutput.from_content("policy", "", stop_reason="model_length")
    sampling = Sampling(
        temperature=config.temperature or 0.0,
        top_k=config.top_k or 0,
        top_p=1.0 if config.top_p is None else config.top_p,
        max_tokens=min(config.max_tokens or GENERATED, room),
        stop=tuple(config.stop_seqs or ()),
    )
    made = await engine.generate(prompt, sampling, key)
    text = made.text[: made.cut]
    calls = (
        [c for c in engine.dialect.read_calls(text, made.finish, schemas) if isinstance(c, Call)]
        if tools
        else []
    )
    finish = "max_tokens" if made.finish == "length" else "tool_calls" if calls else "stop"
    message = models.ChatMessageAssistant(
        content=text,
        model="policy",
        source="generate",
        tool_calls=[tool_call(c, f"{key[-1]}-{i}") for i, c in enumerate(calls)] or None,
    )
    usage = models.ModelUsage(
        input_tokens=len(prompt),
        output_tokens=len(made.ids),
        total_tokens=len(prompt) + len(made.ids),
    )
    choice = models.ChatCompletionChoice(message=message, stop_reason=finish)
    return models.ModelOutput(model="policy", choices=[choice], usage=usage)


def schema_of(tool: Any) -> ToolSchema:
    """A tool of Inspect."""
    parameters = tool.parameters.model_dump_json(exclude_none=True)
    return ToolSchema(name=tool.name, description=tool.description, parameters=parameters)


def tool_call(call: Call, name: str) -> Any:
    """A call as Inspect has them."""
    kind = import_module("inspect_ai.tool").ToolCall
    return kind(id=call.id or name, function=call.name, arguments=dict(call.args))


def message_of(given: Any) -> Message:
    """A message of Inspect. A reply holds the calls that it wrote in its text.

    Raises:
        UserError: it holds what is no text.
    """
    if isinstance(given.content, list) and any(
        p.type not in ("text", "reasoning") for p in given.content
    ):
        raise UserError(f"{PREFIX}...: a message holds what is no text; only text is asked here")
    if given.role != "tool":
        return Message(role=given.role, content=given.text)
    error = f"error: {given.error.message}" if given.error else ""
    return Message(
        role="tool",
        content=error or given.text,
        name=given.function or "",
        call_id=given.tool_call_id or "",
    )
