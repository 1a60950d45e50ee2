"""How likely given tokens are, as a server says: `POST URL/completions` of an OpenAI-compatible one.

    scores = ScoringEndpoint(Endpoint(url="http://localhost:8000/v1", model="m")).open().score([ids], top=0)

The ids themselves are sent as the prompt, so nothing is tokenised again, and one token is sampled and
thrown away. Two forms of the answer are read:

    prompt_logprobs   of vLLM: for each token of the prompt the log-probs of the `top` likeliest tokens
                      and its own, by their ids
    echo, logprobs    of older completions, and of servers that ignore the first: the log-probs of the
                      prompt's own tokens alone; no top, as it names tokens by texts that several share

A server says them at temperature 1. Failures are tried again as those of `EndpointClient`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.errors import Fault, UserError
from palaestra.services.chat.cache import Cache
from palaestra.services.chat.endpoint import EXCERPT, Again, Endpoint, EndpointClient
from palaestra.services.chat.wire import Wire
from palaestra.services.threads import run_in_thread
from palaestra.types import Reply, stage

ROUNDING = 1e-3  # of a server in few bits: how far above 0 a log-prob may be
SAME = 0.9  # of the tokens that a server spells, the least that have to be spelled as here


@stage
class ScoringEndpoint:
    """Args:
    endpoint: where, who, and how patiently; its cache is not used.
    tokenizer: the folder or hub id of the model's tokenizer; "" = it is that of the policy.
    """

    endpoint: Endpoint
    tokenizer: str = ""

    def open(self) -> ScoringClient:
        return ScoringClient(self.endpoint)


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Of one text of T tokens: log-probs in nats, 0 for the first token, which nothing precedes; the
    log-probs and ids of the K likeliest tokens, [T, K]; and how the server spells its tokens, "" where
    it does not say.
    """

    logp_T: np.ndarray
    top_logp_TK: np.ndarray
    top_ids_TK: np.ndarray
    texts: tuple[str, ...]


class Scorer:
    """An endpoint that stands for a model, by its token ids. At its first answer the spelling of tokens
    is compared with that of `spell`.
    """

    def __init__(self, source: ScoringEndpoint, spell: Callable[[int], str]):
        self.client, self.spell, self.checked = source.open(), spell, False

    def __call__(self, texts: Sequence[Sequence[int]], top: int = 0) -> list[TokenScores]:
        """Raises UserError, see `ScoringClient.score`, and where the server has another tokenizer."""
        scores = self.client.score(texts, top)
        if not self.checked:
            check_spelling(scores, texts, self.spell, self.client.settings.url)
            self.checked = True
        return scores


