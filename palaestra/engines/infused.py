"""Knowledge infused decoding: what a model remembers of the text is moved, at each token, towards what
documents say of it (arXiv:2204.03084). No weight changes.

D is the set of knowledge tokens of a step, H the keys and values that the model holds of the text, pi the law
of the next token on H, and pi' the law on H + dH. From dH = 0, `inner_steps` times

    loss = -log sum over w in D of pi'(w) + kl * KL(pi' || pi)
    dH  <- dH - step_size * g / n^gamma,    g = the gradient of the loss,  n = max of |g| over the steps so far

for each layer's keys and values together. The next token is drawn from

    p ~ pi'^fusion * pi^(1 - fusion)

without tokens that would repeat an n-gram of the answer, and cut to the `top_k` likeliest and the
nucleus `top_p`. The moved H is kept. Read as reinforcement learning, the reward is the log of the mass on D,
the KL is the trust region, and the policy is improved while it speaks.

H is what was there before the last token, so an answer to a prompt of one token is moved from its second
token on. Where D is empty nothing is moved. The released code (microsoft/KID) pushes the end of the text
then, and takes its nucleus of a law that is flattened by a second softmax; here it is that of p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from palaestra.chat.dialect import Chat
from palaestra.engines.knowledge import KnowledgeTrie, TermSpeller, terms_of
from palaestra.engines.sampling import DrawSettings, draw
from palaestra.models.inside.cursor import Cursor, Past
from palaestra.models.model import Model
from palaestra.models.score import score_pairs
from palaestra.types import Key, Sampling, need_at_least, rng_of, stage, value_class

SMALL = 1e-15  # added to a norm


def infusion_loss(logp_V: Tensor, plain_V: Tensor, tokens: Sequence[int], kl: float) -> Tensor:
    """-log sum over w in D of pi'(w) + kl * KL(pi' || pi), in nats.

    Args:
        logp_V: log pi'.
        plain_V: log pi.
        tokens: D, ids without repetition.
    """
    mass = torch.logsumexp(logp_V[list(tokens)], 0)
    return -mass + kl * (logp_V.exp() * (logp_V - plain_V)).nan_to_num(0.0).sum()


def fuse_laws(logp_V: Tensor, plain_V: Tensor, fusion: float) -> Tensor:
    """log p, p ~ pi'^fusion * pi^(1 - fusion)."""
    return torch.log_softmax(fusion * logp_V + (1 - fusion) * plain_V, -1)


def repeats(ids: Sequence[int], n: int) -> list[int]:
    """The tokens that would make the last n tokens of a text an n-gram that it has already; none
    where n is 0.
    """
    if n < 1 or len(ids) < n:
        return []
    tail = tuple(ids[len(ids) - n + 1 :])
    grams = (ids[i : i + n] for i in range(len(ids) - n + 1))
    return sorted({g[-1] for g in grams if tuple(g[:-1]) == tail})


