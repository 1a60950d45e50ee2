"""The budget of a search: so many generated tokens for each problem, and an engine that keeps to it.

What a problem may still generate is decided in the order of the requests, so it does not depend on
which of them is finished first.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from palaestra.abilities import SeesPictures
from palaestra.chat.dialect import Chat
from palaestra.context import Engine
from palaestra.errors import Fault, UserError
from palaestra.pictures import Picture
from palaestra.types import Completion, Key, Sampling

PREFIX = 3  # parts of a key that name the problem: (seed, "search", number)
SPENT = "budget"  # the cause of the fault that says nothing is left


class TokenBudget:
    """Generated tokens of one problem: `spent`, `held` by requests that run, and `left`.

    Args:
        total: tokens, at least 1.
    """

    def __init__(self, total: int):
        if total < 1:
            raise UserError(f"a search needs a budget of at least 1 token, not {total}")
        self.total = total
        self.spent = self.held = 0
        self._door = asyncio.Lock()  # first come, first served
        self._settled = asyncio.Event()

    @property
    def left(self) -> int:
        """Tokens that nobody spent or holds."""
        return self.total - self.spent - self.held

    async def take(self, wanted: int) -> int:
        """Holds up to `wanted` tokens; fewer only where no running request can give some back.

        Raises:
            Fault: "budget", nothing is left.
        """
        async with self._door:
            while self.left < wanted and self.held:
                self._settled.clear()
                await self._settled.wait()
            if self.left < 1:
                raise Fault(SPENT, f"all {self.total} tokens of the problem are spent")
            allowed = min(wanted, self.left)
            self.held += allowed
            return allowed

    def settle(self, allowed: int, used: int) -> None:
        """A request that held `allowed` tokens is over, and generated `used` of them."""
        self.held -= allowed
        self.spent += used
        self._settled.set()


class MeteredEngine:
    """An engine that generates no more for a problem than its budget allows. A problem is known by
    the beginning of the key. Keys of nobody pass, and are counted in `uncounted`.

    Args:
        engine: what samples.
        keep: whether completions are kept and used again for the same prompt, sampling and key: a
            second strategy pays for them from its budget and waits for nothing.
        budgets: those of another engine, which both then pay from; None = of its own.
    """

    def __init__(
        self, engine: Engine, *, keep: bool = False, budgets: dict[Key, TokenBudget] | None = None
    ):
        self.engine = engine
        self.budgets = {} if budgets is None else budgets
        self.uncounted = 0
        self._kept: dict[object, tuple[int, Completion]] | None = {} if keep else None

    @property
    def version(self) -> int:
        return self.engine.version

    @version.setter
    def version(self, version: int) -> None:
        self.engine.version = version

    @property
    def exact(self) -> bool:
        return self.engine.exact

    @property
    def dialect(self) -> Chat:
        return self.engine.dialect

    @property
    def busy(self) -> bool:
        return self.engine.busy

    @property
    def seconds(self) -> float:
        return self.engine.seconds

    @property
    def sampled_tokens(self) -> int:
        return self.engine.sampled_tokens

    def forget(self) -> None:
        self.engine.forget()

    def close(self) -> None:
        self.engine.close()

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling, key: Key) -> Completion:
        """See `Engine`. Raises Fault "budget" where the problem has no tokens left."""
        return await self.generate_seeing(prompt, (), sampling, key)

    async def generate_seeing(
        self, prompt: tuple[int, ...], pictures: tuple[Picture, ...], sampling: Sampling, key: Key
    ) -> Completion:
        """`generate` where places of pictures are among the ids."""
        budget = self.budgets.get(key[:PREFIX])
        if budget is None:
            completion = await self._ask(prompt, pictures, sampling, key)
            self.uncounted += len(completion.ids)
            return completion
        wanted = max(map(len, sampling.choices), default=sampling.max_tokens)
        allowed, used = await budget.take(wanted), 0
        try:
            if sampling.choices and allowed < wanted:  # a choice cannot be cut
                raise Fault(SPENT, f"a reply may have {wanted} tokens, and {allowed} are left")
            within = replace(sampling, max_tokens=allowed)
            completion = await self._again_or_ask(prompt, pictures, within, key)
            used = len(completion.ids)
        finally:
            budget.settle(allowed, used)
        return completion

    async def _again_or_ask(
        self, prompt: tuple[int, ...], pictures: tuple[Picture, ...], sampling: Sampling, key: Key
    ) -> Completion:
        """What was said before for the same key, cut to what is allowed; else what is said now."""
        if self._kept is None:
            return await self._ask(prompt, pictures, sampling, key)
        name = (key, prompt, tuple(p.digest for p in pictures), replace(sampling, max_tokens=0))
        most, before = self._kept.get(name, (0, None))
        if before is not None and len(before.ids) > sampling.max_tokens and not sampling.choices:
            return self._cut(before, sampling.max_tokens)
        if before is not None and (before.finish != "length" or sampling.max_tokens <= most):
            return before
        completion = await self._ask(prompt, pictures, sampling, key)
        self._kept[name] = (sampling.max_tokens, completion)
        return completion

    def _cut(self, completion: Completion, most: int) -> Completion:
        """Its first `most` tokens, as they would have been sampled with that limit."""
        ids = completion.ids[:most]
        text = self.dialect.decode(ids)
        return replace(
            completion,
            ids=ids,
            logp=completion.logp[:most],
            text=text,
            cut=len(text),
            finish="length",
            moved=tuple((i, v) for i, v in completion.moved if i < most),
        )

    async def _ask(
        self, prompt: tuple[int, ...], pictures: tuple[Picture, ...], sampling: Sampling, key: Key
    ) -> Completion:
        if not pictures:
            return await self.engine.generate(prompt, sampling, key)
        if not isinstance(self.engine, SeesPictures):
            raise UserError(
                f"{type(self.engine).__name__} cannot show pictures to its model; use the engine "
                "'own'"
            )
        return await self.engine.generate_seeing(prompt, pictures, sampling, key)
