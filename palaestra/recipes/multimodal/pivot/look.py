"""A model looked at: its encoder detached, frozen and probed, and what it makes of pairs."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.multimodal.pivot.arms import SaysChosen, chosen_of, rejected_of

RIDGES = (0.001, 0.01, 0.1, 1.0)  # of a probe, chosen for each model alike
FOLD = 5  # every so many of the fitted pictures choose the ridge
PATCHES = 16  # of a picture that the segmentation probe is fitted to, at most
AHEAD = 4096  # held-out items that are looked through for those with new pictures
DRAWN = 8  # items whose gradient is drawn
COVERED = 0.25  # of a patch that a box has to cover, else it is background
BACKGROUND = "background"
Box = Sequence[float]


@dataclass(frozen=True)
class SeenItem:
    """A picture with what is known of it."""

    task: pl.Task
    picture: pl.Picture

    @property
    def traits(self) -> dict[str, str]:
        """Classes by what they say; a text alone is called "label"."""
        given = self.task.meta.get("traits") or {}
        named = given if isinstance(given, Mapping) else {"label": given}
        return {str(k): str(x) for k, x in named.items()}

    @property
    def boxes(self) -> dict[str, Box]:
        """Of things in the picture by name. Raises UserError for what is no box."""
        given = self.task.meta.get("boxes") or {}
        height, width, _ = self.picture.shape
        boxes: dict[str, Box] = {}
        for name, box in given.items() if isinstance(given, Mapping) else [("", given)]:
            numbers = isinstance(box, list | tuple) and len(box) == 4
            if not numbers or not all(isinstance(x, int | float) for x in box):
                raise pl.UserError(
                    f"task {self.task.id!r}: boxes are {{name: [left, top, right, bottom]}} in pixels, not "
                    f"{name!r}: {box!r}"
                )
            left, top, right, bottom = box
            if not (0 <= left <= right < width and 0 <= top <= bottom < height):
                raise pl.UserError(
                    f"task {self.task.id!r}: the box {list(box)} of {name!r} is not inside of its picture "
                    f"of {width} x {height} pixels"
                )
            boxes[str(name)] = box
        return boxes

    @property
    def target(self) -> list[Box]:
        """The boxes of what the question is about; the one box where there is one; else none."""
        boxes, about = self.boxes, self.task.meta.get("about")
        if about is None:
            return list(boxes.values()) if len(boxes) == 1 else []
        names = [about] if isinstance(about, str) else list(about)
        if missing := [n for n in names if n not in boxes]:
            raise pl.UserError(
                f"task {self.task.id!r} is about {missing[0]!r}, which has no box; boxes has "
                f"{', '.join(boxes) or 'nothing'}"
            )
        return [boxes[n] for n in names]


def cover(boxes: Sequence[Box], shape: tuple[int, int, int], grid: tuple[int, int]) -> np.ndarray:
    """[rows * columns] the share of each patch that lies in one of the boxes, borders included."""
    height, width, _ = shape
    inside = np.zeros((height, width))
    for left, top, right, bottom in boxes:
        inside[round(top) : round(bottom) + 1, round(left) : round(right) + 1] = 1.0
    at = [np.linspace(0, n, g + 1) for n, g in zip((height, width), grid, strict=True)]
    # the integral of `inside` up to each border of patches, linear between pixels
    whole = np.pad(inside.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    rows = np.array([np.interp(at[0], np.arange(height + 1), c) for c in whole.T])
    both = np.array([np.interp(at[1], np.arange(width + 1), c) for c in rows.T])
    area = np.diff(np.diff(both, axis=0), axis=1)
    return (area / (height * width / (grid[0] * grid[1]))).flatten()


def localisation(
    gradient_P: np.ndarray, boxes: Sequence[Box], shape: tuple[int, int, int], grid: tuple[int, int]
) -> float:
    """The share of the gradient's mass that lies in the boxes; a patch that they cut counts by its area."""
    return float(gradient_P @ cover(boxes, shape, grid) / gradient_P.sum())


