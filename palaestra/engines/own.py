"""The in-process engine: samples from the policy's own weights, so there is nothing to synchronise.

Requests arrive as coroutines; one pump serves them all. Each round it admits waiting requests (what
a prompt shares with another, or with a sequence that some slot still holds, is not read again),
decodes one token for every running sequence, and lets finished ones return at once: continuous
batching in a single thread. Which requests share a forward depends on the order of requests alone,
so a run batches the same way each time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from palaestra.attempts import DraftCounts
from palaestra.chat.dialect import Chat
from palaestra.engines.cache import round_up
from palaestra.engines.choose import choose, need_room
from palaestra.engines.decoder import Decoder
from palaestra.engines.drafts import Drafts, sources_of
from palaestra.engines.formats import Format, check_format
from palaestra.engines.prefix import Prefixes
from palaestra.engines.request import SampleRequest
from palaestra.engines.sampling import DrawSettings, draw
from palaestra.errors import Fault, UserError
from palaestra.models.eyes import Seen
from palaestra.models.grid import no_grid, shifts
from palaestra.models.heap import give_back
from palaestra.models.load import Model
from palaestra.models.routes import choices_from
from palaestra.pictures import Picture, by_digest, need_text_alone, pictures_in
from palaestra.types import Completion, ExpertChoices, Key, Replies, Sampling, rng_of


class OwnEngine:
    """Generates from one model.

    At most `slots` sequences run at a time, and fewer where their keys and values would take more
    than `cache_mb`; the rest wait in order of arrival.

    Args:
        drafts: where tokens are guessed from, so that a pass gives a sequence several of them:
            "off", "all", or some of "ngram", "siblings" and "last" joined by "+"; see
            `engines.drafts`. Samples are the same to the bit. Where the law of company is not
            promised, as in bfloat16 or on a GPU, there are none, and a warning says so.
        dtype: in which linear layers sample on a processor, "" = the model's: "int8", "float16" or
            "bfloat16" read fewer bytes, and sample from a distribution beside the trainer's.
        router_replay: a mixture of experts learns from its samples with the experts that they were
            drawn with (rollout routing replay); see `models.routing`.

    Raises:
        UserError: the machine does not have this dtype, or the model no routers to replay.
    """

    def __init__(
        self,
        model: Model,
        *,
        slots: int = 256,
        cache_mb: int = 4096,
        drafts: str = "off",
        dtype: Format = "",
        router_replay: bool = False,
    ):
        check_format(dtype, model.device.type)
        self.model, self.slots, self.cache_mb, self.dtype = model, slots, cache_mb, dtype
        sources = sources_of(drafts)
        self.drafts = Drafts(sources) if sources else None
        self._able: dict[int, bool] = {}  # by threads: whether drafts leave samples as they are
        self.dialect = Chat(model.tokenizer, model.places, model.sight)
        self.decoder = Decoder(model, dtype, router_replay)
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
        self.draft_counts = DraftCounts()  # all 0 without drafts
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
        """Not in bfloat16, where a decoding step rounds otherwise than the training pass does, not
        with weights in fewer bytes, and not in a mixture, where rounding may choose other experts.
        """
        whole = not self.dtype and torch.finfo(self.model.dtype).bits >= 32
        return whole and not self.model.is_mixture

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
            finish=rest.finish, moved=(*begun.moved, *cut, *later), experts=rest.experts,
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
            self._end_drafts((*self._running, *self._reading))
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
            self._end_drafts(self._running)
            self._running, self._settings = [], None
            self.decoder.forget()
        else:
            self.decoder.forget_weights()
        for r in self._running:
            r.moved = True
        if self.drafts:
            self.drafts.forget()
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
            if self.drafts and not r.given and self._steady():
                r.drafted = self.drafts.begin(r.prompt)
        self._running, self._reading = [*self._running, *entering], []
        self.most_running = max(self.most_running, len(self._running))
        self._settings = None
        self._take(logits[[number[r.prompt] for r in entering]], entering, self._asked(entering))
        if all(r.given for r in entering) and not self.model.has_grids:
            self._read_given(first, entering)
        self._retire()

    def _read_given(self, first: int, requests: list[SampleRequest]) -> None:
        """Scores in one pass what the sequences from slot `first` on say, behind the first token."""
        tails = [r.given[:-1] or r.given for r in requests]  # of a single token nothing is taken
        places = [
            (r, i) for r, t in zip(requests, tails, strict=True) for i in range(1, len(t) + 1)
        ]
        for logits in self.decoder.extend_each(first, tails, [len(r.prompt) for r in requests]):
            some, places = places[: len(logits)], places[len(logits) :]
            given = torch.tensor([r.given[min(i, len(r.given) - 1)] for r, i in some])
            settings = self._asked([r for r, _ in some])
            _, logp = draw(
                logits, torch.zeros(len(some)).to(logits), settings, given.to(logits.device)
            )
            for (r, i), lp in zip(some, logp.double().tolist(), strict=True):
                if i < len(r.given):
                    r.ids.append(r.given[i])
                    r.logp.append(lp)

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
        if self._settings is None:
            self._settings = self._asked(self._running)
        before = sum(len(r.ids) for r in self._running)
        drafts = self._drafts() if self.drafts and self._steady() else []
        if any(drafts):
            self._verify(drafts, self._settings)
        else:
            logits = self.decoder.step(
                [r.ids[-1] for r in self._running],
                [r.length - 1 for r in self._running],
                self._turns(self._running),
            )
            self._take(logits, self._running, self._settings)
        if self.drafts:
            self.draft_counts.passes += len(self._running)
            self.draft_counts.tokens += sum(len(r.ids) for r in self._running) - before
        self._retire()

    def _verify(self, drafts: list[list[int]], settings: DrawSettings) -> None:
        """A step in which each sequence has a row for its last token and one for each of its draft.

        What rows behind a wrong guess left in the cache lies behind the end of its sequence, where
        nobody looks before it is written again.
        """
        counts = [1 + len(draft) for draft in drafts]
        rows = [i for i, n in enumerate(counts) for _ in range(n)]
        tokens, at = list[int](), list[int]()
        for r, draft in zip(self._running, drafts, strict=True):
            tokens += [r.ids[-1], *draft]
            at += range(r.length - 1, r.length + len(draft))
        shift = self._turns([self._running[i] for i in rows])
        logits = self.decoder.verify(tokens, at, rows, shift)
        self.draft_counts.drafted += sum(map(len, drafts))
        self._take(logits, self._running, settings.of_rows(rows), drafts)

    def _drafts(self) -> list[list[int]]:
        """What each running sequence may go on with."""
        assert self.drafts is not None
        columns = round_up(max(r.length for r in self._running))
        rooms = [r.longest - r.length - 1 for r in self._running]
        return self.drafts.choose([r.drafted for r in self._running], rooms, columns)

    def _steady(self) -> bool:
        """Whether drafts leave samples as they are; a warning says where they need not."""
        threads = torch.get_num_threads()
        if threads not in self._able:
            self._able[threads] = self.decoder.steady
            if not self._able[threads]:
                logging.getLogger(__name__).warning(
                    "drafts are off: %s in %s on %s does not promise the same samples in any company",
                    self.model.name,
                    str(self.model.dtype).removeprefix("torch."),
                    self.model.device.type,
                )
        return self._able[threads]

    def _end_drafts(self, requests: Iterable[SampleRequest]) -> None:
        for r in requests:
            if self.drafts and r.drafted:
                self.drafts.end(r.drafted, len(r.ids))
                r.drafted = None

    def _turns(self, requests: list[SampleRequest]) -> list[int] | None:
        """How far the next token of each is turned beyond its place; None where none is."""
        if not self.model.has_grids:
            return None
        return [int(r.shift[0, -1]) for r in requests if r.shift is not None]

    def _asked(self, requests: list[SampleRequest]) -> DrawSettings:
        return DrawSettings.of([r.sampling for r in requests], self.model.device)

    def _take(
        self,
        logits: Tensor,
        requests: list[SampleRequest],
        settings: DrawSettings,
        drafts: list[list[int]] | None = None,
    ) -> None:
        """Draws the next token of every request, and those after it as far as its draft foretold
        them: one wait for the GPU.

        Args:
            logits: [N, V], of each request a row for its last token and one for each of its draft.
            settings: of the rows.
        """
        each = drafts or [()] * len(requests)
        places = [
            (r, len(r.ids) + j)
            for r, draft in zip(requests, each, strict=True)
            for j in range(len(draft) + 1)
        ]
        uniform = torch.tensor([r.uniform_T[i] for r, i in places]).to(logits.device)
        given = [r.given[i] if r.given else -1 for r, i in places]
        rows = None if given.count(-1) == len(given) else torch.tensor(given).to(logits.device)
        token, logp = draw(logits, uniform, settings, rows)
        drawn = iter(torch.stack([token.double(), logp.double()]).T.tolist())
        for r, draft in zip(requests, each, strict=True):
            before = len(r.ids)
            self._keep(r, draft, [next(drawn) for _ in range(len(draft) + 1)])
            self.sampled_tokens += 0 if r.given else len(r.ids) - before
            if self.drafts and r.drafted:
                self.drafts.grow(r.drafted, r.ids[before:])

    def _keep(self, r: SampleRequest, draft: Sequence[int], drawn: list[list[float]]) -> None:
        """Of what was drawn, all up to the first token that its draft did not foretell, or that ends
        the sample.
        """
        for guess, (token, logp) in zip((*draft, -1), drawn, strict=True):
            r.ids.append(int(token))
            r.logp.append(logp)
            if guess != token:
                return
            self.draft_counts.accepted += 1
            if self._end(r):
                return

    def _retire(self) -> None:
        """Answers finished requests and drops those whose asker has gone.

        Sequences that run on close the ranks; the ended ones stay in the slots behind them.
        """
        for slot, r in enumerate(self._running):
            if not r.done.done() and (sample := self._finished(r, slot)):
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
        self._end_drafts(self._running[n:])
        self._running, self._settings = self._running[:n], None

    def _end(self, r: SampleRequest) -> tuple[Literal["eos", "stop", "length"], int] | None:
        """How its last token ends it, and where a stop string ends in its text, -1 = none; None
        where it goes on.
        """
        if r.given:
            return ("eos", -1) if len(r.ids) == len(r.given) else None
        if r.ids[-1] in self.model.eos:
            return "eos", -1
        if (cut := self._stop_end(r)) >= 0:
            return "stop", cut
        return ("length", -1) if len(r.ids) == len(r.uniform_T) else None

    def _finished(self, r: SampleRequest, slot: int) -> Completion | None:
        end = self._end(r)
        if end is None:
            return None
        finish, cut = end
        text = self.dialect.decode(r.ids[:-1] if finish == "eos" else r.ids)
        return Completion(
            ids=tuple(r.ids),
            logp=tuple(r.logp),
            text=text,
            cut=cut if finish == "stop" else len(text),
            finish=finish,
            version=r.version,
            moved=tuple(r.versions),
            experts=self._experts(r, slot),
        )

    def _experts(self, r: SampleRequest, slot: int) -> ExpertChoices | None:
        """What the routers chose for all of its tokens but the last, which no pass has read."""
        if not self.decoder.routers:
            return None
        chosen_NLK = self.decoder.cache.experts_of(slot, r.length - 1)
        return choices_from(chosen_NLK, (*r.prompt, *r.ids), self.decoder.routers[0].experts)

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
