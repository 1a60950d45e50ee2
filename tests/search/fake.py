"""An engine that says what a test wrote down, token by token, with the vocabulary of the built-in model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from palaestra.engines.own import OwnEngine
from palaestra.search.problem import SearchProblem
from palaestra.search.tokens import MeteredEngine, TokenBudget
from palaestra.types import Completion, Message, Task
from palaestra.worlds.question import Question

KEY = (0, "search", 0)
ASKED = Task(id="t", prompt=(Message(role="user", content="1+1"),), answer="2")


@dataclass
class FakeEngine:
    """`says(begun, key)` is the whole text that follows what was said so far; `calls` keeps the keys.

    A text that a limit or a stop string ends is cut there; log-probs are `logp(text, begun)`, the same for each token.
    """

    dialect: object
    says: object
    logp: object = lambda text, begun: -1.0
    version: int = 0
    exact: bool = True
    busy: bool = False
    seconds: float = 0.0
    sampled_tokens: int = 0
    calls: list = field(default_factory=list)
    begun: list = field(default_factory=list)
    start: str = ""  # the prompt as text

    async def generate(self, prompt, sampling, key):
        await asyncio.sleep(0)
        whole = self.dialect.decode(prompt)
        self.calls.append(key)
        begun = whole.removeprefix(self.start)
        self.begun.append(begun)
        text = self.says(begun, key)
        ends = [text.index(s) + len(s) for s in sampling.stop if s in text]
        stopped = bool(ends)
        text = text[: min(ends)] if ends else text
        ids = (*self.dialect.encode_text(text), *(() if stopped else (self.dialect.end,)))
        finish = "stop" if stopped else "eos"
        if len(ids) > sampling.max_tokens:
            ids, finish = ids[: sampling.max_tokens], "length"
        self.sampled_tokens += len(ids)
        said = self.dialect.decode(ids[:-1] if finish == "eos" else ids)
        logp = (self.logp(said, begun),) * len(ids)
        return Completion(ids=ids, logp=logp, text=said, cut=len(said), finish=finish, version=0)

    def forget(self):
        pass

    def close(self):
        pass


def problem_of(ctx, says, budget, *, reward=None, scorer=None, logp=None, task=ASKED, max_tokens=20):
    """A problem whose answers a test wrote down, with its budget, and the engine."""
    own = ctx.engine("policy")
    dialect = own.dialect if isinstance(own, OwnEngine) else own.engine.dialect
    bench = replace(ctx.bench, world=Question(), reward=reward, max_tokens=max_tokens)
    ctx = ctx.with_bench(bench)
    heard = dialect.extend(task.prompt, first=True, closed=False, tools=())
    start = dialect.decode([i for p in heard for i in p.ids])
    engine = FakeEngine(dialect, says, start=start, **({"logp": logp} if logp else {}))
    metered = ctx.engines["policy"] = MeteredEngine(engine)
    tokens = metered.budgets[KEY] = TokenBudget(budget)
    return SearchProblem(ctx, KEY, task, tokens, scorer), engine