def segments(item: SeenItem, grid: tuple[int, int]) -> list[str]:
    """Of each patch the thing whose box covers most of it, row by row."""
    shares = {n: cover([b], item.picture.shape, grid) for n, b in item.boxes.items()}
    names = list(shares)
    most = np.array([shares[n] for n in names])
    return [
        names[int(most[:, p].argmax())] if most[:, p].max() >= COVERED else BACKGROUND
        for p in range(most.shape[1])
    ]


def probe_right(
    fitted_ND: np.ndarray,
    labels: Sequence[str],
    held_ND: np.ndarray,
    held: Sequence[str],
) -> list[bool]:
    """Whether a linear probe reads each held-out label. Its ridge is chosen among RIDGES on a part of
    the fitted states, then it is fitted to all of them.
    """
    if len(set(labels)) < 2:
        return []
    out = [i for i in range(len(labels)) if i % FOLD == FOLD - 1]
    fit = [i for i in range(len(labels)) if i % FOLD != FOLD - 1]
    ridge = RIDGES[0]
    own = [labels[i] for i in fit]
    if len(set(own)) > 1 and out:
        score = lambda r: pl.models.fit_probe(fitted_ND[fit], own, r).accuracy(
            fitted_ND[out], [labels[i] for i in out]
        )
        ridge = max(RIDGES, key=score)
    probe = pl.models.fit_probe(fitted_ND, labels, ridge)
    return [a == b for a, b in zip(probe.predict(held_ND), held, strict=True)]


@dataclass(frozen=True)
class PictureStates:
    """What an encoder gives for items: means over patches [N, E], and of each picture its patches
    [P, E] and their grid.
    """

    mean_NE: np.ndarray
    patches: list[np.ndarray]
    grids: list[tuple[int, int] | None]

    @classmethod
    def of(cls, model: Any, items: Sequence[SeenItem], kept: bool) -> "PictureStates":
        """`kept`: patches are kept, a part of them where a picture has many."""
        means, patches, grids = list[np.ndarray](), list[np.ndarray](), list[Any]()
        for item in items:
            (states_PE,) = pl.models.picture_states(model, [item.picture])
            means.append(states_PE.mean(0))
            grids.append(pl.models.patch_grid(model, item.picture, len(states_PE)))
            patches.append(
                states_PE[chosen_patches(item, len(states_PE))] if kept else states_PE[:0]
            )
        return cls(np.array(means), patches, grids)


def chosen_patches(item: SeenItem, patches: int) -> np.ndarray:
    """The numbers of the patches of a picture that are probed: the same for every model."""
    if patches <= PATCHES:
        return np.arange(patches)
    rng = pl.rng_of(("patches", item.picture.digest))
    return np.sort(rng.choice(patches, PATCHES, replace=False))