def step_of(grads: Sequence[Tensor], norms: Sequence[Tensor], gamma: float) -> list[Tensor]:
    """g / n^gamma of keys and values in turn; a norm is that of a layer."""
    return [g / norms[i // 2] ** gamma for i, g in enumerate(grads)]


def move_past(
    cursor: Cursor,
    tokens: Sequence[int],
    steps: int = 3,
    step_size: float = 0.01,
    gamma: float = 1.5,
    kl: float = 0.01,
) -> Past:
    """H + dH of a cursor of one row; H itself where there is nothing to move or to move towards."""
    if not (len(tokens) and cursor.past and steps):
        return cursor.past
    plain_V = torch.log_softmax(cursor.logits()[0], -1).detach()
    moved, most = [x.detach() for x in cursor.past], list[Tensor]()
    for _ in range(steps):
        # each step has a graph of its own, from H + dH to the loss
        leaves = [x.clone().requires_grad_() for x in moved]
        logp_V = torch.log_softmax(cursor.on(tuple(leaves)).logits()[0], -1)
        grads = torch.autograd.grad(infusion_loss(logp_V, plain_V, tokens, kl), leaves)
        pairs = zip(grads[::2], grads[1::2], strict=True)
        norms = [(k.norm() ** 2 + v.norm() ** 2).sqrt() + SMALL for k, v in pairs]
        most = [torch.maximum(a, b) for a, b in zip(most or norms, norms, strict=True)]
        moved = [x - step_size * g for x, g in zip(moved, step_of(grads, most, gamma), strict=True)]
    return tuple(moved)


@value_class
class InfusedAnswer:
    """An answer, and what knowledge did to it.

    Args:
        ids, logp: its tokens, and their log-probs in nats under the law that they are drawn from.
        finish: "eos", "stop", or "length", where it was cut.
        gain: the mean over its tokens of pi'(D) - pi(D), the probability that knowledge tokens gained.
        changed: the share of its tokens that are not those of the same random numbers on pi.
        nats: the mean of -log p of its tokens under the model alone.
    """

    ids: tuple[int, ...]
    logp: tuple[float, ...]
    finish: str
    gain: float
    changed: float
    nats: float = math.nan


@stage
class Infusion:
    """How knowledge moves what is said, see the module.

    Args:
        hops: of the look-up of terms: 2 = also what belongs to what was found.
        inner_steps, step_size, gamma, kl, fusion: of the formulas; inner_steps=0 decodes without knowledge.
        no_repeat: the length of n-grams that an answer has only once; 0 = any may come again.
        whole: a term that was begun is gone on with; False = only the first token of each term is
            knowledge, as in the released code.
        temperature: of p, before it is cut.
    """

    hops: int = 1
    inner_steps: int = 3
    step_size: float = 0.01
    gamma: float = 1.5
    kl: float = 0.01
    fusion: float = 0.99
    top_k: int = 20
    top_p: float = 0.92
    no_repeat: int = 2
    whole: bool = True
    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, hops=1, inner_steps=0, step_size=0, kl=0, top_k=0, no_repeat=0)
        need_at_least(self, top_p=0, gamma=0, fusion=0)


def least_surprising(answers: Sequence[InfusedAnswer]) -> int:
    """The number of the answer with the lowest perplexity, of those that came to their end where any
    did.
    """
    ended = [i for i, x in enumerate(answers) if x.finish != "length"]
    return min(ended or range(len(answers)), key=lambda i: answers[i].nats)


@dataclass
class InfusedWriter:
    """Writes answers to one question with the knowledge of a trie.

    Args:
        prompt: ids that the model reads.
        stops: strings that end an answer.
    """

    settings: Infusion
    model: Model
    dialect: Chat
    prompt: tuple[int, ...]
    trie: KnowledgeTrie
    question: str
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.speller = TermSpeller(self.dialect.encode_text, self.dialect.decode)
        self.law = DrawSettings.of([self._sampling()], self.model.device)

    def _sampling(self) -> Sampling:
        s = self.settings
        return Sampling(temperature=s.temperature, top_k=s.top_k, top_p=s.top_p)

    def answer(self, most: int, key: Key) -> InfusedAnswer:
        """One answer of at most `most` tokens."""
        cursor, rng = Cursor.start(self.model, self.prompt), rng_of(key)
        ids, logp, finish = list[int](), list[float](), "length"
        gains, changed = list[float](), list[bool]()
        while len(ids) < most and len(cursor) < self.model.context:
            plain_V = torch.log_softmax(cursor.logits()[0], -1)
            tokens = self._knowledge(ids)
            s = self.settings
            past = move_past(cursor, tokens, s.inner_steps, s.step_size, s.gamma, s.kl)
            if past is not cursor.past:
                cursor = cursor.on(past)
            with torch.no_grad():
                logp_V = torch.log_softmax(cursor.logits()[0], -1)
                u = float(rng.random())
                token, chosen = self._draw(fuse_laws(logp_V, plain_V, s.fusion), ids, u)
                changed.append(token != self._draw(plain_V, ids, u)[0])
                mass = logp_V[tokens].exp().sum() - plain_V[tokens].exp().sum()
                gains.append(float(mass))
            ids.append(token)
            logp.append(chosen)
            if token in self.model.eos:
                finish = "eos"
                break
            if self.stops and any(x in self.dialect.decode(ids) for x in self.stops):
                finish = "stop"
                break
            if len(ids) < most and len(cursor) < self.model.context:
                cursor = cursor.append([token])
        mean = lambda x: float(np.mean(x)) if x else 0.0
        return InfusedAnswer(
            ids=tuple(ids), logp=tuple(logp), finish=finish, gain=mean(gains), changed=mean(changed)
        )

    def _knowledge(self, ids: Sequence[int]) -> list[int]:
        """D: the local memory is the terms of the question and of the answer so far."""
        text = self.dialect.decode(list(ids))
        terms = self.trie.related(terms_of(f"{self.question}\n{text}"), self.settings.hops)
        return self.speller.next_tokens(terms, ids, self.settings.whole)

    def _draw(self, logp_V: Tensor, ids: Sequence[int], u: float) -> tuple[int, float]:
        """A token by the random number `u`, and its log-probability in nats."""
        x_V = logp_V.clone()
        banned = repeats(ids, self.settings.no_repeat)
        if len(banned) < len(x_V):
            x_V[banned] = -math.inf
        token_N, chosen_N = draw(x_V[None], torch.tensor([u], device=x_V.device), self.law)
        return int(token_N[0]), float(chosen_N[0])

    def with_nats(self, answers: Sequence[InfusedAnswer]) -> list[InfusedAnswer]:
        """The answers with their nats a token under the model alone."""
        logp = score_pairs(self.model, [(self.prompt, x.ids) for x in answers])
        return [replace(x, nats=-float(l.mean())) for x, l in zip(answers, logp, strict=True)]
