"""Messages to token ids, and text to calls. A dialect only ever says which ids to ADD to a row.

Law 1: what a policy sampled is never tokenised again, and the contents of messages never give a
special token. So contents do not pass through the chat template: it is rendered with slots in their
place; its own text is read with special tokens, the contents without. The whitespace around a
content does pass through, so a template may trim it.

A template that rewrites history (`Chat.rewrites`) would show the same conversation differently
later on. The row keeps what was seen: `extend` appends what such a template writes between the last
reply and the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Protocol, TypeAlias

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from palaestra.chat.calls import (
    CALL_ID,
    Calls,
    Declared,
    family_of,
    read_first,
    read_hermes,
    with_rules,
)
from palaestra.chat.reply import open_thought, outside_thoughts
from palaestra.chat.template import REFUSALS, end_of_turn, missing_header, render, specials
from palaestra.errors import UserError
from palaestra.pictures import FIRST_PLACE, PICTURE_MARK, Picture, by_digest, pictures_in
from palaestra.sounds import Sound
from palaestra.types import HALF, Call, Malformed, Message, ToolSchema, value_class

ROLES = ("system", "user", "assistant", "tool")
HABITS = {  # what a template may or may not take: the last of these roles, after the others
    "system": ("system", "user"),
    "late system": ("user", "assistant", "system"),
    "tool": ("user", "assistant", "tool"),
    "repeats": ("user", "user"),
}
REPLIES = {  # what a template may rewrite in earlier replies
    "history": "{}",
    "whitespace": " {}\n",
    "thinking": "<think>\nwell\n</think>\n\n{}",
}
# the end of a header that opens the thinking of a reply
THINKING = re.compile(r"<(seed:)?(think|thinking|thoughts?|reason|reasoning|analysis)>\s*\Z", re.I)
OPENING = -1  # whose content the opening of a reply is: no message's
SLOT, REPLY = re.compile(r"~slot(\d+)~"), "~reply~"
CALL_IDS = re.compile(
    r"[A-Za-z0-9]{9}"
)  # a policy's other ids are not shown again: some refuse them

Talk: TypeAlias = list[dict[str, Any]]
# text, or ids of a picture's places, and the message whose content it is; None = the template's
Parts: TypeAlias = list[tuple[str | tuple[int, ...], int | None]]
Slots: TypeAlias = list[
    tuple[str, int]
]  # texts that stand in a template's slots, and whose they are
Tokens: TypeAlias = list[tuple[int, int | None]]  # id, and the same


@value_class
class Piece:
    """Ids to append that have one author and one use. Those of the template belong to
    "environment".
    """

    ids: tuple[int, ...]
    author: str = "environment"
    trained: bool = False
    hidden: bool = False
    text: str = ""
    pictures: tuple[Picture, ...] = ()  # those that ids are places of


class PictureSpelling(Protocol):
    """How a model's own processor and chat template write pictures and sounds."""

    def mark_of(self, picture: Picture) -> str:
        """What the template writes where a picture or sound stands."""
        ...

    def spell(self, picture: Picture) -> Sequence[str | tuple[int, ...]]:
        """What stands in the place of the mark: text, and between it ids of the picture's places."""
        ...


def no_pictures(picture: Picture) -> int:
    """Raises UserError: nothing here sees."""
    raise UserError(
        "a prompt holds a picture, which this engine cannot show to its model; use the engine 'own'"
    )


