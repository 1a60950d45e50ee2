"""Chat completions in OpenAI's form: what a request asks, and how an answer to it is written."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from palaestra.chat.calls import LLAMA_MARK, MISTRAL_MARK
from palaestra.errors import UserError
from palaestra.tasks.tool_data import write_calls
from palaestra.types import Act, Call, Message, ToolSchema, value_class

MOST_CHOICES = 128  # `n` of one request
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
TOOL_ROLES = ("tool", "function")
CALL_MARKS = ("<tool_call>", MISTRAL_MARK, LLAMA_MARK)
FINISH = {"eos": "stop", "stop": "stop", "": "stop", "length": "length"}
PIECE = re.compile(r"\S+\s*|\s+")  # a streamed piece: a word with the space behind it
USED = {
    "messages", "model", "tools", "n", "stop", "max_tokens", "max_completion_tokens", "stream",
    "stream_options", "logprobs", "temperature",
}  # fmt: skip
# values that ask for nothing, and parameters that change no token
HARMLESS: Mapping[str, Sequence[Any]] = {
    "top_p": (1,), "presence_penalty": (0,), "frequency_penalty": (0,), "tool_choice": ("auto", "none"),
    "parallel_tool_calls": (True,), "top_logprobs": (0,), "response_format": ({"type": "text"},),
    "logit_bias": ({},), "store": (False,), "functions": ([],),
}  # fmt: skip
WITHOUT_EFFECT = {"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"}
Body: TypeAlias = Mapping[str, Any]


class Refusal(Exception):
    """An answer that is an error in OpenAI's form."""

    def __init__(self, status: int, text: str, code: str = "invalid_request_error"):
        super().__init__(text)
        self.status, self.code = status, code

    def json(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "error": {"message": str(self), "type": kind, "code": self.code, "param": None},
        }


@value_class
class Line:
    """A message of a request. Lines with equal `mark` are the same message, however an agent's
    library wrote it: without a null content or with one, with another order of keys.
    """

    mark: str
    message: Message


@value_class
class CompletionRequest:
    """What an agent asks."""

    lines: tuple[Line, ...]
    tools: tuple[ToolSchema, ...] = ()
    n: int = 1
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    usage: bool = False  # of a stream
    logprobs: bool = False
    model: str = ""
    agent: str = ""  # several agents of an episode have names
    notes: tuple[str, ...] = field(default=(), compare=False)  # what is asked and not done


