"""The in-process engine: samples from the policy's own weights, so there is nothing to synchronise.

Requests arrive as coroutines; one pump serves them all. Each round it admits waiting requests (a prompt that several share is
read once), decodes one token for every running sequence, and lets finished ones return at once: continuous batching in a
single thread. Which requests share a forward depends on the order of requests alone, so a run batches the same way each time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from palaestra.models.load import Model
from palaestra.rollout.decoder import Decoder
from palaestra.rollout.dialect import Chat
from palaestra.rollout.sampling import draw
from palaestra.types import Fault, Key, Sample, Sampling, rng_of


@dataclass(eq=False)
class Request:
    """A sequence under way."""

    prompt: tuple[int, ...]
    sampling: Sampling
    uniform_T: np.ndarray
    done: asyncio.Future[Sample]
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.ids)


class Engine:
    """Generates from one model. `slots` bounds the sequences that run at a time; the rest wait in order of arrival."""

    def __init__(self, model: Model, *, slots: int = 256):
        self.model, self.slots = model, slots
        self.dialect = Chat.of(model.tokenizer)
        self.decoder = Decoder(model)
        self.version = 0
        self.seconds = 0.0  # spent in this engine
        self.sampled_tokens = 0
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._settings: Tensor | None = None  # [5, n] of the running requests, rebuilt when their set changes
        self._pump: asyncio.Task[None] | None = None

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling, key: Key) -> Sample:
        """Continues `prompt`. The random stream is that of `key`; a full context ends the sample as "length"."""
        room = self.model.context - len(prompt)
        if room < 1:
            raise Fault(
                "context", f"a prompt of {len(prompt)} tokens leaves no room in a context of {self.model.context}"
            )
        limit = min(sampling.max_tokens, room)
        request = Request(prompt, sampling, rng_of(key).random(limit), asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._serve())
        return await request.done

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    async def _serve(self) -> None:
        try:
            while self._waiting or self._running:
                await self._settle()
                begin = time.perf_counter()
                self._admit()
                self._decode()
                self.seconds += time.perf_counter() - begin
        except Exception as error:
            for request in (*self._running, *self._waiting):
                if not request.done.done():
                    request.done.set_exception(error)
            self._running, self._settings = [], None
            self._waiting.clear()

    async def _settle(self) -> None:
        """Lets everybody who can ask now do so, so that a wave is read together."""
        quiet = 0
        while quiet < 3:
            before = len(self._waiting)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == before else 0

    def _admit(self) -> None:
        if not self._waiting or len(self._running) == self.slots:
            return
        entering = [self._waiting.popleft() for _ in range(min(len(self._waiting), self.slots - len(self._running)))]
        prompts = list(dict.fromkeys(r.prompt for r in entering))
        logits = self.decoder.prefill(prompts)
        first = len(self._running)
        self.decoder.cache.reserve(first + len(entering), max(len(r.prompt) + len(r.uniform_T) for r in entering))
        number = {p: i for i, p in enumerate(prompts)}
        for slot, r in enumerate(entering, start=first):
            self.decoder.place(number[r.prompt], len(r.prompt), slot)
        self._running += entering
        self._settings = None
        self._take(logits[[number[r.prompt] for r in entering]], entering)
        self._retire()

    def _decode(self) -> None:
        if not self._running:
            return
        device = self.model.device
        token = torch.tensor([r.ids[-1] for r in self._running], device=device)
        at = torch.tensor([r.length - 1 for r in self._running], device=device)
        logits = self.decoder.step(token, at)
        if self._settings is None:
            self._settings = self._columns(self._running)
        self._take(logits, self._running, self._settings)
        self._retire()

    def _columns(self, requests: list[Request]) -> Tensor:
        rows = [(s.temperature, s.top_k, s.top_p, s.min_p) for s in (r.sampling for r in requests)]
        return torch.tensor(rows, dtype=torch.float32, device=self.model.device).T

    def _take(self, logits: Tensor, requests: list[Request], settings: Tensor | None = None) -> None:
        """Draws the next token of every request."""
        temperature, top_k, top_p, min_p = self._columns(requests) if settings is None else settings
        uniform = torch.tensor([r.uniform_T[len(r.ids)] for r in requests], device=logits.device)
        token, logp = draw(logits, uniform, temperature, top_k, top_p, min_p)
        self.sampled_tokens += len(requests)
        for r, t, lp in zip(requests, token.tolist(), logp.tolist(), strict=True):
            r.ids.append(t)
            r.logp.append(lp)

    def _retire(self) -> None:
        """Answers finished requests; the last running sequence moves into each freed slot."""
        slot = 0
        while slot < len(self._running):
            request = self._running[slot]
            sample = self._finished(request)
            if sample is None:
                slot += 1
                continue
            last = len(self._running) - 1
            if slot < last:
                self.decoder.cache.move(last, slot, self._running[last].length)
            self._running[slot] = self._running[last]
            self._running.pop()
            self._settings = None
            if not request.done.done():
                request.done.set_result(sample)

    def _finished(self, r: Request) -> Sample | None:
        finish: Literal["eos", "stop", "length"] | None = None
        cut = -1
        if r.ids[-1] in self.model.eos:
            finish = "eos"
        elif (cut := self._stop_end(r)) >= 0:
            finish = "stop"
        elif len(r.ids) == len(r.uniform_T):
            finish = "length"
        if finish is None:
            return None
        text = self.dialect.decode(r.ids[:-1] if finish == "eos" else r.ids)
        return Sample(
            ids=tuple(r.ids),
            logp=tuple(r.logp),
            text=text,
            cut=cut if finish == "stop" else len(text),
            finish=finish,
            version=self.version,
        )

    def _stop_end(self, r: Request) -> int:
        """Where the first stop string ends in the decoded text, -1 = none. Only the tail can hold one that is not old."""
        if not r.sampling.stop:
            return -1
        longest = max(len(s.encode()) for s in r.sampling.stop)
        tail = self.dialect.decode(r.ids[-longest - 1 :])
        if not any(s in tail for s in r.sampling.stop):
            return -1
        text = self.dialect.decode(r.ids)
        return min((text.find(s) + len(s) for s in r.sampling.stop if s in text), default=-1)
