"""The in-process engine: samples from the policy's own weights, so there is nothing to synchronise.

Requests arrive as coroutines; one pump serves them all. Each round it admits waiting requests (what
a prompt shares with another, or with a sequence that some slot still holds, is not read again),
decodes one token for every running sequence, and lets finished ones return at once: continuous
batching in a single thread. Which requests share a forward depends on the order of requests alone,
so a run batches the same way each time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from palaestra.chat.dialect import Chat
from palaestra.engines.cache import round_up
from palaestra.engines.choose import choose, need_room
from palaestra.engines.decoder import Decoder
from palaestra.engines.formats import Format, check_format
from palaestra.engines.prefix import Prefixes
from palaestra.engines.sampling import DrawSettings, draw
from palaestra.errors import Fault, UserError
from palaestra.models.eyes import Seen
from palaestra.models.grid import no_grid, shifts
from palaestra.models.heap import give_back
from palaestra.models.load import Model
from palaestra.pictures import Picture, by_digest, need_text_alone, pictures_in
from palaestra.types import Completion, Key, Replies, Sampling, rng_of


@dataclass(eq=False)
class SampleRequest:
    """A sequence under way."""

    prompt: tuple[int, ...]
    sampling: Sampling
    uniform_T: np.ndarray
    done: asyncio.Future[Completion]
    pictures: tuple[Picture, ...] = ()
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    version: int = 0  # of the weights that drew its first token
    versions: list[tuple[int, int]] = field(default_factory=list)  # (token, version) of later ones
    moved: bool = False  # the weights did, under way: what its slot holds is of no weights
    given: tuple[int, ...] = ()  # what it says, where it is only scored
    # [3, T + 1] how far its prompt, and what follows, is turned beyond its places; None = not at all
    shift: np.ndarray | None = None

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.ids)

    @property
    def longest(self) -> int:
        """What its length can become."""
        return len(self.prompt) + len(self.uniform_T)


class OwnEngine:
    """Generates from one model.

    At most `slots` sequences run at a time, and fewer where their keys and values would take more
    than `cache_mb`; the rest wait in order of arrival.

    Args:
        dtype: in which linear layers sample on a processor, "" = the model's: "int8", "float16" or
            "bfloat16" read fewer bytes, and sample from a distribution beside the trainer's.

    Raises:
        UserError: the machine does not have this dtype.
    """

    def __init__(self, model: Model, *, slots: int = 256, cache_mb: int = 4096, dtype: Format = ""):
        check_format(dtype, model.device.type)
        self.model, self.slots, self.cache_mb, self.dtype = model, slots, cache_mb, dtype
        self.dialect = Chat(model.tokenizer, model.places, model.sight)
        self.decoder = Decoder(model, dtype)
        self.prefixes = Prefixes()
        self._added = model.added  # what steers the model; see `activations.steered`
        self._version = 0
        self.seconds = 0.0  # spent in this engine
        self.sampled_tokens = 0
        self.read_tokens = 0  # of prompts, computed
        self.reused_tokens = 0  # of prompts, found in the cache
        self.decode_steps = 0  # forward passes that gave every running sequence a token
        self.read_steps = 0  # waves of prompts that were read
        self.most_running = 0  # sequences at a time
        self._waiting: deque[SampleRequest] = deque()
        self._reading: list[SampleRequest] = []  # admitted; their prompts are not read yet
        self._running: list[SampleRequest] = []
        # of the running requests, rebuilt when their set changes
        self._settings: DrawSettings | None = None
        self._pump: asyncio.Task[None] | None = None

    @property
    def version(self) -> int:
        """Of the weights. What is under way when it rises is of both from there on."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        if version != self._version:
            for r in self._running:
                r.versions = [*(x for x in r.versions if x[0] < len(r.ids)), (len(r.ids), version)]
        self._version = version

    @property
    def exact(self) -> bool:
        """Not in bfloat16, where a decoding step rounds otherwise than the training pass does, and
        not with weights in fewer bytes.
        """
        return not self.dtype and torch.finfo(self.model.dtype).bits >= 32

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling, key: Key) -> Completion:
        """Continues `prompt`. The random stream is that of `key`; a full context ends the sample as
        "length".

        Of `sampling.choices` all are scored in one wave, off the prompt that they share, and one is
        drawn; only its tokens count as sampled.
        """
        return await self.generate_seeing(prompt, (), sampling, key)

    async def generate_seeing(
        self, prompt: tuple[int, ...], pictures: tuple[Picture, ...], sampling: Sampling, key: Key
    ) -> Completion:
        """`generate` where places of pictures are among the ids. Raises UserError where the pixels
        of one are missing.
        """
        if not self.model.has_senses:
            need_text_alone(prompt, f"{self.model.name} has no eyes and no ears")
        else:
            pictures_in(prompt, by_digest(pictures))
        room = self.model.context - len(prompt)
        if room < 1:
            raise Fault(
                "context",
                f"a prompt of {len(prompt)} tokens leaves no room in a context of "
                f"{self.model.context}",
            )
        if sampling.choices:
            need_room(sampling.choices, room)
            warm = sampling.temperature or 1.0
            scored = await self._score(prompt, pictures, sampling.choices, warm)
            chosen = choose(scored, sampling.temperature, float(rng_of(key).random()))
            self.sampled_tokens += len(chosen.ids)
            text = self.dialect.decode(chosen.ids[:-1])
            return replace(chosen, text=text, cut=len(text))
        limit = min(sampling.max_tokens, room)
        return await self._enqueue(prompt, sampling, rng_of(key).random(limit), pictures=pictures)

    async def go_on(
        self, prompt: tuple[int, ...], begun: Completion, sampling: Sampling, key: Key
    ) -> Completion:
        """The sample that `generate` gives for these arguments, of which `begun`, with the same key
        and a smaller max_tokens, is the beginning: its tokens are read, not drawn again.

        Raises UserError with stop strings or choices, which may lie on both sides of the cut.
        """
        if sampling.stop or sampling.choices:
            raise UserError(
                "a sample with stop strings or choices cannot be gone on with; leave them out"
            )
        n, limit = len(begun.ids), min(sampling.max_tokens, self.model.context - len(prompt))
        if begun.finish != "length" or n >= limit:
            return begun
        uniform_T = rng_of(key).random(limit)[n:]
        rest = await self._enqueue((*prompt, *begun.ids), sampling, uniform_T)
        ids = (*begun.ids, *rest.ids)
        text = self.dialect.decode(ids[:-1] if rest.finish == "eos" else ids)
        later = tuple((n + at, version) for at, version in rest.moved)
        cut = ((n, rest.version),) if rest.version != begun.version else ()
        return replace(
            begun, ids=ids, logp=(*begun.logp, *rest.logp), text=text, cut=len(text),
            finish=rest.finish, moved=(*begun.moved, *cut, *later),
        )  # fmt: skip

    async def _score(
        self,
        prompt: tuple[int, ...],
        pictures: tuple[Picture, ...],
        replies: Replies,
        temperature: float,
    ) -> list[Completion]:
        """The replies with their log-probs after `prompt`, all under the same weights."""
        plain = Sampling(temperature=temperature)
        while True:
            scored = await asyncio.gather(
                *(self._enqueue(prompt, plain, np.zeros(len(r)), r, pictures) for r in replies)
            )
            if len({x.version for x in scored}) == 1 and not any(x.moved for x in scored):
                return scored

    def _enqueue(
        self,
        prompt: tuple[int, ...],
        sampling: Sampling,
        uniform_T: np.ndarray,
        given: tuple[int, ...] = (),
        pictures: tuple[Picture, ...] = (),
    ) -> asyncio.Future[Completion]:
        done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        turned = None
        if self.model.has_grids:
            seen = Seen.of(pictures, self.model.device)
            grids = self.model.grids(seen)
            turned = shifts(prompt, grids or no_grid)
        self._waiting.append(
            SampleRequest(
                prompt, sampling, uniform_T, done, pictures=pictures, given=given, shift=turned
            )
        )
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._serve())
        return done

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def cache_bytes(self) -> int:
        """What the keys and values take; it does not shrink before `close`."""
        cache = self.decoder.cache
        return sum(x.nbytes for x in (*cache.keys, *cache.values))

    async def _serve(self) -> None:
        try:
            while self._waiting or self._running:
                await self._settle()
                if self.model.added is not self._added:  # what is held was steered otherwise
                    self._added = self.model.added
                    self.forget()
                    self.decoder.forget_graphs()
                begin = time.perf_counter()
                self._admit()
                self._decode()
                self.seconds += time.perf_counter() - begin
        except Exception as error:
            for request in (*self._running, *self._reading, *self._waiting):
                if not request.done.done():
                    request.done.set_exception(error)
            self._running, self._reading, self._settings = [], [], None
            self._waiting.clear()
            self.prefixes.forget()  # slots may be half written

    async def _settle(self) -> None:
        """Lets everybody who can ask now do so, so that a wave is read together."""
        quiet = 0
        while quiet < 3:
            before = len(self._waiting)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == before else 0

    def forget(self) -> None:
        """Keys and values of weights that move are worth nothing; nor are copies of these.

        Sequences under way keep theirs, and nobody goes on from them.
        """
        self.prefixes.forget()
        if all(r.done.done() for r in self._running):  # their askers have gone
            self._running, self._settings = [], None
            self.decoder.forget()
        else:
            self.decoder.forget_weights()
        for r in self._running:
            r.moved = True
        give_back(self.model)

    def close(self) -> None:
        """Frees the memory, whatever is under way."""
        self.prefixes.forget()
        self.decoder.forget()

    def _admit(self) -> None:
        entering, most = self._entering()
        if not entering:
            return
        self._reading = entering
        self.read_steps += 1
        number: dict[tuple[int, ...], int] = {}
        for r in entering:
            number.setdefault(r.prompt, len(number))
        prompts, first = list(number), len(self._running)
        leaders = {number[r.prompt]: r for r in reversed(entering)}
        others = [r for r in entering if leaders[number[r.prompt]] is not r]
        entering = [*(leaders[i] for i in range(len(prompts))), *others]
        self.decoder.cache.reserve(first + len(entering), max(r.longest for r in entering), most)
        for slot in [s for s in self.prefixes.by_slot if s >= self.decoder.cache.slots]:
            self.prefixes.release(slot)
        start = self._reuse(prompts, first, first + len(entering), most)
        tails = [p[n:] for p, n in zip(prompts, start, strict=True)]
        seen = Seen.of((p for r in entering for p in r.pictures), self.model.device)
        turned = self._shifts(entering[: len(prompts)], start)
        logits = self.decoder.extend(first, tails, start, seen, turned)
        self.read_tokens += sum(map(len, prompts)) - sum(start)
        if others:
            slots = range(first + len(prompts), first + len(entering))
            source = [first + number[r.prompt] for r in others]
            self.decoder.cache.copy(slots, source, max(len(r.prompt) for r in others))
        for slot, r in enumerate(entering, start=first):
            self.prefixes.hold(slot, r.prompt)
            r.version = self._version
        self._running, self._reading = [*self._running, *entering], []
        self.most_running = max(self.most_running, len(self._running))
        self._settings = None
        self._take(logits[[number[r.prompt] for r in entering]], entering, self._asked(entering))
        self._retire()

    def _shifts(self, leaders: list[SampleRequest], start: list[int]) -> list[np.ndarray]:
        """[3, T] of the tokens that are read of each prompt, where pictures are grids; else none."""
        if not self.model.has_grids:
            return []
        return [
            r.shift[:, n:-1] for r, n in zip(leaders, start, strict=True) if r.shift is not None
        ]

    def _entering(self) -> tuple[list[SampleRequest], int]:
        """Waiting requests that have room now, and how many slots there may be when they are in."""
        entering: list[SampleRequest] = []
        length, most = self.decoder.cache.length, self._most(self.decoder.cache.length)
        while self._waiting:
            if self._waiting[0].done.done():  # its asker has gone
                self._waiting.popleft()
                continue
            longer = max(length, round_up(self._waiting[0].longest))
            room = self._most(longer)
            if len(self._running) + len(entering) >= room and (self._running or entering):
                break
            entering.append(self._waiting.popleft())
            length, most = longer, room
        return entering, most

    def _most(self, length: int) -> int:
        """Slots of `length` tokens that the memory allows; one is always allowed."""
        size = self.decoder.token_bytes * length
        return max(1, min(self.slots, (self.cache_mb << 20) // size if size else self.slots))

    def _reuse(self, prompts: list[tuple[int, ...]], first: int, end: int, most: int) -> list[int]:
        """Puts what the cache holds of each prompt into slots first, ...; its length. What these
        held moves on if it can.
        """
        moves: list[tuple[int, int]] = []  # (to, from)
        prefixes = [self.prefixes.longest(p) for p in prompts]
        for slot, (held, n) in enumerate(prefixes, start=first):
            if held and held.slot != slot:
                moves.append((slot, held.slot))
            self.reused_tokens += n
        longest = max(n for _, n in prefixes)
        for held, n in prefixes:
            if held and n == len(held.ids) and held.slot >= first:
                self.prefixes.release(held.slot)  # its continuation holds it now
        displaced = [s for s in range(first, end) if s in self.prefixes.by_slot]
        free = (
            (s for s in range(end, most) if s not in self.prefixes.by_slot)
            if displaced
            else iter(())
        )
        for slot in displaced:
            held = self.prefixes.by_slot[slot]
            room = next(free, None)
            if room is None:
                self.prefixes.release(slot)
                continue
            moves.append((room, slot))
            self.prefixes.exchange(slot, room)
            longest = max(longest, len(held.ids))
        if moves:
            self.decoder.cache.reserve(1 + max(to for to, _ in moves), 0, most)
            self.decoder.cache.copy(
                [to for to, _ in moves], [source for _, source in moves], longest
            )
        return [n for _, n in prefixes]

    def _decode(self) -> None:
        if not self._running:
            return
        self.decode_steps += 1
        shift = (
            [int(r.shift[0, -1]) for r in self._running if r.shift is not None]
            if self.model.has_grids
            else None
        )
        logits = self.decoder.step(
            [r.ids[-1] for r in self._running], [r.length - 1 for r in self._running], shift
        )
        if self._settings is None:
            self._settings = self._asked(self._running)
        self._take(logits, self._running, self._settings)
        self._retire()

    def _asked(self, requests: list[SampleRequest]) -> DrawSettings:
        return DrawSettings.of([r.sampling for r in requests], self.model.device)

    def _take(self, logits: Tensor, requests: list[SampleRequest], settings: DrawSettings) -> None:
        """Draws the next token of every request: one wait for the GPU."""
        uniform = torch.tensor([r.uniform_T[len(r.ids)] for r in requests]).to(logits.device)
        given = [r.given[len(r.ids)] if r.given else -1 for r in requests]
        free = given.count(-1)
        rows = None if free == len(given) else torch.tensor(given).to(logits.device)
        token, logp = draw(logits, uniform, settings, rows)
        self.sampled_tokens += free
        for r, t, lp in zip(
            requests, *torch.stack([token.double(), logp.double()]).tolist(), strict=True
        ):
            r.ids.append(int(t))
            r.logp.append(lp)

    def _retire(self) -> None:
        """Answers finished requests and drops those whose asker has gone.

        Sequences that run on close the ranks; the ended ones stay in the slots behind them.
        """
        for r in self._running:
            if not r.done.done() and (sample := self._finished(r)):
                r.done.set_result(sample)
        ended = [r.done.done() for r in self._running]
        n = ended.count(False)
        if n == len(ended):
            return
        gaps = [i for i in range(n) if ended[i]]
        behind = [i for i in range(n, len(ended)) if not ended[i]]
        for gap, i in zip(gaps, behind, strict=True):
            self._running[gap], self._running[i] = self._running[i], self._running[gap]
            self.prefixes.exchange(gap, i)
        if gaps:
            upto = max(self._running[i].length for i in (*gaps, *behind))
            self.decoder.cache.copy([*gaps, *behind], [*behind, *gaps], upto)
        for slot, r in enumerate(self._running[n:], start=n):
            if not r.moved:
                self.prefixes.hold(slot, (*r.prompt, *r.ids[:-1]))
        self._running, self._settings = self._running[:n], None

    def _finished(self, r: SampleRequest) -> Completion | None:
        finish: Literal["eos", "stop", "length"] | None = None
        cut = -1
        if r.given:
            finish = "eos" if len(r.ids) == len(r.given) else None
        elif r.ids[-1] in self.model.eos:
            finish = "eos"
        elif (cut := self._stop_end(r)) >= 0:
            finish = "stop"
        elif len(r.ids) == len(r.uniform_T):
            finish = "length"
        if finish is None:
            return None
        text = self.dialect.decode(r.ids[:-1] if finish == "eos" else r.ids)
        return Completion(
            ids=tuple(r.ids),
            logp=tuple(r.logp),
            text=text,
            cut=cut if finish == "stop" else len(text),
            finish=finish,
            version=r.version,
            moved=tuple(r.versions),
        )

    def _stop_end(self, r: SampleRequest) -> int:
        """Where the first stop string ends in the decoded text, -1 = none. Only the tail can hold
        one that is not old.
        """
        if not r.sampling.stop:
            return -1
        longest = max(len(s.encode()) for s in r.sampling.stop)
        tail = self.dialect.decode(r.ids[-longest - 1 :])
        if not any(s in tail for s in r.sampling.stop):
            return -1
        text = self.dialect.decode(r.ids)
        return min((text.find(s) + len(s) for s in r.sampling.stop if s in text), default=-1)