class Chat:
    """The dialect of a chat template. `end` closes a turn; `rewrites` says what the template
    changes in old replies, `opening` is what its header already writes of a reply, such as
    "<think>\\n". `notes` are lines about the template that a run should say. `places` says how many
    places a picture takes; with a `sight` the template and the processor of the model write it.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        places: Callable[[Picture], int] = no_pictures,
        sight: PictureSpelling | None = None,
    ):
        self.tokenizer: Any = tokenizer
        self.places, self.sight = places, sight
        self.name = tokenizer.name_or_path or "the tokenizer"
        self.specials = specials(tokenizer)
        self._special_ids = frozenset(self.specials.values())
        self._marks = special_marks(tokenizer)
        self._text = text_tokenizer(tokenizer)
        header = missing_header(tokenizer)
        self._header = header or ""
        self.opening = self._opening()
        self.notes = (*self._notes(header),)
        self.habits = frozenset(h for h, roles in HABITS.items() if self._takes(roles))
        self.rewrites = tuple(what for what, reply in REPLIES.items() if not self._keeps(reply))
        self.family = family_of(tokenizer)
        self._quotes = "tool" in self.habits and self._escapes_results()
        end = end_of_turn(tokenizer)
        if end is None:
            raise UserError(
                f"{self.name} has no eos token, so a turn cannot end: set `eos_token` in "
                "tokenizer_config.json"
            )
        self.end = end
        self._closing = self._opened_thought()
        self._extended = lru_cache(4096)(self._extend)

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Plain text as it is spelled in the middle of a row: special tokens in it are letters like
        any others.
        """
        return tuple(i for i, _ in self._spell([(text, 0)]))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included; places of pictures have none."""
        tokens = [i for i in ids if i < FIRST_PLACE]
        return self._text.decode(tokens, skip_special_tokens=False)

    def extend(
        self,
        say: tuple[Message, ...],
        *,
        first: bool,
        closed: bool,
        tools: tuple[ToolSchema, ...] = (),
    ) -> tuple[Piece, ...]:
        """What to append so that the policy can speak.

        In a `first` turn that is everything: start token, default system prompt, messages, the
        header of the reply. Later it is the end of the policy's turn (only what it did not sample:
        `closed` says that its turn ends with an end token), the messages, the header. An open turn
        to which nothing is said goes on: nothing is appended.

        Without its hidden pieces, a row is what it would be had their messages not been said; where
        the template does not allow that, only their contents are hidden. Of a trained message (a
        demonstration) the content and its end token are trained.

        `tools` are shown as the template shows them, else in the system message of a first turn.
        """
        if tools and self.family is None:
            say, tools = with_rules(say, tools) if first else say, ()
        return self._extended(say, first, closed, tools)

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        """The first `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` of a turn; None = it
        calls nothing.
        """
        return read_first(self._spoken(text), finish)

    def read_calls(self, text: str, finish: str, tools: tuple[ToolSchema, ...]) -> Calls:
        """All calls of a turn in which `tools` could be called, as the model's family writes
        them.
        """
        spoken = text if isinstance(self.family, Declared) else self._spoken(text)
        return (self.family or read_hermes)(spoken, finish, tools)

    def _spoken(self, text: str) -> str:
        """A reply without the thought that the template opens."""
        return outside_thoughts(text, closing=self._closing) if self._closing else text

    # ---- appending

    def _extend(
        self,
        say: tuple[Message, ...],
        first: bool,
        closed: bool,
        tools: tuple[ToolSchema, ...],
    ) -> tuple[Piece, ...]:
        self._check_plain(tools)
        line = partial(self._line, first=first, closed=closed, tools=tools)
        tokens = line(say)
        hidden = self._hidden(tokens, say, line)
        uses: list[tuple[str, bool, bool]] = []
        speaker: Message | None = None
        for at, (i, of) in enumerate(tokens):
            if of == OPENING:
                uses.append(("forced", False, at in hidden))
                continue
            message = None if of is None else say[of]
            if message is not None:
                speaker = message
            elif i == self.end and speaker is not None and speaker.role == "assistant":
                message, speaker = speaker, None  # the end of a demonstration is part of it
            author, trained = (
                (message.author, message.trained) if message else ("environment", False)
            )
            uses.append((author, trained and i < FIRST_PLACE, at in hidden))
        known = by_digest(p for m in say for p in m.pictures)
        pieces: list[Piece] = []
        for (author, trained, unseen), run in groupby(
            zip(tokens, uses, strict=True), key=lambda pair: pair[1]
        ):
            ids = tuple(i for (i, _), _ in run)
            pieces.append(
                Piece(
                    ids=ids,
                    author=author,
                    trained=trained,
                    hidden=unseen,
                    text=self.decode(ids),
                    pictures=pictures_in(ids, known) if known else (),
                )
            )
        return tuple(pieces)

    def _check_plain(self, tools: tuple[ToolSchema, ...]) -> None:
        """The template writes of a tool what it likes, so nothing in it may read as the template's
        own.
        """
        for tool in tools:
            schema = json.dumps(tool.json(), ensure_ascii=False)
            if match := self._marks.search(schema) or SLOT.search(schema):
                raise UserError(
                    f"the tool {tool.name!r} is described with {match[0]!r}, which {self.name} "
                    "reads as a mark of its own; leave it out"
                )

    def _hidden(
        self,
        tokens: Tokens,
        say: tuple[Message, ...],
        line: Callable[[tuple[Message, ...]], Tokens],
    ) -> Container[int]:
        """Places of the tokens that the training view leaves out."""
        if not any(m.hidden for m in say):
            return ()
        visible = line(tuple(m for m in say if not m.hidden))
        a, b = [i for i, _ in tokens], [i for i, _ in visible]
        more = len(a) - len(b)
        same = next(
            (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        if more > 0 and a[same + more :] == b[same:]:
            return range(same, same + more)
        own = {i for i, m in enumerate(say) if m.hidden}
        return {at for at, (_, of) in enumerate(tokens) if of in own}

    def _line(
        self,
        say: tuple[Message, ...],
        first: bool,
        closed: bool,
        tools: tuple[ToolSchema, ...] = (),
    ) -> Tokens:
        """The tokens to append, each with the message whose content it spells."""
        if not (first or closed or say):
            return []
        slots: Slots = []
        text = self._rendered(self._talk(say, first, slots), tools)
        pieces = SLOT.split(text)  # template, number, template, ..., number, template
        numbers = [int(n) for n in pieces[1::2]]
        for i, (core, owner) in enumerate(slots):
            if core and numbers.count(i) != 1:
                raise UserError(
                    f"the chat template of {self.name} leaves out a message of the role "
                    f"{say[owner].role!r}"
                )
        _, end, after = pieces[0].partition(self.tokenizer.convert_ids_to_tokens(self.end))
        written = [after if closed and end and not first else pieces[0], *pieces[2::2]]
        pictures = [p for m in say for p in m.pictures] if self.sight else []
        parts = self._template_parts(written[0], pictures)
        for n, template in zip(numbers, written[1:], strict=True):
            parts += self._content_parts(say[slots[n][1]], *slots[n])
            parts += self._template_parts(template, pictures)
        if pictures:
            raise UserError(
                f"the chat template of {self.name} leaves out a "
                f"{'sound' if isinstance(pictures[0], Sound) else 'picture'} of its messages"
            )
        header = str(parts[-1][0])
        if self.opening and header.endswith(self.opening):
            parts[-1:] = [(header.removesuffix(self.opening), None), (self.opening, OPENING)]
        return self._spell(parts)

    def _template_parts(self, text: str, pictures: list[Picture]) -> Parts:
        """What the template writes, with the next of the pictures, which are taken out of the list, in
        the place of each mark of one.
        """
        if self.sight is None or not pictures:
            return [(text, None)]
        parts: Parts = []
        while pictures:
            before, mark, after = text.partition(self.sight.mark_of(pictures[0]))
            if not mark:
                break
            parts.append((before, None))
            parts += [(x, None) for x in self.sight.spell(pictures.pop(0))]
            text = after
        return [*parts, (text, None)]

    def _content_parts(self, message: Message, text: str, owner: int) -> Parts:
        """A text of the content, where it has pictures that no template writes in pieces with these
        between them.
        """
        if not message.pictures or self.sight:
            return [(text, owner)]
        first, *rest = text.split(PICTURE_MARK)
        placed = zip(message.pictures, rest, strict=True)
        ids = ((p.ids(self.places(p)), after) for p, after in placed)
        return [(first, owner), *((x, owner) for pair in ids for x in pair)]

    def _content(self, message: Message) -> str:
        core = message.content.strip()
        quoted = self._quotes and message.role == "tool"
        return json.dumps(core, ensure_ascii=False)[1:-1] if quoted else core

    def _talk(self, say: tuple[Message, ...], first: bool, slots: Slots) -> Talk:
        """The messages with slots for contents, in roles that the template takes."""
        talk: Talk = []
        for i, m in enumerate(say):
            content = self._slotted(m, i, slots)
            role, content = self._role(m.role, content, late=bool(talk) or not first)
            if role == "tool":
                talk.append(_result(content, m.name, m.call_id))
            elif talk and talk[-1]["role"] == role and "repeats" not in self.habits:
                talk[-1]["content"] = _joined(talk[-1]["content"], "\n\n", content)
            else:
                talk.append({"role": role, "content": content})
        return talk if first else [*_talk_of("user", "assistant"), *talk]

    def _slotted(self, message: Message, owner: int, slots: Slots) -> Any:
        """The content with a slot, which joins `slots`, in the place of its text; with pictures that
        the template writes, parts as transformers' templates take them.
        """

        def slot(text: str) -> str:
            core = text.strip()
            slots.append((core, owner))
            return text.replace(core, f"~slot{len(slots) - 1}~", 1) if core else text

        if not (message.pictures and self.sight):
            slotted = slot(message.content)
            slots[-1] = (self._content(message), owner)
            return slotted
        first, *rest = message.content.split(PICTURE_MARK)
        text = lambda x: [{"type": "text", "text": slot(x)}] if x.strip() else []
        each = zip(message.pictures, rest, strict=True)
        return text(first) + [part for p, x in each for part in (_medium(p), *text(x))]

    def _role(self, role: str, content: Any, late: bool) -> tuple[str, Any]:
        """A role the template does not know speaks as the user."""
        if role not in ROLES:
            raise UserError(f"a message has the role {role!r}; roles are {', '.join(ROLES)}")
        if role == "tool" and "tool" not in self.habits:
            return "user", _joined("tool", ": ", content)
        if role == "system" and ("late system" if late else "system") not in self.habits:
            return "user", content
        return role, content

    def _rendered(self, talk: Talk, tools: tuple[ToolSchema, ...]) -> str:
        """The template's text: all of it, or what follows the reply that stands for the
        policy's.
        """
        try:
            if not talk:  # a row that starts with the header of the reply
                asked = _talk_of("user")
                header = self._speaking(asked)[len(render(self.tokenizer, asked, speak=False)) :]
                return (self.tokenizer.bos_token or "") + header or self.tokenizer.eos_token
            text = self._speaking(talk, tools)
        except REFUSALS as error:
            roles = ", ".join(m["role"] for m in talk)
            raise UserError(
                f"the chat template of {self.name} refuses messages of the roles {roles}: {error}"
            ) from None
        return text.rpartition(REPLY)[2]

    def _speaking(self, talk: Talk, tools: tuple[ToolSchema, ...] = ()) -> str:
        """The conversation up to where the next reply begins, also for a template that has no
        generation prompt.
        """
        return render(self.tokenizer, talk, speak=True, tools=tools) + self._header

    def _spell(self, parts: Parts) -> Tokens:
        """Tokens of a line. What lies between two special tokens of the template is read in one
        run, as in training.
        """
        tokens: Tokens = []
        run, owners = "", []
        for text, owner in parts:
            if isinstance(text, tuple):
                tokens += self._read(run, owners)
                tokens += [(i, owner) for i in text]
                run, owners = "", []
                continue
            at = 0
            for mark in self._marks.finditer(text) if owner in (None, OPENING) else ():
                tokens += self._read(
                    run + text[at : mark.start()], [*owners, *[owner] * (mark.start() - at)]
                )
                tokens.append((self.specials[mark[0].strip()], owner))
                run, owners, at = "", [], mark.end()
            run, owners = run + text[at:], [*owners, *[owner] * (len(text) - at)]
        return [*tokens, *self._read(run, owners)]

    def _read(self, run: str, owners: list[int | None]) -> Iterator[tuple[int, int | None]]:
        """Tokens of text without specials; each belongs to whom its first character does.

        A vocabulary may spell a special token's name as that token, or have only such a token for a
        character that it lacks: these ids are left out.
        """
        if run:
            # what a server says of its tools may hold half a character, as messages may not
            read = self._text.encode(HALF.sub("\ufffd", run), add_special_tokens=False)
            for i, (start, _) in zip(read.ids, read.offsets, strict=True):
                if i not in self._special_ids:
                    yield i, owners[min(start, len(owners) - 1)]

    # ---- probing

    def _takes(self, roles: Sequence[str]) -> bool:
        """Whether the template writes messages of these roles, each once and in order."""
        talk = _talk_of(*roles)
        try:
            text = self._speaking(talk)
        except REFUSALS:
            return False
        at = [text.find(m["content"]) for m in talk]
        return (
            -1 not in at and at == sorted(at) and all(text.count(m["content"]) == 1 for m in talk)
        )

    def _opened_thought(self) -> str:
        """The mark that closes the thought which the template opens before a reply; "" = none."""
        try:
            return open_thought(render(self.tokenizer, _talk_of("user"), speak=True))
        except REFUSALS:
            return ""

    def _escapes_results(self) -> bool:
        """Whether the template writes a tool's result as a JSON string."""
        talk = [*_talk_of("user", "assistant"), _result('~"~')]
        return '~\\"~' in self._speaking(talk)

    def _opening(self) -> str:
        """What the header of the next reply has beyond the headers of earlier replies: a part of
        the reply that the template writes, as R1's "<think>\\n".
        """
        asked, replied = _talk_of("user"), _talk_of("user", "assistant")
        try:
            bare = render(self.tokenizer, asked, speak=False)
            header = self._speaking(asked).removeprefix(bare)
            earlier = render(self.tokenizer, replied, speak=False).removeprefix(bare)
        except REFUSALS:
            return ""
        if opened := THINKING.search(header):
            return opened[0]
        before = earlier.partition(REPLY)[0]
        more = header.removeprefix(before) if header.startswith(before) else ""
        return more if more.strip() and not self._marks.search(more) else ""

    def _notes(self, header: str | None) -> Iterator[str]:
        """Lines about the template; `header` as `missing_header` gives it."""
        if not self.tokenizer.chat_template:
            yield (
                f"{self.name} has no chat template: each message is a plain line, and "
                f"{self.tokenizer.eos_token or 'nothing'} ends a reply; for a chat model, set "
                "`chat_template` in its tokenizer_config.json"
            )
        if header is None:
            yield (
                f"the chat template of {self.name} has no generation prompt, and none can be read "
                "from earlier replies: replies begin without a header; mend its "
                "`add_generation_prompt`"
            )
        if header:
            yield (
                f"the chat template of {self.name} has no generation prompt, so a reply begins with "
                f"{header!r}, as its earlier replies do"
            )
        if self.opening:
            yield (
                f"the chat template of {self.name} begins every reply with {self.opening!r}; rewards "
                "read the reply with it, and a demonstration that begins with it does not repeat it"
            )

    def _keeps(self, reply: str) -> bool:
        """Whether a conversation that goes on still starts as it did when the reply was sampled."""
        talk = _talk_of("user", "assistant", "user")
        talk[1]["content"] = self.opening + reply.format(REPLY)
        try:
            seen = self._speaking(talk[:1]) + reply.format(REPLY)
            return self._speaking(talk).startswith(seen)
        except REFUSALS:
            return False