@pl.stage
class Look:
    """A program: what a model's encoder holds and what the model makes of held-out pairs.

    Metrics: `moved`, |w - w_start| / |w_start| of the encoder against the model "start"; `answered`, of
    each held-out pair whether the greedy answer of the model is the chosen reply; `ranked`, whether
    that is likelier than the rejected one, and `nll`, -log p of it in nats a token; `by_encoder`, log p
    of the chosen less the rejected reply, less the same with the encoder of "start" in place of the
    model's own, in nats; `probe_TRAIT`, whether a linear probe of the mean feature reads each held-out trait;
    `segments`, whether one of single features reads what a patch shows; `local`, the share of the
    gradient in the box of what is asked for, with `area`, the share of the picture that it is; `drawn`,
    of the first DRAWN of these the gradient of each patch, to be drawn.

    Args:
        fitted: training pictures that probes are fitted to.
        held: held-out items that are measured.
        numbers: which these are; () = the first ones.
        maps: of these, those whose gradient is taken.
        probed: False leaves the encoder unprobed.
        control: what is taken away of the prompts of pairs.
    """

    fitted: int = 256
    held: int = 128
    numbers: tuple[int, ...] = ()
    maps: int = 48
    probed: bool = True
    control: Any = pl.tasks.MediaControl()
    splits_by_picture: ClassVar[bool] = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        model = ctx.model("policy")
        numbers = self.numbers or tuple(pl.run.chosen_tasks(ctx.bench, self.held))
        source = self.control.tasks(ctx.bench.tasks)
        tasks = [source.task("test", i) for i in numbers]
        groups = [recorded_pair(ctx, t) for t in tasks]
        sums = reply_sums(ctx, groups)
        lengths = [int(g.episodes[0].rows[0].view().trained_T.sum()) for g in groups]
        metrics: dict[str, Any] = {
            "answered": await greedy_right(ctx, tasks),
            "ranked": [c > r for c, r in sums],
            "nll": [-c / n for (c, _), n in zip(sums, lengths, strict=True)],
            "kinds": [t.domain for t in tasks],
        }
        if self.probed:
            start = ctx.model("start")
            weights = {n: p.detach() for n, p in pl.models.encoder_weights(start).items()}
            metrics["moved"] = pl.models.encoder_distance(model, weights)
            train = read_items(ctx, self.fitted, "train")
            fitted = {x.picture.digest for x in train}
            held = read_items(ctx, self.held, "test", numbers)
            test = [x for x in held if x.picture.digest not in fitted]
            metrics |= self._probes(model, train, test)
            metrics |= self._maps(ctx, model, test[: self.maps])
            with encoder_of(start, model):
                others = reply_sums(ctx, groups)
            pairs = zip(sums, others, strict=True)
            metrics["by_encoder"] = [(c - r) - (c0 - r0) for (c, r), (c0, r0) in pairs]
        return pl.Result(metrics=metrics)

    def _probes(
        self, model: Any, train: Sequence[SeenItem], test: Sequence[SeenItem]
    ) -> dict[str, Any]:
        if not train or not test:
            return {}
        boxed = any(i.boxes for i in train)
        fitted, held = (PictureStates.of(model, x, boxed) for x in (train, test))
        metrics: dict[str, Any] = {}
        for trait in sorted({t for i in train for t in i.traits}):
            own, other = ([i for i, x in enumerate(s) if trait in x.traits] for s in (train, test))
            labels = [train[i].traits[trait] for i in own]
            wanted = [test[i].traits[trait] for i in other]
            metrics[f"probe_{trait}"] = probe_right(
                fitted.mean_NE[own], labels, held.mean_NE[other], wanted
            )
        patches = [patch_rows(s, x) for s, x in ((fitted, train), (held, test))]
        if boxed and all(len(labels) for _, labels in patches):
            (fit_ME, labels), (held_ME, wanted) = patches
            metrics["segments"] = probe_right(fit_ME, labels, held_ME, wanted)
            metrics["background"] = float(np.mean([x == BACKGROUND for x in wanted]))
        return metrics

    def _maps(self, ctx: pl.Context, model: Any, items: Sequence[SeenItem]) -> dict[str, Any]:
        local, area, maps = list[float | None](), list[float](), list[dict[str, Any]]()
        for item in items:
            if not item.target:
                continue
            episode = pl.recorded_episode(
                ctx, "policy", item.task.prompt, chosen_of(item.task), 0.0, of=item.task.id
            )
            gradient_P = pl.models.picture_gradients(model, episode.rows[0])
            grid = pl.models.patch_grid(model, item.picture, len(gradient_P))
            if grid is None:
                continue
            shape, some = item.picture.shape, gradient_P.sum() > 0
            local.append(localisation(gradient_P, item.target, shape, grid) if some else None)
            area.append(float(cover(item.target, shape, (1, 1))[0]))
            if len(maps) < DRAWN:
                shares = [float(g) for g in gradient_P]
                maps.append({"task": item.task.id, "grid": list(grid), "gradient": shares})
        return {"local": local, "area": area, "drawn": maps} if local else {}