def read_request(body: Any, agent: str = "") -> CompletionRequest:
    """A request from its JSON. Raises Refusal where it cannot be read.

    Args:
        agent: the name from a header; without one it is what follows ":" in `model`.
    """
    if not isinstance(body, Mapping):
        raise Refusal(400, "the body is no JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "messages must be a list with at least one message")
    model = str(body.get("model") or "")
    options = body.get("stream_options")
    return CompletionRequest(
        lines=tuple(read_message(m, f"messages[{i}]") for i, m in enumerate(messages)),
        tools=() if body.get("tool_choice") == "none" else _tools(body.get("tools")),
        n=_whole(body, "n", most=MOST_CHOICES) or 1,
        stop=_stops(body.get("stop")),
        max_tokens=_whole(body, "max_completion_tokens") or _whole(body, "max_tokens"),
        temperature=_temperature(body.get("temperature")),
        stream=bool(body.get("stream")),
        usage=bool(options.get("include_usage")) if isinstance(options, Mapping) else False,
        logprobs=bool(body.get("logprobs")),
        model=model,
        agent=agent or model.partition(":")[2],
        notes=tuple(ignored(body, USED | WITHOUT_EFFECT, HARMLESS)),
    )


def ignored(
    body: Body, known: Collection[str], harmless: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """A line for each parameter that has no effect here.

    Args:
        known: parameters of which nothing is said.
        harmless: values of others that ask for nothing.
    """
    for name, value in body.items():
        if name not in known and value is not None and value not in harmless.get(name, ()):
            yield f"the parameter {name!r} of a request has no effect here"


def _whole(body: Body, name: str, most: int = 1 << 30) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise Refusal(400, f"{name} must be a whole number from 1 to {most}, not {value!r:.40}")
    return value


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 2:
        raise Refusal(400, f"temperature must be a number from 0 to 2, not {value!r:.40}")
    return float(value)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise Refusal(400, "stop must be a text or a list of texts")
    return tuple(stops)


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    if value is not None and not isinstance(value, list):
        raise Refusal(400, "tools must be a list")
    return tuple(_tool(t, f"tools[{i}]") for i, t in enumerate(value or ()))


def _tool(given: Any, where: str) -> ToolSchema:
    about = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(about, Mapping) or not isinstance(about.get("name"), str):
        raise Refusal(400, f'{where} must be {{"type": "function", "function": {{"name": ...}}}}')
    parameters = about.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise Refusal(400, f"{where}.function.parameters must be a JSON schema")
    return ToolSchema(
        name=about["name"],
        description=str(about.get("description") or ""),
        parameters=json.dumps(parameters),
    )


# ---- messages


def read_message(given: Any, where: str) -> Line:
    """A message of a request. Raises Refusal where it is none, or holds what is no text."""
    if not isinstance(given, Mapping):
        raise Refusal(400, f"{where} must be an object")
    role = given.get("role")
    text = _text(given.get("content"), where)
    if role in TOOL_ROLES:
        call_id, name = str(given.get("tool_call_id") or ""), str(given.get("name") or "")
        message = Message(role="tool", content=text, name=name, call_id=call_id)
        return Line(mark=_mark("tool", text, call_id), message=message)
    if role not in ROLES:
        raise Refusal(400, f"{where}.role is {role!r:.40}; roles are {', '.join(ROLES)}, tool")
    if role != "assistant":
        role = ROLES[role]
        return Line(mark=_mark(role, text), message=Message(role=role, content=text))
    try:
        calls = write_calls(given, where, "message") if given.get("tool_calls") else ""
    except UserError as error:
        raise Refusal(400, str(error)) from None
    content = "\n".join(filter(None, (text, calls)))
    mark = _mark("assistant", text, *_call_marks(given.get("tool_calls")))
    return Line(mark=mark, message=Message(role="assistant", content=content))


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            raise Refusal(400, f"{where}.content holds what is no text; only text is taken here")
    return "".join(part["text"] for part in parts)


def _mark(*parts: Any) -> str:
    return json.dumps([x.strip() if isinstance(x, str) else x for x in parts], sort_keys=True)


def _call_marks(calls: Any) -> list[list[Any]]:
    """What says which calls they are: arguments as values, so that their spelling is no matter."""
    marks: list[list[Any]] = []
    for call in calls or ():
        arguments = call["function"].get("arguments") if "function" in call else None
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        name = call["function"]["name"] if "function" in call else call.get("name")
        marks.append([call.get("id"), name, arguments])
    return marks


# ---- answers


def reply_message(act: Act, number: int) -> dict[str, Any]:
    """What a turn said, as a message of the assistant.

    Args:
        number: of the turn in its episode, which names its calls.
    """
    calls = [c for c in act.calls if isinstance(c, Call)]
    if not calls or len(calls) < len(act.calls):  # what cannot be read stays text
        return {"role": "assistant", "content": said_text(act)}
    written = [
        {
            "id": c.id or f"call{number:03d}{i:02d}",
            "type": "function",
            "function": {"name": c.name, "arguments": json.dumps(c.args, ensure_ascii=False)},
        }
        for i, c in enumerate(calls)
    ]
    return {"role": "assistant", "content": beside_calls(act.text), "tool_calls": written}


def said_text(act: Act) -> str:
    """A reply without the stop string that ended it."""
    if act.finish != "stop":
        return act.text
    ended = next((s for s in act.ask.stop if act.text.endswith(s)), "")
    return act.text.removesuffix(ended)


def beside_calls(text: str) -> str | None:
    """What a reply says before its calls; None = nothing."""
    marks = [at for mark in CALL_MARKS if (at := text.find(mark)) >= 0]
    before = text[: min(marks)] if marks else "" if text.lstrip().startswith("{") else text
    return before.strip() or None


@value_class
class CompletionAnswer:
    """What an agent is answered."""

    id: str
    model: str
    acts: tuple[Act, ...]
    messages: tuple[Mapping[str, Any], ...]  # of the acts
    logprobs: bool = False

    def json(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        return {
            **self._head("chat.completion"),
            "choices": [
                {
                    "index": i,
                    "message": dict(message),
                    "finish_reason": self.finish(i),
                    "logprobs": self._logprobs(i),
                }
                for i, message in enumerate(self.messages)
            ],
            "usage": self.usage(),
        }

    def chunks(self, usage: bool) -> Iterator[dict[str, Any]]:
        """The same as a stream."""
        for i, message in enumerate(self.messages):
            yield self._chunk(i, {"role": "assistant", "content": ""}, self._logprobs(i))
            for piece in PIECE.findall(message["content"] or ""):
                yield self._chunk(i, {"content": piece})
            for at, call in enumerate(message.get("tool_calls", ())):
                yield self._chunk(i, {"tool_calls": [{"index": at, **call}]})
            yield self._chunk(i, {}, finish=self.finish(i))
        if usage:
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage()}

    def finish(self, i: int) -> str:
        return "tool_calls" if "tool_calls" in self.messages[i] else FINISH[self.acts[i].finish]

    def usage(self) -> dict[str, int]:
        completion = sum(a.n_tokens for a in self.acts)
        read = max((a.n_context for a in self.acts), default=0)
        return {
            "prompt_tokens": read,
            "completion_tokens": completion,
            "total_tokens": read + completion,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": self.model}

    def _chunk(
        self, i: int, delta: Body, logprobs: Any = None, finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": i, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _logprobs(self, i: int) -> dict[str, Any] | None:
        """Tokens by their ids, as vLLM names them, for a token may be half a character."""
        sample = self.acts[i].sample
        if not self.logprobs or sample is None:
            return None
        content = [
            {"token": f"token_id:{t}", "logprob": x, "bytes": None, "top_logprobs": []}
            for t, x in zip(sample.ids, sample.logp, strict=True)
        ]
        return {"content": content, "refusal": None}