def _medium(picture: Picture) -> dict[str, str]:
    """A part of a message for a picture or sound, as templates look for it: by its type, or by a key of
    that name.
    """
    kind = "audio" if isinstance(picture, Sound) else "image"
    return {"type": kind, kind: kind}


def _joined(before: Any, between: str, after: Any) -> Any:
    """Two contents as one, a list of parts where one of them is."""
    if isinstance(before, str) and isinstance(after, str):
        return before + between + after
    parts = [x if isinstance(x, list) else [{"type": "text", "text": x}] for x in (before, after)]
    return [*parts[0], {"type": "text", "text": between}, *parts[1]]


def text_tokenizer(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A copy of the tokenizer that reads the middle of a row: it knows no specials, adds nothing,
    cuts nothing.

    SentencePiece vocabularies put a space before the first word of a text; after a special token no
    word is the first.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise UserError(
            f"{tokenizer.name_or_path or 'the tokenizer'} has no tokenizer.json; save it as a fast "
            "tokenizer"
        )
    settings = json.loads(backend.to_str()) | {
        "truncation": None,
        "padding": None,
        "post_processor": None,
    }
    for part in _parts(settings["pre_tokenizer"]):
        if part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
    copy = Tokenizer.from_str(json.dumps(settings))
    copy.encode_special_tokens = True
    return copy


def _parts(pre_tokenizer: Mapping[str, Any] | None) -> Iterator[Any]:
    if pre_tokenizer is not None:
        yield pre_tokenizer
        for part in pre_tokenizer.get("pretokenizers", ()):
            yield from _parts(part)


def special_marks(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """Special tokens as they stand in a template's text; some swallow the whitespace
    beside them.
    """
    tokens = sorted(
        (t for t in tokenizer.added_tokens_decoder.values() if t.special),
        key=lambda t: -len(t.content),
    )
    marks = ((r"\s*" * t.lstrip) + re.escape(t.content) + (r"\s*" * t.rstrip) for t in tokens)
    return re.compile("|".join(marks) or "(?!)")


def _talk_of(*roles: str) -> Talk:
    """A conversation of which nothing matters but the roles."""
    return [
        _result(f"~{i}~")
        if r == "tool"
        else {"role": r, "content": REPLY if r == "assistant" else f"~{i}~"}
        for i, r in enumerate(roles)
    ]


def _result(content: str, name: str = "", call_id: str = "") -> dict[str, str]:
    """A tool's result, with what some templates want beside its content."""
    call_id = call_id if CALL_IDS.fullmatch(call_id) else CALL_ID
    return {"role": "tool", "content": content, "name": name, "tool_call_id": call_id}
