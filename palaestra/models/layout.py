"""Rows without padding, prompts once: the layout of a batch for the training forward pass.

Rows that start with the same untrained tokens share them: the prompt of a group is computed once,
forward and backward, and its gradient is the sum over its rows, exactly. Linear layers see a flat
run of N tokens, all prompts first, then all continuations; only attention
(`palaestra.models.packed`) looks at rows. The last token of a row predicts nothing, so it is left
out. Texts that are tried in the place of what a row says (`Fork`) see the row's own tokens before
that place, which are not computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from palaestra.types import Batch


@dataclass(frozen=True)
class Fork:
    """Texts, as token ids, each of which could follow the first `at` tokens of a row."""

    row: int
    at: int
    texts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Block:
    """Attention of some rows: queries are flat places [R, Q], keys [R, K], `mask` [R, 1, Q, K] says
    who sees whom.

    `filled` are the rows and columns of the places that hold a token; in this order they are the
    flat run of this block.
    """

    query: Tensor
    key: Tensor
    mask: Tensor
    filled: tuple[Tensor, Tensor]
    _sums: dict[tuple[int, torch.dtype], Tensor] = field(
        default_factory=dict, compare=False, repr=False
    )

    def summand(self, together: int, dtype: torch.dtype) -> Tensor:
        """[R, 1, `together` Q, K] the mask as what is added to attention, for queries of so many
        heads in line.

        Made once for all layers. The rows begin at multiples of 8 numbers, as CUDA's kernels want
        them.
        """
        if (together, dtype) not in self._sums:
            R, _, Q, K = self.mask.shape
            made = self.mask.new_zeros(R, 1, together * Q, -(-K // 8) * 8, dtype=dtype)[..., :K]
            self._sums[together, dtype] = made.masked_fill_(
                ~self.mask.repeat(1, 1, together, 1), float("-inf")
            )
        return self._sums[together, dtype]


@dataclass(frozen=True)
class Layout:
    """A batch as a flat run: ids [N], positions [N], its blocks in order, and where [B, T] the
    token before (b, t) lies; and where [M] the token before each token of the forks' texts lies, in
    order.
    """

    ids: Tensor
    position: Tensor
    blocks: tuple[Block, ...]
    before: Tensor
    before_forks: Tensor
    # of the batch, in order: (row, first token, how many); the texts of forks follow
    runs: tuple[tuple[int, int, int], ...] = ()

    def tokens_of(self, column: Tensor) -> Tensor:
        """[N, ...] what a column [B, T, ...] of whole numbers says of each place; -1 in texts of forks."""
        parts = [column[row, at : at + n] for row, at, n in self.runs]
        rest = len(self.ids) - sum(n for *_, n in self.runs)
        return torch.cat([*parts, column.new_full((rest, *column.shape[2:]), -1)])

    @classmethod
    def of(cls, batch: Batch, forks: Sequence[Fork] = ()) -> Layout:
        T = batch["ids"].shape[1]
        prompts, owner, tails = prompts_and_tails(batch)
        first = [len(prompts[g]) for g in owner]
        flat = [i for p in prompts for i in p] + [i for t in tails for i in t]
        position = [k for p in prompts for k in range(len(p))]
        position += [u + k for u, t in zip(first, tails, strict=True) for k in range(len(t))]
        start_p = _starts([len(p) for p in prompts], 0)
        start_t = _starts([len(t) for t in tails], sum(map(len, prompts)))
        before = torch.zeros(len(owner), T, dtype=torch.long)
        for b, (u, g, t) in enumerate(zip(first, owner, tails, strict=True)):
            before[b, 1 : u + 1] = torch.arange(start_p[g], start_p[g] + min(u, T - 1))
            before[b, u + 1 : u + 1 + len(t)] = torch.arange(start_t[b], start_t[b] + len(t))
        device = batch["ids"].device
        blocks = [
            _block([(s, len(p), 0, 0) for s, p in zip(start_p, prompts, strict=True)], device)
        ]
        joined = [
            (start_t[b], len(t), start_p[g], len(prompts[g]))
            for b, (g, t) in enumerate(zip(owner, tails, strict=True))
            if t
        ]
        if joined:
            blocks.append(_block(joined, device))
        before_forks = list[int]()
        tried = list[tuple[list[int], list[int]]]()
        for fork in forks:
            lengths, b, u = [len(x) - 1 for x in fork.texts], fork.row, first[fork.row]
            seen = [start_p[owner[b]] + k for k in range(min(fork.at, u))]
            seen += [start_t[b] + k for k in range(fork.at - u)]
            if sum(lengths):
                tried.append((seen, lengths))
            for text in fork.texts:
                before_forks += [
                    int(before[b, fork.at]),
                    *range(len(flat), len(flat) + len(text) - 1),
                ]
                flat += text[:-1]
                position += range(fork.at, fork.at + len(text) - 1)
        if tried:
            blocks.append(_fork_block(tried, len(flat) - sum(sum(n) for _, n in tried), device))
        ids, at, before_M = (
            torch.tensor(x, dtype=torch.long, device=device) for x in (flat, position, before_forks)
        )
        return cls(
            ids=ids,
            position=at,
            blocks=tuple(blocks),
            before=before.to(device),
            before_forks=before_M,
            runs=(
                *((owner.index(g), 0, len(p)) for g, p in enumerate(prompts)),
                *((b, u, len(t)) for b, (u, t) in enumerate(zip(first, tails, strict=True))),
            ),
        )


def prompts_and_tails(batch: Batch) -> tuple[list[tuple[int, ...]], list[int], list[list[int]]]:
    """The different prompts, which of them each row has, and what each row adds to it: all that has
    to be computed.
    """
    trained, length_B = batch.mask.cpu() > 0, batch["length"].cpu()
    # the first trained token
    first = torch.where(trained.any(1), trained.int().argmax(1), length_B).tolist()
    rows = batch["ids"].tolist()
    number: dict[tuple[tuple[int, ...], bytes], int] = {}
    routed_B = _routed_prompts(batch, first)
    owner = [
        number.setdefault((tuple(row[:u]), routed), len(number))
        for row, u, routed in zip(rows, first, routed_B, strict=True)
    ]
    return (
        [prompt for prompt, _ in number],
        owner,
        [row[u : n - 1] for row, u, n in zip(rows, first, length_B.tolist(), strict=True)],
    )


def _routed_prompts(batch: Batch, first: Sequence[int]) -> list[bytes]:
    """Of each row the experts that its prompt was sampled with, for with others it is another prompt."""
    if "experts" not in batch.columns:
        return [b""] * len(first)
    given = batch["experts"].cpu()
    return [given[b, :u].numpy().tobytes() for b, u in enumerate(first)]


def _starts(lengths: list[int], at: int) -> list[int]:
    starts = []
    for n in lengths:
        starts.append(at)
        at += n
    return starts


def _block(rows: list[tuple[int, int, int, int]], device: torch.device) -> Block:
    """rows: (start, length, start of the prefix, its length). Keys are the prefix, then the row
    itself, causally.
    """
    start, length, prefix, before = (torch.tensor(x)[:, None] for x in zip(*rows, strict=True))
    q, p = torch.arange(int(length.max()))[None], torch.arange(int(before.max()))[None]
    filled = q < length
    query = torch.where(filled, start + q, start)
    key = torch.cat([torch.where(p < before, prefix + p, start), query], 1)
    prompt = (p < before)[:, None, :].expand(-1, q.shape[1], -1)
    own = (q[:, :, None] >= q[:, None, :]) & filled[:, None, :]
    mask = torch.cat([prompt, own], 2)[:, None].to(device)
    row, column = filled.nonzero(as_tuple=True)
    return Block(
        query=query.to(device),
        key=key.to(device),
        mask=mask,
        filled=(row.to(device), column.to(device)),
    )


def _fork_block(
    forks: list[tuple[list[int], list[int]]], start: int, device: torch.device
) -> Block:
    """forks: (places of what stands before, lengths of the texts). A row holds all texts of a fork,
    which see what stands before, and each itself, causally. The first lies at `start`.
    """
    Q, P = max(sum(n) for _, n in forks), max(len(seen) for seen, _ in forks)
    query, text = torch.zeros(len(forks), Q, dtype=torch.long), torch.full((len(forks), Q), -1)
    prefix, prompt = torch.zeros(len(forks), P, dtype=torch.long), torch.zeros(len(forks), P)
    for r, (seen, lengths) in enumerate(forks):
        n = sum(lengths)
        query[r] = start
        query[r, :n] = torch.arange(start, start + n)
        text[r, :n] = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        prefix[r, : len(seen)], prompt[r, : len(seen)] = torch.tensor(seen), 1
        start += n
    filled, q = text >= 0, torch.arange(Q)
    own = (text[:, :, None] == text[:, None, :]) & (q[:, None] >= q[None]) & filled[:, None, :]
    mask = torch.cat([(prompt > 0)[:, None, :].expand(-1, Q, -1), own], 2)[:, None]
    row, column = filled.nonzero(as_tuple=True)
    return Block(
        query=query.to(device),
        key=torch.cat([prefix, query], 1).to(device),
        mask=mask.to(device),
        filled=(row.to(device), column.to(device)),
    )
