"""An episode that an agent plays: its requests become turns, the turns' replies its answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.errors import Fault
from palaestra.types import Act, Ask, Frame, Task
from palaestra.worlds.gateway.history import Histories
from palaestra.worlds.gateway.server import MODEL, GatewaySession, Waiting
from palaestra.worlds.gateway.wire import CompletionAnswer, reply_message

SEAT = "policy"


def task_json(task: Task, seed: int) -> dict[str, Any]:
    """A task as an agent gets it: its messages, the text of the last one, answer and columns."""
    messages = [{"role": m.role, "content": m.content} for m in task.prompt]
    whole = {
        "id": task.id,
        "prompt": messages[-1]["content"] if messages else "",
        "messages": messages,
        "answer": task.answer,
        "meta": dict(task.meta),
        "seed": seed,
    }
    return json.loads(json.dumps(whole, default=str))


@dataclass(eq=False)
class AgentEpisode:
    """The side of a world: requests come from `session`, and turns go to the players.

    Args:
        most_tokens: of a turn, whatever a request asks; 0 = what it asks.
        seconds: that the agent may take between an answer and its next request.
        obeys: whether the temperature of a request holds, not that of the players.
    """

    session: GatewaySession
    seconds: float
    most_tokens: int = 0
    obeys: bool = False
    histories: Histories = field(default_factory=Histories)
    batch: list[tuple[Waiting, int]] = field(default_factory=list)  # in hand, with their `n`
    turns: int = 0
    steps: int = 0
    thread: str = ""  # the newest

    async def next_asks(self, over: Awaitable[Any] | None = None) -> tuple[Ask, ...]:
        """All that is asked next, at once; () = the agent is over.

        Args:
            over: done when the agent ends by itself; the reward that it reports ends it too.

        Raises:
            Fault: it asked nothing for so long.
        """
        get = asyncio.ensure_future(self.session.inbox.get())
        ended = asyncio.ensure_future(self.session.ended.wait())
        ends = [ended, *([asyncio.ensure_future(asyncio.shield(over))] if over else [])]
        try:
            done, _ = await asyncio.wait(
                {get, *ends}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in ends:
                each.cancel()
            if not get.done():
                get.cancel()
        if not done:
            raise Fault(
                "agent-timeout", f"the agent asked nothing and did not end for {self.seconds:g} s"
            )
        if get not in done:
            return ()
        waiting = [get.result()]
        while not self.session.inbox.empty():
            waiting.append(self.session.inbox.get_nowait())
        self.batch = [(w, w.request.n) for w in waiting]
        asks = tuple(
            self.histories.ask(w.request, SEAT, self.most_tokens, self.obeys)
            for w, n in self.batch
            for _ in range(n)
        )
        self.thread = asks[-1].thread
        return asks

    def answer(self, acts: tuple[Act, ...]) -> None:
        """Hands the turns' replies to whom they belong."""
        first = 0
        for waiting, n in self.batch:
            mine = acts[first : first + n]
            messages = tuple(reply_message(a, self.turns + i) for i, a in enumerate(mine))
            for act, message in zip(mine, messages, strict=True):
                self.histories.answer(act.ask.thread, message)
            name = f"chatcmpl-{self.session.id[:12]}-{self.turns}"
            request = waiting.request
            self.session.open_calls.discard(waiting)
            answer = CompletionAnswer(
                id=name,
                model=request.model or MODEL,
                acts=mine,
                messages=messages,
                logprobs=request.logprobs,
            )
            if not waiting.answer.done():
                waiting.answer.set_result(answer)
            asked, own = request.temperature, mine[0].temperature
            if asked not in (None, own) and not self.obeys:
                line = f"requests ask for temperature {asked:g}; the run samples at {own:g}"
                self.session.note((line,))
            first, self.turns = first + n, self.turns + n
        self.batch = []

    def frame(self, asks: tuple[Ask, ...]) -> Frame:
        self.steps += 1
        return Frame(state=(self.session.id, self.steps), asks=asks)

    def facts(self) -> Mapping[str, Any]:
        """What is known of the agent at its end."""
        agents = {c.agent for c in self.histories.known}
        answer = self.session.outcome.get("answer")
        answer_facts = {} if answer is None else {"agent_answer": str(answer)}
        return {"agent_calls": self.turns, "agent_names": tuple(sorted(agents)), **answer_facts}
