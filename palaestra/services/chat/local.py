"""A client that is a model of the run: everything that asks an endpoint works without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from palaestra.errors import Fault, UserError
from palaestra.models.score import score_pairs
from palaestra.types import ChatRequest, Meter, Reply, Sampling, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class LocalModel:
    """Answers with the engine of the model `model`, as it is at the call. A schema is asked for by
    the prompt alone.
    """

    model: str = "policy"

    def open(self, ctx: Context | None = None) -> LocalClient:
        if ctx is None:
            raise UserError(
                f"the client of the model {self.model!r} needs a run's context; an Endpoint works "
                "without"
            )
        return LocalClient(ctx, self.model)


class LocalClient:
    """Equal requests give equal replies: the random stream is that of the request."""

    def __init__(self, ctx: Context, model: str):
        self.ctx, self.name, self.meter = ctx, model, Meter()

    async def chat(self, request: ChatRequest) -> Reply:
        self.meter.calls += 1
        engine = self.ctx.engine(self.name)
        pieces = engine.dialect.extend(request.messages, first=True, closed=False)
        prompt = tuple(i for p in pieces for i in p.ids)
        room = self.ctx.model(self.name).context
        if len(prompt) >= room:
            self.meter.count_fault("chat-refused")
            raise Fault(
                "chat-refused", f"{len(prompt)} tokens do not fit into the {room} of {self.name}"
            )
        if request.choices:
            return Reply(
                text="", prompt_tokens=len(prompt), choices=self._choices(prompt, request.choices)
            )
        sampling = Sampling(
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            stop=request.stop,
        )
        sample = await engine.generate(prompt, sampling, ("chat", request.digest(self.name)))
        finish = "length" if sample.finish == "length" else "stop"
        text = sample.text[: sample.cut]
        reply = Reply(
            text=text, finish=finish, prompt_tokens=len(prompt), reply_tokens=len(sample.ids)
        )
        self.meter.spend(reply)
        return reply

    def _choices(self, prompt: tuple[int, ...], choices: tuple[str, ...]) -> dict[str, float]:
        """log p of each word as the start of the reply, summed over its spellings: as it is, in
        lower case, capitalised.
        """
        dialect, model = self.ctx.engine(self.name).dialect, self.ctx.model(self.name)
        spelled = [
            {dialect.encode_text(s) for s in (c, c.lower(), c.capitalize())} for c in choices
        ]
        pairs = [(prompt, ids) for same in spelled for ids in sorted(same)]
        with self.ctx.phase("forward"):
            whole = [float(x.sum()) for x in score_pairs(model, pairs)]
        logp_of, at = {}, 0
        for word, same in zip(choices, spelled, strict=True):
            logp_of[word] = float(np.logaddexp.reduce(whole[at : at + len(same)]))
            at += len(same)
        self.meter.tokens += len(prompt)
        return logp_of
