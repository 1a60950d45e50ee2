"""Tokenizers of equal rate, a prior over the tokens of each, reinforcement learning on the decoded picture, and what
a reward costs in nats."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

import palaestra as pl
from palaestra.recipes.multimodal.selftok.detector import Sized, colours_of
from palaestra.recipes.multimodal.selftok.findings import report
from palaestra.recipes.multimodal.selftok.tokenizer import (
    TokenizerSettings,
    VisualTokenizer,
    load_tokenizer,
)
from palaestra.recipes.multimodal.selftok.tokens import (
    DecodedPicture,
    decode_text,
    names_of_tokens,
    part_prompts,
    read_records,
    save_sized,
    write_rows,
)

TRAIN, RL, TEST = "train.jsonl", "rl.jsonl", "test.jsonl"
SHEET = 16  # pictures of a sheet
ZOOM = 8  # pixels of a cell there


@pl.stage
class MakeTokens:
    """A program: fits a tokenizer to the pictures of the data and gives the model a token for each code.

    Artifacts: "policy", the model; "visual", the folder of the tokenizer, which also holds the records
    as tokens. Metrics: `error`, the mean squared error of held-out pictures in [-1, 1], by the share of
    tokens that are seen; `cells`, the share of their cells with the right colour.
    """

    settings: TokenizerSettings
    pictures: int = 2048
    held: int = 128

    async def run(self, ctx: pl.Context) -> pl.Result:
        s = self.settings
        train = read_records(ctx, "train", self.pictures, s.grid)
        test = read_records(ctx, "test", self.held, s.grid)
        train, test, note = part_prompts(train, test)
        if note:
            ctx.say(note)
        paid = [[r for r in records if r.tests] for records in (train, test)]
        if not all(paid):
            raise pl.UserError(
                "no record of one split says what its picture must show; give records a column `shows`, such as "
                '[{"colour": "red", "count": 2}]'
            )
        pixels = np.stack([r.pixels for r in train])
        tokenizer = VisualTokenizer.fit(s, pixels, ("selftok", ctx.seed))
        folder = ctx.folder / "visual"
        tokenizer.save(folder)
        save_sized(folder, Sized.of(pixels))
        for name, records in ((TRAIN, train), (RL, paid[0]), (TEST, paid[1])):
            write_rows(folder / name, records, tokenizer)
        model = ctx.model("policy")
        pl.models.add_tokens(model, names_of_tokens(s.codes), ("selftok",))
        pl.models.save(model, ctx.folder / "model")
        metrics = reconstruction(tokenizer, np.stack([r.pixels for r in test]))
        return pl.Result(
            metrics=metrics,
            artifacts={"policy": str(ctx.folder / "model"), "visual": str(folder)},
        )


def reconstruction(tokenizer: VisualTokenizer, pixels: np.ndarray) -> dict[str, Any]:
    """How well pictures come back from all tokens, and from a half and a quarter of nested ones."""
    s = tokenizer.settings
    tokens = tokenizer.encode(pixels)

    def error(kept: int | None) -> float:
        gap = tokenizer.decode(tokens, kept).astype(float) - pixels
        return float(np.mean((gap / 127.5) ** 2))

    cells = colours_of(tokenizer.decode(tokens)) == colours_of(pixels)
    prefix = {
        f"error_{n}": error(n) for n in (s.tokens // 4, s.tokens // 2) if s.order == "nested" and n
    }
    return {"error": error(None), "cells": float(cells.mean()), **prefix}


@pl.stage
class PictureExam:
    """A program: `n` pictures that the model samples for each held-out prompt. Metrics, one number for
    each: `reward` (loose), `strict`, `whole`, see `DecodedPicture`; `prompt`, its number; `kl`,
    log p / p_prior of the reply in nats, 0 without a model "prior". A sheet of pictures is drawn.
    """

    folder: str
    prompts: int = 128
    n: int = 2

    async def run(self, ctx: pl.Context) -> pl.Result:
        tokens = load_tokenizer(self.folder).settings.tokens
        sample = pl.Sample(n=self.n, max_tokens=tokens + 4)
        numbers = pl.run.chosen_tasks(ctx.bench, self.prompts)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        one = lambda i, task: sample(ctx, ctx.key("exam", i), pl.Group(task=task))
        groups = await asyncio.gather(*(one(i, task) for i, task in enumerate(tasks)))
        rewards = DecodedPicture(self.folder)
        judged_episodes = [
            (e, rewards.judge(pl.response_text(e), g.task)) for g in groups for e in g.valid
        ]
        if not judged_episodes:
            raise pl.UserError("no picture of the exam could be sampled; look at the errors above")
        kl = self._kl(ctx, groups)
        self._draw(ctx, [pl.response_text(e) for e, _ in judged_episodes[:: self.n]])
        metrics: dict[str, Any] = {
            "reward": [r.parts["loose"] for _, r in judged_episodes],
            "prompt": [i for i, g in enumerate(groups) for _ in g.valid],
            "strict": [r.parts["strict"] for _, r in judged_episodes],
            "whole": [r.parts["whole"] for _, r in judged_episodes],
            "kl": kl,
            "sampled_tokens": ctx.sampled_tokens,
        }
        return pl.Result(metrics=metrics)

    def _kl(self, ctx: Any, groups: Sequence[pl.Group]) -> list[float]:
        if "prior" not in ctx.models:
            return []
        signals = ctx.measure(list(groups), (("policy", "logp"), ("prior", "logp")))
        return [
            float(sum((row["policy_logp"] - row["prior_logp"]).sum() for row in rows))
            for g, group in zip(signals, groups, strict=True)
            for rows, e in zip(g, group.episodes, strict=True)
            if e.ok
        ]

    def _draw(self, ctx: pl.Context, texts: Sequence[str]) -> None:
        if ctx.out is None:
            return
        tokenizer = load_tokenizer(self.folder)
        blank = np.full((tokenizer.settings.grid,) * 2 + (3,), 128, np.uint8)
        made = [decode_text(t, tokenizer) for t in texts[:SHEET]]
        row = [np.pad(blank if p is None else p, ((0, 0), (0, 1), (0, 0))) for p in made]
        sheet = np.concatenate(row, 1).repeat(ZOOM, 0).repeat(ZOOM, 1)
        Image.fromarray(sheet).save(ctx.folder / "pictures.png")


@pl.stage
class VisualRL:
    """The study; see the package.

    Args:
        tokenizers: by their order, all of equal rate.
        prior: imitation of the pictures' tokens.
        rl: reinforcement learning; its reward is filled in.
        pictures: training pictures.
        strict: whether the second program pays, for which specks and blobs are no things.
        exam: held-out prompts, of which `samples` pictures are sampled each.
    """

    tokenizers: Mapping[str, TokenizerSettings]
    prior: pl.Recipe
    rl: pl.Recipe
    pictures: int = 2048
    exam: int = 128
    strict: bool = False
    samples: int = 2
    question: ClassVar[str] = (
        "What does a reward on the decoded picture cost in nats, by the order of its tokens?"
    )

    async def run(self, ctx: pl.Context) -> pl.Result:
        if ctx.out is None:
            raise pl.UserError("selftok keeps tokenizers and models; give the run a folder")
        arms = {name: await self._arm(ctx, name, s) for name, s in self.tokenizers.items()}
        return pl.studies.publish(ctx, report(self.question, arms, self.strict))

    async def _arm(
        self, ctx: pl.Context, name: str, settings: TokenizerSettings
    ) -> dict[str, Mapping[str, Any]]:
        made = await ctx.once(f"tokens-{name}", MakeTokens(settings, self.pictures, self.exam))
        visual = Path(made.artifacts["visual"])
        on = lambda file: {
            "data": str(visual / file),
            "test_data": str(visual / TEST),
            "columns": "",
        }
        prior = await ctx.once(
            f"prior-{name}", self.prior, made.artifacts["policy"], None, on(TRAIN)
        )
        start = prior.artifacts["policy"]
        reward = DecodedPicture(str(visual), self.strict)
        rl = pl.override(self.rl, "collect.links.1.reward", reward)
        trained = (await ctx.once(f"rl-{name}", rl, start, None, on(RL))).artifacts["policy"]
        exam = PictureExam(str(visual), self.exam, self.samples)
        before = await ctx.once(f"exam-prior-{name}", exam, start, None, on(RL))
        after = await ctx.once(f"exam-rl-{name}", exam, trained, {"prior": start}, on(RL))
        return {"tokens": made.metrics, "before": before.metrics, "after": after.metrics}
