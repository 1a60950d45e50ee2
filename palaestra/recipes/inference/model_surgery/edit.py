"""The probe, the rows, the edit, and what each strength of it changes. D = the model's width."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl
from palaestra.recipes.inference.model_surgery.texts import GivesTexts, LabelledAnswers

Select = Literal["opposed", "aligned", "random"]
Rows = dict[str, list[int]]  # of weights, by name
Pair = tuple[Sequence[int], Sequence[int]]
GATE = "gate_proj.weight"
BOTH = "gate_up_proj.weight"  # gates above the rows that they open or shut, as in Phi 3 and GLM
READ = 100  # tokens of a text that the probe reads, as in the released code
HELD = 5  # every so many texts are held out
REPORT = "report.json"


def behaviour_direction(probe: pl.models.Probe) -> np.ndarray:
    """[D] of length 1: towards what the probe calls unwanted, True, from what it calls False."""
    sign = dict(zip(probe.classes, probe.weight_CD, strict=True))
    v_D = sign[True] - sign[False]
    if not (length := float(np.linalg.norm(v_D))):
        raise pl.UserError(
            "unwanted and fine texts have the same hidden states, so no direction tells them apart; "
            "give texts that differ"
        )
    return v_D / length


def gate_rows(module: nn.Module) -> dict[str, Tensor]:
    """The weights of all gate projections, [rows, D]; of one matrix for gates and what they gate, the
    upper half, so that numbers of rows are those of the whole. Raises UserError where there are none.
    """
    weights = pl.models.weights_of(module)
    gates = {
        n: w[: len(w) // 2] if n.endswith(BOTH) else w
        for n, w in weights.items()
        if n.endswith((GATE, BOTH))
    }
    if not gates:
        raise pl.UserError(
            f"no weight of the model ends with {GATE!r} or {BOTH!r}: rows of gated MLPs alone are edited; take "
            "a model such as Llama, Qwen or Mistral"
        )
    return gates


def choose_rows(
    gates: Mapping[str, Tensor], v_D: Tensor, n: int, select: Select = "opposed", seed: int = 0
) -> Rows:
    """The `n` rows of all weights with the smallest cosine to v: "opposed"; with the largest:
    "aligned"; or drawn: "random". Equal ones in the order of weights and rows.
    """
    v = v_D.double() / v_D.double().norm()
    cos = torch.cat(
        [(w.double() @ v) / w.double().norm(dim=1).clamp(min=1e-12) for w in gates.values()]
    )
    drawn = torch.from_numpy(pl.rng_of((seed, "rows")).random(len(cos)))
    order = {"opposed": cos, "aligned": -cos, "random": drawn}[select].argsort(stable=True)
    names = [(name, i) for name, w in gates.items() for i in range(len(w))]
    rows: Rows = {}
    for at in sorted(order[:n].tolist()):
        name, i = names[at]
        rows.setdefault(name, []).append(i)
    return rows


def mean_length(gates: Mapping[str, Tensor], rows: Rows) -> float:
    """Of the chosen rows, 0 where there are none."""
    lengths = [gates[n][i].double().norm() for n, chosen in rows.items() for i in chosen]
    return float(torch.stack(lengths).mean()) if lengths else 0.0


@dataclass
class Texts:
    """Texts of both sides as ids, and which of them are held out."""

    model: Any
    unwanted: list[Pair]
    fine: list[Pair]

    @property
    def labels(self) -> list[bool]:
        return [True] * len(self.unwanted) + [False] * len(self.fine)

    @property
    def held(self) -> list[bool]:
        """Of each text, unwanted ones first, whether no probe is fitted to it."""
        return [
            i % HELD == HELD - 1 for side in (self.unwanted, self.fine) for i in range(len(side))
        ]

    def held_out(self, side: list[Pair]) -> list[Pair]:
        return side[HELD - 1 :: HELD]

    def states(self) -> np.ndarray:
        """[texts, D], see `mean_states`."""
        return mean_states(self.model, [*self.unwanted, *self.fine])


def mean_states(model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """[pairs, D] mean of the last hidden states over the first `READ` tokens behind each context.

    The states of a context do not depend on what follows it, so theirs are taken off the sum.
    """
    last = len(model.layers)
    behind = [b[:READ] for _, b in pairs]
    whole, before = (
        pl.models.activations(model, rows, [last], at="mean")[:, 0]
        for rows in (
            [(*a, *b) for (a, _), b in zip(pairs, behind, strict=True)],
            [a for a, _ in pairs],
        )
    )
    a_N = np.array([len(a) for a, _ in pairs])[:, None]
    b_N = np.array([len(b) for b in behind])[:, None]
    return (whole * (a_N + b_N) - before * a_N) / b_N


@pl.stage
class Surgery:
    """A program: fits the probe, chooses rows, measures every strength and keeps one.

    Its artifact "policy" is the edited model, beside it report.json with the rows, the direction and
    what was measured. The metrics have `probe`, its accuracy on held-out texts, `strengths`, what
    each changes, `kept`, and the exam before and after. `moved` is by how many nats a token the kept
    edit changes how much less likely held-out unwanted texts are than fine ones, 0 where the model
    stays, and `moved_most` the largest such change of all strengths.
    """

    texts: GivesTexts = LabelledAnswers()
    rows: float = 0.0465
    strengths: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    select: Select = "opposed"
    cost: float = 0.05
    loss: float = 0.02
    n: int = 32  # continuations for each strength
    tokens: int = 32
    tasks: int = 64
    word: str = ""
    folder: str = "edited"

    def __post_init__(self) -> None:
        pl.check_bounds("Surgery.rows", self.rows, least=0, most=1)
        for x in self.strengths:
            pl.check_bounds("Surgery.strengths", x, least=0)
        if not self.strengths:
            raise pl.UserError("no strength is given; strengths=(0.5, 1.0), in lengths of a row")

    async def run(self, ctx: pl.Context) -> pl.Result:
        model = ctx.model("policy")
        texts = self._spell(ctx)
        states_ND, labels, held = texts.states(), texts.labels, texts.held
        fit = [i for i, h in enumerate(held) if not h]
        out = [i for i, h in enumerate(held) if h]
        probe = pl.models.fit_probe(states_ND[fit], [labels[i] for i in fit])
        accuracy = probe.accuracy(states_ND[out], [labels[i] for i in out])
        gates, v_D = gate_rows(model.causal), torch.from_numpy(behaviour_direction(probe))
        total = sum(len(w) for w in gates.values())
        edited = round(self.rows * total)
        rows = choose_rows(gates, v_D.to(model.device), edited, self.select, ctx.seed)
        step_D = v_D * mean_length(gates, rows)
        ctx.say(
            f"the probe tells {accuracy:.0%} of {len(out)} held-out texts; {edited} of {total} gate rows"
        )
        points = [
            await self._measure(ctx, texts, probe, rows, step_D, x) for x in (0.0, *self.strengths)
        ]
        kept = self.choose(points)
        metrics: dict[str, Any] = {
            "probe": accuracy,
            "edited_rows": edited,
            "strengths": points,
            "kept": kept["strength"],
            "moved": abs(kept["margin"] - points[0]["margin"]),
            "moved_most": max(abs(p["margin"] - points[0]["margin"]) for p in points),
            "unwanted_before": behaviour(points[0]),
            "unwanted_after": behaviour(kept),
            "perplexity_before": points[0]["perplexity"],
            "perplexity_after": kept["perplexity"],
        }
        ctx.log({k: x for k, x in metrics.items() if isinstance(x, int | float)})
        if "exam" in kept:
            metrics |= pl.ends.at_ends(points[0]["exam"], kept["exam"])
        if not kept["strength"]:
            ctx.say(
                "note: no strength has less of the behaviour at so little cost; the model is unchanged"
            )
        artifacts = self._save(ctx, metrics, rows, step_D)
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens}, artifacts=artifacts
        )

    def choose(self, points: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The point with the least of the behaviour among those that cost little; of equal ones the
        weakest. The first is the unedited model.
        """
        start = points[0]

        def is_cheap(p: Mapping[str, Any]) -> bool:
            dear = p["perplexity"] > start["perplexity"] * (1 + self.cost)
            return not dear and score(p) >= score(start) - self.loss

        return min((p for p in points if is_cheap(p)), key=lambda p: (behaviour(p), p["strength"]))

    def _spell(self, ctx: pl.Context) -> Texts:
        model = ctx.model("policy")
        sides = [pl.run.spell_texts(model, side) for side in self.texts(ctx)]
        if cut := sum(n for _, n in sides):
            ctx.say(f"note: {cut} texts are longer than the model's context and are cut")
        return Texts(model, sides[0][0], sides[1][0])

    async def _measure(
        self,
        ctx: pl.Context,
        texts: Texts,
        probe: pl.models.Probe,
        rows: Rows,
        step_D: Tensor,
        strength: float,
    ) -> dict[str, Any]:
        """What the model does with an edit, which is undone afterwards."""
        model = ctx.model("policy")
        ctx.moving("policy")
        undo = pl.models.add_to_rows(model.causal, rows, step_D, strength)
        try:
            unwanted, fine = (
                pl.run.mean_loss(model, texts.held_out(side))
                for side in (texts.unwanted, texts.fine)
            )
            continuations = await self._continue(ctx, texts)
            exam = await self._exam(ctx)
        finally:
            ctx.moving("policy")
            undo()
        called = probe.predict(mean_states(model, [pair for pair, _ in continuations]))
        point = {
            "strength": strength,
            "unwanted": float(np.mean([c is True for c in called])),
            "margin": unwanted - fine,
            "perplexity": math.exp(fine),
        }
        if self.word:
            point["word"] = float(np.mean([self.word in text for _, text in continuations]))
        return {**point, **({"exam": exam} if exam else {})}

    async def _continue(self, ctx: pl.Context, texts: Texts) -> list[tuple[Pair, str]]:
        """Continuations of the beginnings of held-out texts: of prompts, or of the first fifth of
        plain texts: the beginning and what follows, as ids, and the latter as text.
        """
        engine, model = ctx.engine("policy"), ctx.model("policy")
        sides = [texts.held_out(side) for side in (texts.unwanted, texts.fine)]
        pairs = [p for both in zip(*sides, strict=False) for p in both]
        sampling = pl.Sampling(max_tokens=self.tokens)

        async def one(i: int) -> tuple[Pair, str]:
            context, target = pairs[i % len(pairs)]
            begin = tuple(context) if len(context) > 1 else (*context, *target[: len(target) // 5])
            begin = begin[-max(1, min(READ, model.context) - self.tokens) :]
            completion = await engine.generate(begin, sampling, (ctx.seed, "continued", i))
            return (begin, completion.ids), completion.text

        return list(await asyncio.gather(*(one(i) for i in range(self.n))))

    async def _exam(self, ctx: pl.Context) -> dict[str, Any]:
        """How good greedy answers are; {} where nothing judges them."""
        given = ctx.bench.tasks
        if not self.tasks or (isinstance(given, pl.abilities.Answers) and not given.has_answers):
            return {}
        groups = await pl.run.attempt_tasks(ctx, self.tasks, pl.Sample(n=1, temperature=0.0))
        return pl.run.judge_held_out(groups).json()

    def _save(
        self, ctx: pl.Context, metrics: Mapping[str, Any], rows: Rows, step_D: Tensor
    ) -> dict[str, str]:
        """The edited model, with what takes the edit off again: the rows and what was added."""
        if ctx.out is None:
            return {}
        strength, folder = metrics["kept"], ctx.folder / self.folder
        undo = pl.models.add_to_rows(ctx.model("policy").causal, rows, step_D, strength)
        try:
            pl.models.save(ctx.model("policy"), folder)
        finally:
            undo()
        added = {"rows": rows, "added": (strength * step_D).tolist()}
        text = json.dumps({**metrics, "edit": added}, indent=2) + "\n"
        (folder / REPORT).write_text(text, encoding="utf-8")
        return {"policy": str(folder)}


def behaviour(point: Mapping[str, Any]) -> float:
    """The share of continuations with the word, where one is given; else of those that the probe
    calls unwanted.
    """
    return float(point.get("word", point["unwanted"]))


def score(point: Mapping[str, Any]) -> float:
    """Of the exam, 0 where there is none."""
    return float(point["exam"]["mean"]) if "exam" in point else 0.0
