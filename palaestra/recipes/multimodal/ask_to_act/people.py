"""The user who is asked, and who judges the questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import palaestra as pl

USER_RULES = """You want an assistant to do this: {task}
You mean this object: {wanted}.
There are also: {others}.

The assistant asks you a question. Answer in one short sentence, truthfully, and answer only what is asked. Never say \
the name of the object, which is only for the records."""
JUDGE_RULES = """An assistant was told: {task}
The user means this object: {wanted}.
There are also: {others}.
Asked and answered so far:
{talk}

Now the assistant asks: {question}
Does this question, whatever the answer, help to find out which object is meant, given what was answered before? A \
question whose answer is already known does not. Reply YES or NO."""
JUDGE_OF_OTHERS = """An assistant talks with a user while it does something for them. The user was told:
{known}

Asked and answered so far:
{talk}

Now the assistant asks: {question}
Does this question, whatever the answer, help to find out what the user means, given what was answered before? A \
question whose answer is already known, or has no bearing on it, does not. Reply YES or NO."""


def told_of(task: pl.Task) -> dict[str, str]:
    """What a model that knows the record is told of it."""
    record = pl.worlds.read_record(task)
    describe = lambda x: ", ".join([x.name, *(f"{k} {v}" for k, v in x.values), f"at {x.place}"])
    return {
        "task": pl.worlds.room_instruction(task),
        "wanted": describe(record.item(record.target)),
        "others": "; ".join(describe(x) for x in record.items if x.name != record.target),
    }


@dataclass(frozen=True)
class ModelKnower:
    """A user whom a language model plays, and who knows what is meant."""

    ctx: pl.Context
    source: pl.Source

    async def __call__(
        self, task: pl.Task, talk: Sequence[tuple[str, str]], question: str, key: pl.Key
    ) -> str:
        rules = pl.Message(role="system", content=USER_RULES.format(**told_of(task)))
        messages = [rules]
        for asked, answer in (*talk, (question, "")):
            messages.append(pl.Message(role="user", content=asked.removeprefix("ask ")))
            if answer:
                messages.append(pl.Message(role="assistant", content=answer))
        request = pl.ChatRequest(messages=tuple(messages), temperature=0.0, max_tokens=64)
        raw_reply = await self.ctx.ask(self.source, request, seed=pl.seed_of(key) % (1 << 31))
        reply = " ".join(pl.verifiers.strip_thinking(raw_reply).split())
        if not reply:
            raise pl.Fault("user", "the model that plays the user said nothing")
        return reply


@dataclass(frozen=True)
class ModelQuestionJudge:
    """Says whether a question is useful. Raises Fault for a reply that is neither yes nor no."""

    ctx: pl.Context
    source: pl.Source

    async def __call__(
        self,
        task: pl.Task,
        talk: Sequence[tuple[str, str]],
        question: str,
        answer: str,
        key: pl.Key,
    ) -> bool:
        return await self._says_yes(JUDGE_RULES, told_of(task), talk, question, key)

    async def in_environment(
        self,
        known: str,
        talk: Sequence[tuple[str, str]],
        question: str,
        answer: str,
        key: pl.Key,
    ) -> bool:
        """The same where an environment told the user what is `known`."""
        return await self._says_yes(JUDGE_OF_OTHERS, {"known": known}, talk, question, key)

    async def _says_yes(
        self,
        rules: str,
        facts: Mapping[str, str],
        talk: Sequence[tuple[str, str]],
        question: str,
        key: pl.Key,
    ) -> bool:
        before = "\n".join(f"{pl.judges.defuse(q)} -> {a}" for q, a in talk) or "nothing"
        words = {"talk": before, "question": pl.judges.defuse(question.removeprefix("ask "))}
        messages = pl.services.question_messages(rules.format(**facts, **words))
        request = pl.ChatRequest(messages=messages, temperature=0.0, max_tokens=512)
        raw_reply = await self.ctx.ask(self.source, request, seed=pl.seed_of(key) % (1 << 31))
        word = pl.verifiers.strip_thinking(raw_reply).strip().strip(".*").upper()
        if word not in ("YES", "NO"):
            raise pl.Fault("judge", f"the judge said neither YES nor NO, but {word[:40]!r}")
        return word == "YES"


@dataclass(frozen=True)
class SeatedUser:
    """A language model on the seat `user` of an environment."""

    ctx: pl.Context
    source: pl.Source

    async def __call__(self, heard: Sequence[pl.Message], key: pl.Key) -> str:
        request = pl.ChatRequest(messages=tuple(heard), temperature=0.0, max_tokens=128)
        raw_reply = await self.ctx.ask(self.source, request, seed=pl.seed_of(key) % (1 << 31))
        reply = " ".join(pl.verifiers.strip_thinking(raw_reply).split())
        if not reply:
            raise pl.Fault("user", "the model that plays the user said nothing")
        return reply
