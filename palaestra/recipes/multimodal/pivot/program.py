"""The arms one after another from one start, each looked at; then encoders on a fresh language model."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

import palaestra as pl
from palaestra.recipes.multimodal.pivot.arms import ARMS
from palaestra.recipes.multimodal.pivot.findings import report
from palaestra.recipes.multimodal.pivot.look import Look, read_items, unseen_numbers
from palaestra.recipes.multimodal.pivot.maps import draw_maps

START = "start"
MAPS = "gradients.png"
NEW_EYES = (
    "the start sees no pictures, so it got new eyes, which are not trained: what is probed are first random features; "
    "take a vision-language model to learn of its encoder"
)


@pl.stage
class KeepStart:
    """A program that trains nothing: its artifact "policy" is the model that all arms start from, with
    eyes where it had none. Metric: `new_eyes`, 1 where it had none, which is said.
    """

    async def run(self, ctx: pl.Context) -> pl.Result:
        model = ctx.model("policy")
        new = model.eyes is None
        if new:
            ctx.say(f"{model.name}: {NEW_EYES}")
        model.add_eyes()
        folder = ctx.folder / "model"
        pl.models.save(model, folder)
        return pl.Result(metrics={"new_eyes": int(new)}, artifacts={"policy": str(folder)})


@pl.stage
class PutEncoder:
    """A program that trains nothing: its artifact "policy" is its own model with the encoder of the
    model "encoder"; projector and language part stay, and the projector is new where it saw nothing.
    """

    async def run(self, ctx: pl.Context) -> pl.Result:
        model = ctx.model("policy")
        model.add_eyes()
        pl.models.put_encoder(ctx.model("encoder"), model)
        folder = ctx.folder / "model"
        pl.models.save(model, folder)
        return pl.Result(artifacts={"policy": str(folder)})


@pl.stage
class Pivot:
    """The study; see the package.

    Args:
        arms: recipes by name.
        attach: whose encoders are put on the fresh model: "start" or names of arms.
        fresh: the fresh vision-language model; "" = the start, whose language part and projector have
            not been post-trained.
        stages: how that learns, one after another: recipes by name.
        files: what a stage learns from, by its name; the study's own rows where there is none.
        look: how a model is looked at.
    """

    arms: Mapping[str, pl.Recipe]
    attach: tuple[str, ...]
    fresh: str
    stages: Mapping[str, pl.Recipe]
    look: Look
    files: Mapping[str, str] = field(default_factory=dict)
    question: ClassVar[str] = "What does post-training do to the vision encoder?"

    def __post_init__(self) -> None:
        known = (START, *self.arms)
        if odd := [n for n in self.attach if n not in known]:
            raise pl.UserError(
                f"attach: {odd[0]!r} is no arm of this run; name some of {', '.join(known)}"
            )

    async def run(self, ctx: pl.Context) -> pl.Result:
        if missing := [f for f in self.files.values() if not Path(f).exists()]:
            raise pl.UserError(f"pivot: there is no file {missing[0]}")
        if ctx.out is None:
            raise pl.UserError("pivot keeps the models of its arms; give the run a folder")
        held = await ctx.once("held-out", lambda: unseen_numbers(ctx, self.look.held))
        if held["dropped"]:
            ctx.say(f"{held['dropped']} held-out items are left out: training shows their pictures")
        started = await ctx.once(START, KeepStart())
        folders = {START: started.artifacts["policy"]}
        for name, recipe in self.arms.items():
            result = await ctx.once(name, recipe, folders[START])
            folders[name] = result.artifacts["policy"]
        look = replace(self.look, numbers=tuple(held["numbers"]))
        looks = {
            n: (await ctx.once(f"look-{n}", look, folders[n], {START: folders[START]})).metrics
            for n in folders
        }
        attached = {n: await self._attach(ctx, n, folders, look) for n in self.attach}
        notes = [NEW_EYES[0].upper() + NEW_EYES[1:] + "."] if started.metrics["new_eyes"] else []
        protocol = self.protocol(held["dropped"])
        items = read_items(ctx, look.held, "test", look.numbers)
        if columns := draw_maps(items, looks, ctx.folder / MAPS):
            protocol["gradient maps"] = (
                f"{MAPS}, from left to right: {', '.join(columns)}; a patch is as bright as its |g| is large beside the "
                "largest of its picture, the box of what is asked for is white"
            )
        whole = report(self.question, looks, attached, ARMS, protocol, notes)
        pages = {"gradient maps": MAPS} if columns else {}
        return pl.studies.publish(ctx, replace(whole, pages=pages))

    def protocol(self, dropped: int) -> dict[str, str]:
        schedule = next(iter(self.arms.values())).schedule
        files = {f"stage {n}": f"learns from {file}" for n, file in self.files.items()}
        return {
            **files,
            "updates": f"{schedule.steps} of {schedule.prompts} items in each arm, the same items in the same order",
            "pictures": f"no measured item shows a picture of training; {dropped} are left out for that",
            "probes": f"linear, fitted to {self.look.fitted} training pictures; the ridge is chosen alike for each",
        }

    def _problem(self, stage: str) -> dict[str, str] | None:
        """The settings of a stage on a file of its own; None where it has none."""
        if stage not in self.files:
            return None
        return {"data": self.files[stage], "test_data": "", "columns": "", "reward": ""}

    async def _attach(
        self, ctx: pl.Context, name: str, folders: Mapping[str, str], look: Look
    ) -> Mapping[str, Any]:
        """The encoder of an arm on the fresh model, which then learns around it."""
        fresh = self.fresh or folders[START]
        made = await ctx.once(f"on-{name}", PutEncoder(), fresh, {"encoder": folders[name]})
        model = made.artifacts["policy"]
        for stage, recipe in self.stages.items():
            result = await ctx.once(f"{stage}-{name}", recipe, model, None, self._problem(stage))
            model = result.artifacts["policy"]
        plain = replace(look, probed=False)
        return (await ctx.once(f"look-on-{name}", plain, model)).metrics


def names_of(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    names = tuple(dict.fromkeys(x.strip() for x in text.split(",") if x.strip()))
    if odd := [n for n in names if n not in known]:
        raise pl.UserError(f"{what}: {odd[0]!r} is unknown; name some of {', '.join(known)}")
    return names
