"""Chat templates as text: what they write around the contents of messages."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from palaestra.chat.template_sandbox import Excess, render_template
from palaestra.errors import UserError
from palaestra.types import ToolSchema

PLAIN = (  # for a tokenizer without a template: contents on lines, replies closed by the end token
    "{{ bos_token or '' }}{% for message in messages %}{{ message['content'] }}"
    "{{ (eos_token or '') if message['role'] == 'assistant' else '' }}{{ '\n' }}{% endfor %}"
)
# how templates say no, or fail: ranges that are too long, macros without an end, blocks in blocks
REFUSALS = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    SyntaxError,
    MemoryError,
)
LONGEST = 10.0  # seconds of computing that a rendering may take; common ones take a thousandth
_REPLIED = {"role": "assistant", "content": "~reply~"}
_PROBE = "~text~"
GLANCE = 0.5  # seconds between looks at the clock


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    speak: bool,
    tools: Sequence[ToolSchema] = (),
) -> str:
    """The conversation as text; with `speak`, up to where the next reply begins. Raises one of
    REFUSALS, and UserError where the template does not come to an end.
    """
    name = tokenizer.name_or_path or "the tokenizer"
    schemas = [t.json() for t in tools] or None
    source = tokenizer.get_chat_template(None if tokenizer.chat_template else PLAIN, schemas)
    named = tokenizer.special_tokens_map
    alone = reads_parts_alone(source, tuple(sorted((k, str(v)) for k, v in named.items())))
    variables = {
        **named,
        "messages": [as_parts(m) if alone else dict(m) for m in messages],
        "tools": schemas,
        "documents": None,
        "add_generation_prompt": speak,
    }
    try:
        text = _within(LONGEST, lambda: render_template(source, variables))
    except Excess as error:
        raise UserError(
            f"the chat template of {name} is refused: {error}; mend its chat_template, or take "
            "another model"
        ) from None
    if text is None:
        raise UserError(
            f"the chat template of {name} loops: it was stopped after {LONGEST:g} seconds of "
            "computing; mend its chat_template, or take another model"
        )
    return text


def as_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its text as a list of one part."""
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": parts}


@lru_cache(64)
def reads_parts_alone(source: str, named: tuple[tuple[str, str], ...]) -> bool:
    """Whether a template, with its special tokens, writes contents that are lists of parts and
    leaves out those that are text, as some of vision-language models do.
    """

    def shows(content: Any) -> bool:
        messages = [{"role": "user", "content": content}]
        variables = {**dict(named), "messages": messages, "tools": None, "documents": None}
        try:
            work = lambda: render_template(source, variables | {"add_generation_prompt": False})
            return _PROBE in (_within(LONGEST, work) or "")
        except (*REFUSALS, Excess):
            return False

    return not shows(_PROBE) and shows([{"type": "text", "text": _PROBE}])


class Watched:
    """A thread that renders, so that another one can look at its clock: jinja looks at none, and
    handlers of signals run in the main thread only. To start one a rendering would cost as much as
    the rendering.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], str]] = SimpleQueue()
        self._answers: SimpleQueue[str | BaseException] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="chat template", daemon=True)
        self.thread.start()
        self._clock = time.pthread_getcpuclockid(self.thread.ident or 0)

    def do(self, work: Callable[[], str], seconds: float) -> str | None:
        """What the work returns or raises; None where it was stopped, after so much of a
        processor's time: that a machine is busy is no reason.
        """
        begin = time.clock_gettime(self._clock)
        self._asked.put(work)
        while True:
            try:
                answer = self._answers.get(timeout=GLANCE)
            except Empty:
                if time.clock_gettime(self._clock) - begin > seconds:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self.thread.ident or 0), ctypes.py_object(SystemExit)
                    )
                    return None
                continue
            if isinstance(answer, BaseException):
                raise answer
            return answer

    def _run(self) -> None:
        while True:
            work = self._asked.get()
            try:
                self._answers.put(work())
            except Exception as error:
                self._answers.put(error)
            except SystemExit:  # it was stopped
                return


_watched: list[Watched] = []
_one = threading.Lock()


def _within(seconds: float, work: Callable[[], str]) -> str | None:
    """`Watched.do`, in the thread of before where it lives: not after a stop, nor in a fork."""
    with _one:
        if not _watched or not _watched[0].thread.is_alive():
            _watched[:] = [Watched()]
        text = _watched[0].do(work, seconds)
        if text is None:
            _watched.clear()
        return text


def missing_header(tokenizer: Any) -> str | None:
    """What a template that ignores `add_generation_prompt` leaves out before a reply: the header
    that it writes before earlier replies. "" = it leaves out nothing; None = no header can be read.
    """
    user = {"role": "user", "content": "x"}
    try:
        asked = render(tokenizer, [user], speak=False)
        if render(tokenizer, [user], speak=True) != asked:
            return ""
        replied = render(tokenizer, [user, _REPLIED], speak=False)
    except REFUSALS:
        return ""  # the dialect says what such a template refuses
    if not replied.startswith(asked) or _REPLIED["content"] not in replied:
        return None
    header = replied[len(asked) :].partition(_REPLIED["content"])[0]
    return header if header.strip() else ""


def specials(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Ids of the tokens that only a template or a policy may write."""
    return {t.content: i for i, t in tokenizer.added_tokens_decoder.items() if t.special}


def end_of_turn(tokenizer: Any) -> int | None:
    """The token that closes a reply: the first special after its content in the template, else the
    tokenizer's eos.
    """
    try:
        text = render(tokenizer, [{"role": "user", "content": "x"}, _REPLIED], speak=False)
    except REFUSALS:
        return tokenizer.eos_token_id
    tail = text.rpartition(_REPLIED["content"])[2]
    ends = [(tail.find(s), i) for s, i in specials(tokenizer).items() if s in tail]
    return min(ends)[1] if ends else tokenizer.eos_token_id
