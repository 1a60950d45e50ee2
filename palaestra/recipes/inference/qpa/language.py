"""The low-rank adapters of a language model as a circuit generates them."""

import json
from collections.abc import Generator as Yields
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

import palaestra as pl
from palaestra.recipes.inference.qpa.circuit import Generator

Pair = tuple[Sequence[int], Sequence[int]]
FOLDER, REPORT = "adapted", "report.json"
HELD = 64  # held-out answers whose loss is measured


class Adapters:
    """W + (alpha / rank) B A of the layers that LoRA adapts, with all A and B in one vector."""

    def __init__(self, module: nn.Module, rank: int, alpha: float, targets: tuple[str, ...]):
        names = pl.models.LoRA(rank=rank, targets=targets).layers(module)
        named: list[tuple[str, Any]] = list(module.named_modules())
        self.layers = [
            m for n, m in named if n.rpartition(".")[2] in names and hasattr(m, "weight")
        ]
        self.rank, self.scale = rank, alpha / rank

    def shape(self, layer: Any) -> tuple[int, int]:
        """Outputs and inputs of a layer, which keeps its weight either way round."""
        a, b = layer.weight.shape
        return (a, b) if isinstance(layer, nn.Linear) else (b, a)

    def start(self, seed: int) -> Tensor:
        """[m] A is drawn with variance 1 / inputs, B is 0, so nothing is changed."""
        draw, parts = torch.Generator().manual_seed(seed), list[Tensor]()
        for layer in self.layers:
            outputs, inputs = self.shape(layer)
            parts.append(torch.randn(self.rank * inputs, generator=draw) / inputs**0.5)
            parts.append(torch.zeros(outputs * self.rank))
        return torch.cat(parts).to(self.layers[0].weight.device)

    def split(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """A [rank, inputs] and B [outputs, rank] of each layer."""
        sizes = [n * self.rank for layer in self.layers for n in reversed(self.shape(layer))]
        flat = vector.split(sizes)
        return [
            (a.reshape(self.rank, -1), b.reshape(-1, self.rank))
            for a, b in zip(flat[::2], flat[1::2], strict=True)
        ]

    @contextmanager
    def on(self, vector: Tensor) -> Yields[None]:
        """Inside, the layers add what the adapters say."""

        def hook(a: Tensor, b: Tensor) -> Any:
            def add(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
                low = linear(linear(given[0].to(a.dtype), a), b)
                return out + (self.scale * low).to(out.dtype)

            return add

        pairs = zip(self.layers, self.split(vector), strict=True)
        hooks = [layer.register_forward_hook(hook(*ab)) for layer, ab in pairs]
        try:
            yield
        finally:
            for each in hooks:
                each.remove()

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Adds the adapters to the layers' weights."""
        for layer, (a, b) in zip(self.layers, self.split(vector), strict=True):
            moved = self.scale * (b @ a)
            layer.weight += (moved if isinstance(layer, nn.Linear) else moved.T).to(
                layer.weight.dtype
            )


def answer_loss(model: Any, pairs: Sequence[Pair]) -> Tensor:
    """Mean of -log p over the tokens of the answers, in nats, with gradients."""
    length = max(len(c) + len(t) for c, t in pairs)
    ids = torch.zeros(len(pairs), length, dtype=torch.long)
    trained = torch.zeros(len(pairs), length, dtype=torch.bool)
    for i, (context, target) in enumerate(pairs):
        both = [*context, *target]
        ids[i, : len(both)] = torch.tensor(both)
        trained[i, len(context) : len(both)] = True
    ids, trained = ids.to(model.device), trained.to(model.device)
    hidden_BTD = model.hidden(ids)  # what stands behind an answer is not seen by it
    logits_NV = model.logits(hidden_BTD[:, :-1][trained[:, 1:]])
    return cross_entropy(logits_NV.float(), ids[trained])


@pl.stage
class CircuitAdapters:
    """A program: imitates the data's answers with adapters that a circuit generates.

    Its artifact "policy" is the model with the adapters in its weights, beside it report.json.
    """

    generator: Generator = Generator()
    rank: int = 4
    alpha: float = 8.0
    targets: tuple[str, ...] = ()
    steps: int = 100
    batch: int = 16
    tasks: int = 64  # held-out problems of the exam

    async def run(self, ctx: pl.Context) -> pl.Result:
        model: Any = ctx.model("policy")
        if model.adapted:
            raise pl.UserError("qpa makes adapters of its own: train without --lora")
        adapters = Adapters(model.causal, self.rank, self.alpha, self.targets)
        start = adapters.start(pl.seed_of((ctx.seed, "qpa")) % (1 << 31))
        fit = self.generator.begin(start, (ctx.seed, "qpa"))
        fit.weights.to(model.device)
        held = self._pairs(ctx, "test", range(HELD))
        exam = await self._exam(ctx)
        loss = pl.run.mean_loss(model, held)
        steps = min(self.steps, int(ctx.budget.get("steps") or self.steps))
        fit.announce(ctx)
        learns = [p for p in model.module.parameters() if p.requires_grad]
        model.module.requires_grad_(False)
        try:
            for step in range(steps):
                pairs = self._pairs(ctx, "train", range(step * self.batch, (step + 1) * self.batch))
                with adapters.on(fit.weights()):
                    batch_loss = answer_loss(model, pairs)
                ctx.log(fit.step(batch_loss))
        finally:
            for p in learns:
                p.requires_grad_(True)
        ctx.moving("policy")
        adapters.write(fit.weights())
        metrics: dict[str, Any] = {
            **fit.counts(),
            "loss_before": loss,
            "loss_after": pl.run.mean_loss(model, held),
        }
        ctx.say(
            f"held-out loss {loss:.4g} before, {metrics['loss_after']:.4g} after, in nats a token"
        )
        if exam:
            metrics |= pl.ends.at_ends(exam, await self._exam(ctx))
        artifacts = self._save(ctx, model, metrics, fit.angles)
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens}, artifacts=artifacts
        )

    def _pairs(self, ctx: pl.Context, split: str, numbers: range) -> list[Pair]:
        """Ids of questions and answers; training ones come again when a file is over, and held-out
        ones are those that there are.
        """
        tasks = ctx.bench.tasks
        if split == "test":
            places = list(pl.run.chosen_tasks(ctx.bench, len(numbers)))
        else:
            size = len(pl.run.chosen_tasks(ctx.bench, max(numbers) + 1, "train"))
            places = [i % size for i in numbers]
        texts = list[pl.run.WrittenText]()
        for i in places:
            task = tasks.task(split, i)
            rng = pl.rng_of((ctx.seed, "qpa", split, i))
            texts.append(
                pl.run.WrittenText(pl.rollout.written_answer(tasks, task, rng, "work"), task.prompt)
            )
        return pl.run.spell_texts(ctx.model("policy"), texts)[0]

    async def _exam(self, ctx: pl.Context) -> dict[str, Any]:
        """How good greedy answers are; {} where nothing judges them."""
        given = ctx.bench.tasks
        if not self.tasks or (isinstance(given, pl.abilities.Answers) and not given.has_answers):
            return {}
        groups = await pl.run.attempt_tasks(ctx, self.tasks, pl.Sample(n=1, temperature=0.0))
        return pl.run.judge_held_out(groups).json()

    def _save(
        self, ctx: pl.Context, model: Any, metrics: dict[str, Any], angles: list[Tensor]
    ) -> dict[str, str]:
        if ctx.out is None:
            return {}
        folder = ctx.folder / FOLDER
        pl.models.save(model, folder)
        report = {**metrics, "angles": [a.tolist() for a in angles]}
        (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        return {"policy": str(folder)}
