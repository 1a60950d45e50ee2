"""Log-probs of replies that were chosen among legal ones, as the training forward pass computes
them: see `palaestra.types.Choices`. R turns with choices, K replies of a turn, S different rows that
score a reply, P tokens said in such turns.

The legal replies travel with a batch as its column "choices" [B, 1, C], whole numbers: of each turn
the place of its first token, how many tokens were said, how many replies there are, then each
reply's length and ids; -1 behind the last. A forward pass reads each reply after its context as a
row of its own, equal ones once, beside the rows of the batch: one pass, and contexts are shared
where the model runs packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.types import Batch, Replies, Row

COLUMN = "choices"
# quantities of whole distributions over the vocabulary, from which such a turn was not drawn
OF_VOCABULARY = ("vocab_mean_logp", "vocab_logp", "power_logp", "head_gradient")


def choices_of(row: Row, policy: str | None = None) -> list[int]:
    """What a row says in the column: its trained turns, of one learner with `policy`."""
    found, at = list[int](), 0
    for s in row.segments:
        if s.choices is not None and s.trained and not s.hidden and policy in (None, s.policy):
            found += [at, len(s.ids), len(s.choices.ids)]
            for reply in s.choices.ids:
                found += [len(reply), *reply]
        at += 0 if s.hidden else len(s.ids)
    return found


def stack(choices_B: Sequence[Sequence[int]]) -> Tensor:
    """The column, of what each row says."""
    found = torch.full((len(choices_B), 1, max(map(len, choices_B))), -1)
    for b, numbers in enumerate(choices_B):
        found[b, 0, : len(numbers)] = torch.tensor(numbers, dtype=torch.long)
    return found


@dataclass(frozen=True)
class Turn:
    """A turn of a row: tokens at ... at + n - 1 were chosen among the replies."""

    row: int
    at: int
    n: int
    replies: Replies


def turns_of(batch: Batch) -> list[Turn]:
    """The turns with choices of which some token is trained."""
    if COLUMN not in batch.columns:
        return []
    found, trained = list[Turn](), batch.mask.cpu() > 0
    for row, numbers in enumerate(batch[COLUMN][:, 0].tolist()):
        i = 0
        while i < len(numbers) and numbers[i] >= 0:
            at, n, k = numbers[i : i + 3]
            i, replies = i + 3, list[tuple[int, ...]]()
            for _ in range(k):
                end = i + 1 + numbers[i]
                replies.append(tuple(numbers[i + 1 : end]))
                i = end
            if trained[row, at : at + n].any():
                found.append(Turn(row, at, n, tuple(replies)))
    return found


def positions_of(batch: Batch) -> list[tuple[int, int]]:
    """Of each row, how many rows and how many positions its replies add, at most: a context counts
    once a turn.
    """
    found = [(0, 0)] * len(batch.unit_B)
    for t in turns_of(batch):
        rows, positions = found[t.row]
        more = t.at + sum(map(len, t.replies))
        found[t.row] = (rows + len(t.replies), positions + more)
    return found


@dataclass(frozen=True)
class Replying:
    """A batch with the rows that score its replies, which come after its own."""

    own: Batch
    batch: Batch
    turns: tuple[Turn, ...]
    reply_RK: Tensor  # number of the row that scores it, -1 = the turn has fewer replies
    temperature_S: Tensor

    @classmethod
    def of(cls, batch: Batch, needs: Sequence[str]) -> Replying | None:
        """None = nothing was chosen. Raises UserError for a need that has no meaning then."""
        turns = turns_of(batch)
        if not turns:
            return None
        if strange := [n for n in needs if n.split(":")[0] in OF_VOCABULARY]:
            raise UserError(
                f"{strange[0]} is of the distribution over the whole vocabulary, and these replies "
                "were chosen among the legal ones of the world; take a world without `choices`"
            )
        ids, number = batch["ids"].tolist(), dict[tuple[tuple[int, ...], int, float], int]()
        K, reply = max(len(t.replies) for t in turns), list[list[int]]()
        for t in turns:
            context = tuple(ids[t.row][: t.at])
            warm = float(batch["temperature"][t.row, t.at])
            rows = [number.setdefault(((*context, *r), t.at, warm), len(number)) for r in t.replies]
            reply.append([*rows, *[-1] * (K - len(rows))])
        device = batch["ids"].device
        return cls(
            own=batch,
            batch=_with_rows(batch, [(row, at) for row, at, _ in number]),
            turns=tuple(turns),
            reply_RK=torch.tensor(reply, device=device),
            temperature_S=torch.tensor([t for *_, t in number], device=device).double(),
        )

    def restricted(
        self, logp_S: Tensor, entropy: bool
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """((rows [P], places [P]), log-probs [P], entropies [P], empty unless asked for), of the
        trained tokens, under the restricted distribution given the tokens before each; from the
        log-probs of the whole replies, at the temperatures of their turns.
        """
        device, ids = logp_S.device, self.own["ids"].tolist()
        logp_RK = torch.where(self.reply_RK >= 0, logp_S[self.reply_RK.clamp(min=0)], -torch.inf)
        trained, K = self.own.mask.cpu() > 0, logp_RK.shape[1]
        places = [
            (r, t, i)
            for r, t in enumerate(self.turns)
            for i in range(t.n)
            if trained[t.row, t.at + i]
        ]
        open_PK = torch.zeros(len(places), K, dtype=torch.bool)  # begins like the turn before it
        branch_PK = torch.zeros(len(places), K, dtype=torch.long)  # number of its token here
        for p, (_, t, i) in enumerate(places):
            said, branch = tuple(ids[t.row][t.at : t.at + i + 1]), {ids[t.row][t.at + i]: 0}
            for k, reply in enumerate(t.replies):
                if reply[:i] == said[:i]:
                    open_PK[p, k] = True
                    branch_PK[p, k] = branch.setdefault(reply[i], len(branch))
        of_P = torch.tensor([r for r, *_ in places], device=device)
        row_P = torch.tensor([t.row for _, t, _ in places], device=device)
        at_P = torch.tensor([t.at + i for _, t, i in places], device=device)
        open_PK, branch_PK = open_PK.to(device), branch_PK.to(device)
        taken_PK = open_PK & (branch_PK == 0)
        x_PK = logp_RK[of_P]
        all_P = x_PK.masked_fill(~open_PK, -torch.inf).logsumexp(1)
        logp_P = x_PK.masked_fill(~taken_PK, -torch.inf).logsumexp(1) - all_P
        if not entropy:
            return (row_P, at_P), logp_P, logp_P[:0]
        p_PK = (x_PK.masked_fill(~open_PK, -torch.inf) - all_P[:, None]).exp()
        q_PK = torch.zeros_like(p_PK).scatter_add(1, branch_PK, p_PK)
        # the log of nothing has an infinite derivative, which nothing multiplies to NaN
        entropy_P = -(q_PK * q_PK.clamp(min=torch.finfo(q_PK.dtype).tiny).log()).sum(1)
        return (row_P, at_P), logp_P, entropy_P


def _with_rows(batch: Batch, rows: list[tuple[tuple[int, ...], int]]) -> Batch:
    """The batch with (ids, place of the first trained token) as more rows; of its columns those
    that a model's body reads.
    """
    T = batch["ids"].shape[1]
    longest = max(T, *(len(ids) for ids, _ in rows))
    ids, mask = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest))
    for s, (reply, at) in enumerate(rows):
        ids[s, : len(reply)], mask[s, at : len(reply)] = reply, 1.0
    length = [len(reply) for reply, _ in rows]

    def join(name: str, more: np.ndarray) -> Tensor:
        own = torch.nn.functional.pad(batch[name], (0, longest - T))
        return torch.cat([own, torch.from_numpy(more).to(own)])

    columns = {
        "ids": join("ids", ids),
        "trained": join("trained", mask),
        "length": torch.cat([batch["length"], torch.tensor(length).to(batch["length"])]),
    }
    more = torch.arange(len(rows), device=batch.unit_B.device) + int(batch.unit_B.max()) + 1
    return replace(batch, columns=columns, unit_B=torch.cat([batch.unit_B, more]))
