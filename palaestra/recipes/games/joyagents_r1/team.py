"""The team as an environment: a master names the specialist who works on the question, reads what it
answered, and writes the team's answer. Each seat is an agent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

MASTER, DONE, EVERY = "policy", "answer", "*"
NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
TAKEN = (MASTER, DONE, "ref", "master")
TEAM = "caller: *; solver:"
FORM = 'team="shop: search, price; maths: python; solver:"'
WHICH = "Which of them should work on this? Write its name alone."
AGAIN = f"Who should work on it now? Write a name alone, or {DONE} if the answer is known."
FINAL = "Write the final answer to the question."
NOTES = "What worked on earlier questions:"


def read_team(team: str) -> dict[str, tuple[str, ...]]:
    """The tools of each specialist. Raises UserError for what is no team."""
    specialists = dict[str, tuple[str, ...]]()
    for part in filter(str.strip, team.split(";")):
        name, colon, tools = (x.strip() for x in part.partition(":"))
        if not colon or not NAME.fullmatch(name) or name in TAKEN or name in specialists:
            raise pl.UserError(
                f"joyagents-r1: {part.strip()!r} in team is no specialist; write {FORM}, each name once, in "
                f"small letters, none of {', '.join(TAKEN)}"
            )
        specialists[name] = tuple(t.strip() for t in tools.split(",") if t.strip())
    if len(specialists) < 2:
        raise pl.UserError(
            f"joyagents-r1: a master chooses among two specialists or more; write {FORM}"
        )
    return specialists


@pl.value_class
class TeamState:
    """`agent` is the specialist at work, "" = the master's turn; `final`: it writes the answer."""

    task: pl.Task
    agent: str = ""
    inner: Any = None
    answers: tuple[tuple[str, str], ...] = ()
    final: bool = False


