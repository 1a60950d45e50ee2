"""Log-probs of replies that were chosen among legal ones, as the training forward pass computes
them: see `palaestra.types.Choices`. R turns with choices, K replies of a turn, S replies that are
scored, M tokens of these, P tokens said in such turns.

The legal replies travel with a batch as its column "choices" [B, 1, C], whole numbers: of each turn
the place of its first token, how many tokens were said, how many replies there are, then each
reply's length and ids; -1 behind the last. A forward pass reads the replies after their contexts
beside the rows of the batch, those of equal contexts once: where the model runs packed they see the
rows' own tokens, else each is a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.layout import Fork
from palaestra.types import Batch, Replies, Row

COLUMN = "choices"
LEGAL = "legal_logp"  # the quantity that says how likely a legal reply is
# quantities of whole distributions over the vocabulary, from which such a turn was not drawn
OF_VOCABULARY = (
    "vocab_mean_logp",
    "vocab_logp",
    "top_logp",
    "asked_logp",
    "power_logp",
    "collision",
    "head_gradient",
)


def choices_of(row: Row, policy: str | None = None) -> list[int]:
    """What a row says in the column: its trained turns, of one learner with `policy`."""
    places, at = list[int](), 0
    for s in row.segments:
        if s.choices is not None and s.trained and not s.hidden and policy in (None, s.policy):
            places += [at, len(s.ids), len(s.choices.ids)]
            for reply in s.choices.ids:
                places += [len(reply), *reply]
        at += 0 if s.hidden else len(s.ids)
    return places


def stack(choices_B: Sequence[Sequence[int]]) -> Tensor:
    """The column, of what each row says."""
    padded = torch.full((len(choices_B), 1, max(map(len, choices_B))), -1)
    for b, numbers in enumerate(choices_B):
        padded[b, 0, : len(numbers)] = torch.tensor(numbers, dtype=torch.long)
    return padded


@dataclass(frozen=True)
class ChosenTurn:
    """A turn of a row: tokens at ... at + n - 1 were chosen among the replies."""

    row: int
    at: int
    n: int
    replies: Replies


def turns_of(batch: Batch) -> list[ChosenTurn]:
    """The turns with choices of which some token is trained."""
    if COLUMN not in batch.columns:
        return []
    turns, trained = list[ChosenTurn](), batch.mask.cpu() > 0
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
                turns.append(ChosenTurn(row, at, n, tuple(replies)))
    return turns


def read_beside(batch: Batch) -> list[tuple[int, int]]:
    """Of each row, how many replies are read beside it at most, and how many tokens of these."""
    sizes = [(0, 0)] * len(batch.unit_B)
    for t in turns_of(batch):
        rows, tokens = sizes[t.row]
        sizes[t.row] = (rows + len(t.replies), tokens + sum(map(len, t.replies)))
    return sizes


@dataclass(frozen=True)
class Replying:
    """The turns of a batch with choices, and what is read to score their replies."""

    batch: Batch
    turns: tuple[ChosenTurn, ...]
    forks: tuple[Fork, ...]
    reply_RK: Tensor  # numbers of a turn's replies, -1 = it has fewer
    temperature_S: Tensor

    @classmethod
    def of(cls, batch: Batch, needs: Sequence[str]) -> Replying:
        """Raises UserError for a need that has no meaning where replies were chosen."""
        turns = turns_of(batch)
        strange = [n for n in needs if turns and n.split(":")[0] in OF_VOCABULARY]
        if strange:
            raise UserError(
                f"{strange[0]} is of the distribution over the whole vocabulary, and these replies "
                "were chosen among the legal ones of the world; take a world without `choices`"
            )
        # forks by their contexts and replies, with the number of their first reply
        first = dict[tuple[tuple[int, ...], Replies, float], int]()
        forks, temperature, reply = list[Fork](), list[float](), list[list[int]]()
        K, ids = max((len(t.replies) for t in turns), default=0), batch["ids"].tolist()
        for t in turns:
            warm = float(batch["temperature"][t.row, t.at])
            which = (tuple(ids[t.row][: t.at]), t.replies, warm)
            if which not in first:
                first[which] = len(temperature)
                forks.append(Fork(t.row, t.at, t.replies))
                temperature += [warm] * len(t.replies)
            numbers = range(first[which], first[which] + len(t.replies))
            reply.append([*numbers, *[-1] * (K - len(numbers))])
        device = batch["ids"].device
        return cls(
            batch=batch,
            turns=tuple(turns),
            forks=tuple(forks),
            reply_RK=torch.tensor(reply, dtype=torch.long, device=device),
            temperature_S=torch.tensor(temperature, dtype=torch.float64, device=device),
        )

    def tokens(self) -> tuple[Tensor, Tensor]:
        """[M] tokens of the forks' replies in order, and [M] which reply each belongs to."""
        texts = [x for f in self.forks for x in f.texts]
        device = self.batch["ids"].device
        token_M = torch.tensor([i for x in texts for i in x], device=device)
        return token_M, torch.tensor([s for s, x in enumerate(texts) for _ in x], device=device)

    def restricted(
        self, logp_S: Tensor, entropy: bool
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """((rows [P], places [P]), log-probs [P], entropies [P], empty unless asked for), of the
        trained tokens, under the restricted distribution given the tokens before each; from the
        log-probs of the whole replies, at the temperatures of their turns.
        """
        device = logp_S.device
        logp_RK = torch.where(self.reply_RK >= 0, logp_S[self.reply_RK.clamp(min=0)], -torch.inf)
        place, of_P, open_PK, branch_PK = (x.to(device) for x in self._places(logp_RK.shape[1]))
        x_PK = logp_RK[of_P].masked_fill(~open_PK, -torch.inf)
        all_P = x_PK.logsumexp(1)
        logp_P = x_PK.masked_fill(branch_PK != 0, -torch.inf).logsumexp(1) - all_P
        if not entropy:
            return (place[0], place[1]), logp_P, logp_P[:0]
        p_PK = (x_PK - all_P[:, None]).exp()
        q_PK = torch.zeros_like(p_PK).scatter_add(1, branch_PK, p_PK)
        # the log of nothing has an infinite derivative, which nothing multiplies to NaN
        entropy_P = -(q_PK * q_PK.clamp(min=torch.finfo(q_PK.dtype).tiny).log()).sum(1)
        return (place[0], place[1]), logp_P, entropy_P

    def masses(self, logp_S: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """((rows [R], places [R]), log-masses [R]): where each turn begins, and the log of the summed probabilities
        of its replies.
        """
        device = logp_S.device
        logp_RK = torch.where(self.reply_RK >= 0, logp_S[self.reply_RK.clamp(min=0)], -torch.inf)
        begin = torch.tensor([(t.row, t.at) for t in self.turns], device=device).T
        return (begin[0], begin[1]), logp_RK.logsumexp(1)

    def _places(self, K: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the trained tokens: [2, P] row and place; [P] the turn; [P, K] which replies begin
        like the turn before the token; [P, K] number of the token with which each goes on there, 0
        = the one that was said.
        """
        trained, ids = self.batch.mask.cpu() > 0, self.batch["ids"].tolist()
        place, of = list[tuple[int, int]](), list[int]()
        fits, branches = list[list[bool]](), list[list[int]]()
        for r, turn in enumerate(self.turns):
            reply = tuple(ids[turn.row][turn.at : turn.at + turn.n])
            for i in (i for i in range(turn.n) if trained[turn.row, turn.at + i]):
                number, fit = {reply[i]: 0}, [x[:i] == reply[:i] for x in turn.replies]
                go = [
                    number.setdefault(x[i], len(number)) if f else 0
                    for x, f in zip(turn.replies, fit, strict=True)
                ]
                place.append((turn.row, turn.at + i))
                of.append(r)
                fits.append([*fit, *[False] * (K - len(fit))])
                branches.append([*go, *[0] * (K - len(go))])
        return torch.tensor(place).T, torch.tensor(of), torch.tensor(fits), torch.tensor(branches)


def with_texts(batch: Batch, forks: Sequence[Fork]) -> tuple[Tensor, Tensor, Tensor]:
    """For a model that runs padded: the ids [B', T'] of the batch with each text of the forks after
    its context as one more row; and [M] the row, and the place before, of each token of the texts.
    """
    rows = [(f, x) for f in forks for x in f.texts]
    ids, B = batch["ids"], len(batch["ids"])
    longest = max([ids.shape[1], *(f.at + len(x) for f, x in rows)])
    ids = torch.nn.functional.pad(ids, (0, longest - ids.shape[1]))
    more = ids[[f.row for f, _ in rows]].clone()
    for s, (f, x) in enumerate(rows):
        more[s, f.at :] = 0
        more[s, f.at : f.at + len(x)] = torch.tensor(x, device=ids.device)
    row_M = [B + s for s, (_, x) in enumerate(rows) for _ in x]
    at_M = [f.at - 1 + k for f, x in rows for k in range(len(x))]
    return (
        torch.cat([ids, more]),
        torch.tensor(row_M, dtype=torch.long, device=ids.device),
        torch.tensor(at_M, dtype=torch.long, device=ids.device),
    )
