"""Which row of an episode a request goes on with.

A request brings its whole conversation. Where this begins as one that is known, up to a reply, the
row has the tokens of that beginning as they were sampled:

    it goes on behind the newest reply             the same row, which grows
    it goes on behind an earlier one, or another   a new row, which begins with a copy of these
    request of the same beginning is under way     tokens as context
    no reply is the same                           a new row

Nothing that was sampled is tokenised again; a reply that the agent has changed is text of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from palaestra.types import Ask, ToolSchema
from palaestra.worlds.gateway.wire import CompletionRequest, read_message


@dataclass
class AgentTalk:
    """A row as an agent knows it: the marks of its messages, and where replies end among them."""

    thread: str
    agent: str
    tools: tuple[ToolSchema, ...]
    marks: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    waits: bool = False  # for a reply

    def shared(self, marks: list[str]) -> int:
        """How many of its replies a conversation has too, with all that is before them."""
        n = 0
        for end in self.ends:
            if end > len(marks) or self.marks[:end] != marks[:end]:
                break
            n += 1
        return n


@dataclass
class Histories:
    """The conversations of an episode."""

    known: list[AgentTalk] = field(default_factory=list)

    def ask(
        self, request: CompletionRequest, seat: str, most_tokens: int = 0, obeys: bool = False
    ) -> Ask:
        """A request as the turn of a row.

        Args:
            most_tokens: of the turn; 0 = as many as it asks for.
            obeys: whether its temperature holds.
        """
        marks = [line.mark for line in request.lines]
        mine = [c for c in self.known if (c.agent, c.tools) == (request.agent, request.tools)]
        parent = max(mine, key=lambda c: c.ends[c.shared(marks) - 1] if c.shared(marks) else 0,
                     default=None)  # fmt: skip
        n = parent.shared(marks) if parent else 0
        known = parent.ends[n - 1] if parent and n else 0
        begins: tuple[str, int] | None = None
        if parent and n and known == len(parent.marks) and not parent.waits:
            talk = parent
        else:
            thread = f"{request.agent}/{len(self.known)}" if request.agent else str(len(self.known))
            talk = AgentTalk(thread=thread, agent=request.agent, tools=request.tools)
            self.known.append(talk)
            if parent and n:
                begins = (parent.thread, n)
                talk.marks, talk.ends = parent.marks[:known], parent.ends[:n]
        talk.marks, talk.waits = marks, True
        limits = [x for x in (request.max_tokens, most_tokens) if x]
        return Ask(
            seat=seat,
            thread=talk.thread,
            say=tuple(line.message for line in request.lines[known:]),
            stop=request.stop,
            max_tokens=min(limits, default=None),
            tools=request.tools,
            begins=begins,
            temperature=request.temperature if obeys else None,
        )

    def answer(self, thread: str, message: dict[str, object]) -> None:
        """Notes the reply to a turn, as the agent gets it."""
        talk = next(c for c in self.known if c.thread == thread)
        talk.marks = [*talk.marks, read_message(message, "the reply").mark]
        talk.ends = [*talk.ends, len(talk.marks)]
        talk.waits = False