@pl.declare(
    facts=("answered", ("consulted", tuple, "the specialists who worked, in order")),
    reads_columns=("team_notes",),
)
@pl.stage
class Team:
    """Pays nothing; a verifier scores the answer later.

    Args:
        specialists: their tools, by name; "*" = all.
        rounds: specialists that work on a question, at most.
        final: who gives the answer, the master, or the one specialist who worked.
        tools: the run's environment of tools; None = there are none.
    """

    specialists: Mapping[str, tuple[str, ...]]
    rounds: int = 2
    final: Literal["master", "specialist"] = "master"
    tools: pl.worlds.WithTools | None = None

    @property
    def seats(self) -> tuple[str, ...]:
        return (MASTER, *self.specialists)

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        if not task.prompt:
            raise pl.UserError("joyagents-r1 needs questions; give --data with prompts")
        offered = await self._offered()
        listed = (f"- {n}: {', '.join(offered[n]) or 'no tools'}" for n in self.specialists)
        text = "\n".join(("Agents:", *listed, WHICH))
        prompt = add_text(task.prompt, notes_text(task, MASTER), text)
        return self._route(TeamState(task=task), prompt)

    async def step(self, state: TeamState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        (act,) = acts
        if state.agent:
            return await self._work(state, act, key)
        if state.final:
            return pl.Frame(state=state, facts={"answered": act.finish != "length"})
        name = act.text.strip()
        if name == DONE:
            return self._conclude(state, "")
        return await self._consult(state, name, key)

    async def check(self) -> None:
        """Raises UserError for tools of a specialist that are not there."""
        names = {t.name for t in await self.tools.open()} if self.tools else set[str]()
        wanted = {t for tools in self.specialists.values() for t in tools}
        if missing := sorted(wanted - names - ({EVERY} if names else set())):
            there = ", ".join(sorted(names)) or "none; give --tools"
            raise pl.UserError(
                f"joyagents-r1: no tool {', '.join(missing)} for the team; the tools are {there}"
            )

    async def _offered(self) -> dict[str, tuple[str, ...]]:
        """The names of the tools that each specialist has."""
        names = tuple(t.name for t in await self.tools.open()) if self.tools else ()
        return {
            agent: tuple(n for n in names if n in own or EVERY in own)
            for agent, own in self.specialists.items()
        }

    async def _consult(self, state: TeamState, name: str, key: pl.Key) -> pl.Frame:
        task, before = state.task, [f"{a} answered:\n{x}" for a, x in state.answers if x]
        prompt = add_text(task.prompt, notes_text(task, name), *before)
        consulted = replace(task, prompt=prompt)
        if (await self._offered())[name] and self.tools is not None:
            frame = await self.tools.reset(consulted, key)
        else:
            frame = pl.worlds.Question().reset(consulted, key)
        return await self._turn(replace(state, agent=name), frame)

    async def _turn(self, state: TeamState, frame: pl.Frame) -> pl.Frame:
        """A frame of the specialist's own conversation, with its seat and tools."""
        (ask,), own = frame.asks, (await self._offered())[state.agent]
        asked = replace(
            ask,
            seat=state.agent,
            thread=str(len(state.answers)),
            tools=tuple(t for t in ask.tools if t.name in own),
        )
        return replace(frame, state=replace(state, inner=frame.state), asks=(asked,))

    async def _work(self, state: TeamState, act: pl.Act, key: pl.Key) -> pl.Frame:
        own = (await self._offered())[state.agent]
        if own and self.tools is not None:
            calls = tuple(own_call(c, own) for c in act.calls)
            acted = replace(act, calls=calls, call=calls[0] if calls else None)
            frame = await self.tools.step(state.inner, (acted,), key)
            if frame.asks:
                return await self._turn(state, frame)
        else:
            status = "truncated:length" if act.finish == "length" else "finished"
            frame = pl.Frame(state=None, facts={"answered": True}, status=status)
        done = (*(name for name, _ in state.answers), state.agent)
        facts = {**frame.facts, "consulted": done}
        if self.final == "specialist":
            return pl.Frame(state=state, facts=facts, status=frame.status)
        answered = frame.status == "finished" and frame.facts.get("answered", True)
        text = pl.verifiers.strip_thinking(act.text).strip() if answered else ""
        answers = (*state.answers, (state.agent, pl.judges.defuse(text)))
        heard = f"{state.agent} answered:\n{answers[-1][1] or 'nothing'}"
        after = replace(state, agent="", inner=None, answers=answers)
        if len(answers) < self.rounds:
            again = (pl.Message(role="user", content=f"{heard}\n\n{AGAIN}"),)
            return replace(self._route(after, again, (DONE,)), facts=facts)
        return replace(self._conclude(after, heard), facts=facts)

    def _route(
        self, state: TeamState, say: tuple[pl.Message, ...], more: tuple[str, ...] = ()
    ) -> pl.Frame:
        choices = (*more, *self.specialists)
        return pl.Frame(state=state, asks=(pl.Ask(seat=MASTER, say=say, choices=choices),))

    def _conclude(self, state: TeamState, heard: str) -> pl.Frame:
        text = "\n\n".join(filter(None, (heard, FINAL)))
        ask = pl.Ask(seat=MASTER, say=(pl.Message(role="user", content=text),))
        return pl.Frame(state=replace(state, final=True), asks=(ask,))


def add_text(prompt: Sequence[pl.Message], *texts: str) -> tuple[pl.Message, ...]:
    """A prompt with texts behind its last message."""
    *before, last = prompt
    content = "\n\n".join(filter(None, (last.content, *texts)))
    return (*before, replace(last, content=content))


def notes_text(task: pl.Task, agent: str) -> str:
    """What an agent is shown of its memory; "" without any."""
    notes: Sequence[str] = task.meta.get("team_notes", {}).get(agent, ())
    return "\n\n".join((NOTES, *notes)) if notes else ""


def own_call(call: pl.Call | pl.Malformed, own: Sequence[str]) -> pl.Call | pl.Malformed:
    """A call; one of a tool that is another agent's as one that cannot be made."""
    if isinstance(call, pl.Call) and call.name not in own:
        return pl.Malformed(kind="it is none of your tools", text=call.name)
    return call