def patch_rows(states: PictureStates, items: Sequence[SeenItem]) -> tuple[np.ndarray, list[str]]:
    """[M, E] the kept patches of pictures with boxes and a grid, and what each shows."""
    rows, labels = list[np.ndarray](), list[str]()
    for item, patches_PE, grid in zip(items, states.patches, states.grids, strict=True):
        if grid is not None and item.boxes:
            named = segments(item, grid)
            rows.append(patches_PE)
            labels += [named[p] for p in chosen_patches(item, len(named))]
    return (np.concatenate(rows) if rows else np.zeros((0, 1))), labels


def recorded_pair(ctx: pl.Context, task: pl.Task) -> pl.Group:
    """The chosen and the rejected reply of a task, as if they were sampled."""
    of = f"task {task.id!r}: its recorded reply"
    answers = (chosen_of(task), rejected_of(task))
    episodes = [pl.recorded_episode(ctx, "policy", task.prompt, x, 0.0, of=of) for x in answers]
    return pl.Group(task=task, episodes=tuple(episodes))


def reply_sums(ctx: pl.Context, groups: Sequence[pl.Group]) -> list[list[float]]:
    """log p of each reply of each group, in nats."""
    signals = ctx.measure(list(groups), (("policy", "logp"),))
    return [[float(e[0]["policy_logp"].sum()) for e in g] for g in signals]


async def greedy_right(ctx: pl.Context, tasks: Sequence[pl.Task]) -> list[bool]:
    """Whether the greedy answer to each task is its chosen reply; one that could not be made is not."""
    sample, judge = pl.Sample(n=1, temperature=0.0), SaysChosen()
    one = lambda i, task: sample(ctx, (ctx.seed, "answers", i), pl.Group(task=task))
    groups = await asyncio.gather(*(one(i, task) for i, task in enumerate(tasks)))
    return [
        any(bool(judge.judge(pl.response_text(e), g.task).solved) for e in g.valid) for g in groups
    ]


@contextmanager
def encoder_of(source: Any, target: Any) -> Generator[None]:
    """Inside, a model has the encoder of another one; behind, its own again."""
    own = {n: p.detach().clone() for n, p in pl.models.encoder_weights(target).items()}
    pl.models.put_encoder(source, target)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, p in pl.models.encoder_weights(target).items():
                p.copy_(own[name])


def unseen_numbers(ctx: pl.Context, most: int) -> dict[str, Any]:
    """The `numbers` of up to `most` held-out items none of whose pictures is one of training, and how
    many items were `dropped` for one that is. Endless sources keep their splits apart themselves.

    Raises UserError where none is left, or where one has no pair of replies.
    """
    tasks = ctx.bench.tasks
    digests = lambda task: {m.digest for m in pl.tasks.media_of(task)}
    trained = set[int]().union(*(digests(tasks.task("train", i)) for i in range(tasks.size or 0)))
    numbers, dropped = list[int](), 0
    for i in pl.run.chosen_tasks(ctx.bench, max(most, AHEAD)):
        task = tasks.task("test", i)
        if digests(task) & trained:
            dropped += 1
            continue
        chosen_of(task)
        rejected_of(task)
        numbers.append(i)
        if len(numbers) == most:
            break
    if not numbers:
        raise pl.UserError(
            f"each of the {dropped} held-out items shows a picture of training, so no encoder could be measured; leave "
            "the column `split` out, then pictures are kept apart, or give --test-data with other pictures"
        )
    return {"numbers": numbers, "dropped": dropped}


def read_items(
    ctx: pl.Context, most: int, split: str, numbers: Sequence[int] = ()
) -> list[SeenItem]:
    """Items with exactly one picture, each picture once; the first ones, or those of `numbers`."""
    items: dict[int, SeenItem] = {}
    first = 0 if split == "test" else pl.curriculum.first_number(ctx)
    for i in numbers or pl.run.chosen_tasks(ctx.bench, most, split):
        task = ctx.bench.tasks.task(split, first + i)
        media = pl.tasks.media_of(task)
        if len(media) == 1 and isinstance(media[0], pl.Picture):
            items.setdefault(media[0].digest, SeenItem(task, media[0]))
    return list(items.values())