class ScoringClient(EndpointClient):
    """Asks for log-probs, several texts at a time."""

    def __init__(self, settings: Endpoint):
        super().__init__(settings, Cache(None))
        self.wire = Wire(f"{settings.url.rstrip('/')}/completions", settings.timeout)
        self.echoes = False  # whether it has the older form alone

    def score(self, texts: Sequence[Sequence[int]], top: int = 0) -> list[TokenScores]:
        """Blocks until each has been answered, in their order; may be called where an event loop runs.

        Raises:
            UserError: the server cannot say this, or failed to the end.
        """

        async def ask_all() -> list[TokenScores]:
            return await asyncio.gather(*(self._score(ids, top) for ids in texts))

        try:
            return run_in_thread(lambda: asyncio.run(ask_all()), "scores").result()
        except Fault as fault:
            raise UserError(
                f"{self.settings.url} did not say how likely tokens are: {self._clean(str(fault))}; "
                "see that the server runs, then go on with --resume and the run's folder"
            ) from None

    async def _score(self, ids: Sequence[int], top: int) -> TokenScores:
        return await self.tried(lambda: self._asked(ids, top), json.dumps([*map(int, ids)]))

    async def _asked(self, ids: Sequence[int], top: int) -> TokenScores:
        """One attempt, in the form that the server has."""
        prompt = [int(i) for i in ids]
        plain = {
            "model": self.settings.model,
            "prompt": prompt,
            "max_tokens": 1,
            "temperature": 0.0,
        }
        if not self.echoes:
            answer = await self._completion({**plain, "prompt_logprobs": top})
            if answer is not None and answer.get("prompt_logprobs"):
                return self._read(
                    lambda: read_prompt_logprobs(answer["prompt_logprobs"], prompt, top)
                )
        if top:
            raise UserError(
                f"{self.settings.url} gives no prompt_logprobs, so nobody knows its {top} likeliest tokens "
                "by their ids; vLLM gives them, and over=tokens needs none"
            )
        answer = await self._completion({**plain, "echo": True, "logprobs": 1})
        if answer is None or not answer.get("logprobs"):
            raise UserError(
                f"{self.settings.url} gives log-probs of a prompt neither as prompt_logprobs nor by echo "
                "and logprobs; serve the teacher with vLLM, or give a folder"
            )
        self.echoes = True
        return self._read(lambda: read_echo(answer["logprobs"], prompt))

    async def _completion(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The first choice; None = the server refuses the request's form."""
        status, headers, content = await self.send(body)
        form = b"prompt_logprobs" if "prompt_logprobs" in body else b"echo"
        if status in (400, 422, 501) and form in content and not body.get("prompt_logprobs"):
            return None
        self.check_status(status, headers, content)
        try:
            answer = json.loads(content)
            usage = answer.get("usage") or {}
            used = (int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
            self.meter.spend(
                Reply(text="", prompt_tokens=used[0], reply_tokens=used[1]), self.settings.prices
            )
            choice = answer["choices"][0]
            # some servers have them beside the choices
            return {"prompt_logprobs": answer.get("prompt_logprobs"), **choice}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Again("chat-garbage", f"no completion: {str(error)[:EXCERPT]}") from None

    def _read(self, read: Callable[[], TokenScores]) -> TokenScores:
        try:
            return read()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Again("chat-garbage", f"no log-probs: {str(error)[:EXCERPT]}") from None


def read_prompt_logprobs(given: Any, ids: Sequence[int], top: int) -> TokenScores:
    """From vLLM's `prompt_logprobs`. Raises ValueError where they are not of these ids, or fewer than
    asked for.
    """
    if len(given) != len(ids):
        raise ValueError(f"log-probs of {len(given)} tokens, and {len(ids)} were asked for")
    T = len(ids)
    logp_T, texts = np.zeros(T), [""] * T
    top_T, ids_T = np.zeros((T, top)), np.zeros((T, top), np.int64)
    for t in range(1, T):
        if strange := [i for i in given[t] if not str(i).isdecimal()]:
            raise ValueError(f"a token is named {strange[0]!r}, not by its id")
        entries = {int(i): entry for i, entry in given[t].items()}
        if ids[t] not in entries:
            raise ValueError(f"nothing of token {ids[t]}, which is number {t} of the prompt")
        logp_T[t] = finite(entries[ids[t]]["logprob"])
        texts[t] = str(entries[ids[t]].get("decoded_token") or "")
        if top:
            best = sorted(entries, key=lambda i: (-float(entries[i]["logprob"]), i))[:top]
            if len(best) < top:
                raise ValueError(f"{len(best)} likeliest tokens, and {top} were asked for")
            ids_T[t], top_T[t] = best, [finite(entries[i]["logprob"]) for i in best]
    return TokenScores(logp_T, top_T, ids_T, tuple(texts))


def read_echo(given: Any, ids: Sequence[int]) -> TokenScores:
    """From the `logprobs` of an echoed prompt, with what was sampled behind it. Raises ValueError
    where they are not of as many tokens.
    """
    logprobs, T = given["token_logprobs"], len(ids)
    if not T <= len(logprobs) <= T + 1:
        raise ValueError(f"log-probs of {len(logprobs)} tokens, and {T} were asked for")
    logp_T = np.array([0.0, *(finite(x) for x in logprobs[1:T])])
    texts = [str(x) for x in (given.get("tokens") or [""] * T)[:T]]
    return TokenScores(logp_T, np.zeros((T, 0)), np.zeros((T, 0), np.int64), tuple(texts))


def finite(x: Any) -> float:
    """A log-prob; a server writes what is never said as -inf, or -9999. Raises ValueError for what is
    none: null, text, NaN, or above 0, as probabilities are.
    """
    number = isinstance(x, int | float) and not isinstance(x, bool)
    if not number or not x <= ROUNDING:
        raise ValueError(f"a log-prob is {x!r}")
    return min(max(float(x), -100.0), 0.0)


def check_spelling(
    scores: Sequence[TokenScores],
    ids: Sequence[Sequence[int]],
    spell: Callable[[int], str],
    where: str,
) -> None:
    """Raises UserError where a server spells the ids otherwise: it has another tokenizer."""
    pairs = [
        (spell(int(i)), text)
        for s, row in zip(scores, ids, strict=True)
        for i, text in zip(row, s.texts, strict=True)
        if text.strip().isascii() and text.strip() and not text.startswith("token_id:")
    ]
    same = sum(a.strip(MARKS) == b.strip(MARKS) for a, b in pairs)
    if pairs and same < SAME * len(pairs):
        a, b = next((a, b) for a, b in pairs if a.strip(MARKS) != b.strip(MARKS))
        raise UserError(
            f"{where} spells a token {b!r} that is {a!r} here, so it has another tokenizer; name it, "
            "endpoint(url=..., tokenizer=DIR), and take over=spans"
        )


MARKS = " \t\n\u0120\u010a\u2581"  # blanks, and what byte-level and sentencepiece vocabularies write for them
