"""A two-table language model and a context around it: enough for `step` without transformers."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from palaestra.rollout.collect import rewards
from palaestra.rollout.tickets import InProcess
from palaestra.run.describe import describe
from palaestra.types import Episode, Reward, Row, Segment, Task, rng_of
from palaestra.update import backward

V = 6


class Table(torch.nn.Module):
    """Next-token logits = U[previous token] + sum of C[token] over the untrained context before the first trained token."""

    def __init__(self, seed: int):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.U = torch.nn.Parameter(0.5 * torch.randn(V, V, generator=g, dtype=torch.float64))
        self.C = torch.nn.Parameter(0.5 * torch.randn(V, V, generator=g, dtype=torch.float64))

    device = torch.device("cpu")
    packs, position_bytes = False, 1

    def trainable(self):
        return list(self.parameters())

    def logits(self, context, previous):
        return self.U[previous] + sum(self.C[t] for t in context)

    def outputs(self, batch, needs=("logp",)):
        ids, trained = batch["ids"], batch.mask.bool()
        before = (
            ~trained & (torch.cumsum(trained, 1) == 0) & (torch.arange(ids.shape[1])[None] < batch["length"][:, None])
        )
        context = (torch.nn.functional.one_hot(ids, V).double() * before[..., None]).sum(1)
        previous = torch.cat([ids[:, :1], ids[:, :-1]], 1)
        lp = torch.log_softmax(self.U[previous] + (context @ self.C)[:, None], -1)
        out = {
            "logp": lp.gather(-1, ids[..., None])[..., 0] * trained,
            "entropy": -(lp.exp() * lp).sum(-1) * trained,
            "vocab_mean_logp": lp.mean(-1) * trained,
            "vocab_logp": lp * trained[..., None],
        }
        return {n: out[n] for n in needs}


class FakeContext:
    """Stands in for `context.Context`: the parts of it that a step touches."""

    def __init__(self, seed: int = 0, models=None):
        self.seed, self.step_number, self.sampled = seed, 0, 0
        self.models = models or {"policy": Table(seed), "ref": Table(seed)}
        self.optimisers: dict = {}
        self.seconds: dict = {}
        self.carrier = InProcess()

    describe = staticmethod(describe)

    def record(self, seen, examples, kept):
        self.seen = seen

    def at(self, recipe, step, version=None):
        self.step_number = step
        return recipe

    def model(self, name):
        return self.models[name]

    def optimiser(self, name, learner):
        if name not in self.optimisers:
            self.optimisers[name] = torch.optim.SGD(self.models[name].parameters(), lr=learner.optimiser.lr)
        return self.optimisers[name]

    def moving(self, name):
        """Nothing is cached here."""

    def forward(self, name, needs):
        return lambda batch: self.models[name].outputs(batch, needs)

    def backward(self, name, objective, batch, budget):
        return backward(self.forward(name, objective.needs), objective, batch, budget)

    def learning(self, state, ready, seen):
        return nullcontext()

    def phase(self, name):
        return nullcontext()

    def measure(self, groups, needs, privileged=None):
        from palaestra.types import Example
        from palaestra.update import pack

        def one(row):
            with torch.no_grad():
                batch = pack([Example(row=row, columns={})])
                return {f"{m}_{q}": self.models[m].outputs(batch, (q,))[q][0].numpy() for m, q in needs}

        return [[[one(row) for row in e.rows] for e in g.episodes] for g in groups]

    def sample(self, task, key, hint=(), length=3):
        model, rng, ids, logp = self.models["policy"], rng_of(key), [], []
        prompt = task.meta["ids"]
        with torch.no_grad():
            for _ in range(length):
                lp = torch.log_softmax(model.logits((*prompt, *hint), (ids or [(*prompt, *hint)[-1]])[-1]), -1)
                ids.append(int(rng.choice(V, p=lp.exp().numpy())))
                logp.append(float(lp[ids[-1]]))
        self.sampled += length
        said = Segment(
            ids=tuple(ids), author="policy", policy="policy", trained=True, logp=tuple(logp), version=self.step_number
        )
        heard = [Segment(ids=prompt)] + ([Segment(ids=hint, author="guide", hidden=True)] if hint else [])
        reward = Reward(total=float(tuple(ids) == task.answer))
        return Episode(rows=(Row(segments=(*heard, said)),), reward=reward, status="finished")


def task(name, prompt, answer, hint=()):
    return Task(id=name, answer=answer, meta={"ids": prompt, "hint": hint})


def episode(prompt, ids, reward, **kw):
    """A finished episode with known behaviour log-probs (0)."""
    said = Segment(ids=tuple(ids), author="policy", policy="policy", trained=True, logp=(0.0,) * len(ids), version=0)
    return Episode(
        rows=(Row(segments=(Segment(ids=tuple(prompt)), said)),), reward=Reward(total=reward), status="finished", **kw
    )


__all__ = ["FakeContext", "Table", "V", "episode", "np", "rewards", "task"]
