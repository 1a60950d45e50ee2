"""Models on disk become one, weight by weight: what `palaestra merge` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from palaestra.errors import UserError
from palaestra.models.arithmetic import (
    HEAD,
    Average,
    Dare,
    LowRank,
    Merge,
    Relaxed,
    Slerp,
    TaskArithmetic,
    Ties,
    linear_barrier,
    relaxation,
    untie_head,
)
from palaestra.models.inside.activation import input_magnitudes
from palaestra.models.load import load
from palaestra.models.model import Model
from palaestra.models.score import Pair
from palaestra.models.stored import CommonWeights, StoredModel, check_rows, write_settings
from palaestra.models.weight_files import ShardWriter
from palaestra.run.texts import mean_loss, read_texts, spell_texts
from palaestra.schedule import check_bounds
from palaestra.store.checkpoint import make_folder, write_atomic

How = Literal["linear", "slerp", "task", "ties", "dare", "activation", "svd"]
Then = Literal["task", "ties"]
REPORT = "report.json"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the second model, at which the loss is measured
TEXTS = 256  # of the data, at most
NO_BARRIER = (
    "no texts were given, so the barrier between the two models is not measured: whether they lie in one "
    "basin is not known; give --data FILE"
)


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Numbers of a merge; each way to merge reads those in `USED`.

    Args:
        share: of the second model on the line or arc.
        scale: what the joined task vectors are multiplied by; None = 1 for TIES, else 0.7.
        removed: share of the smallest entries of a task vector that TIES leaves out.
        drop: probability with which DARE drops an entry.
        then: how thinned or relaxed task vectors are joined.
        rank: singular values of a matrix that are kept.
        omega: share of its change that the column of the largest input keeps.
        seed: of what DARE drops.
    """

    share: float = 0.5
    scale: float | None = None
    removed: float = 0.8
    drop: float = 0.3
    then: Then = "task"
    rank: int = 16
    omega: float = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        check_bounds("share", self.share, least=0, most=1)
        check_bounds("omega", self.omega, least=0, most=1)
        if self.then not in get_args(Then):
            raise UserError(f"then is {self.then!r}; it is {' or '.join(get_args(Then))}")


def scale_of(how: str, o: MergeOptions) -> float:
    """What joined task vectors are multiplied by."""
    if o.scale is not None:
        return o.scale
    return 1.0 if by_ties(how, o) else 0.7


def by_ties(how: str, o: MergeOptions) -> bool:
    """Whether task vectors are joined by TIES."""
    return how == "ties" or ("then" in USED[how] and o.then == "ties")


def joined(how: str, o: MergeOptions) -> TaskArithmetic | Ties:
    """How task vectors become one."""
    scale = scale_of(how, o)
    return Ties(o.removed, scale) if by_ties(how, o) else TaskArithmetic(scale)


WAYS: Mapping[str, Callable[[MergeOptions], Merge]] = {
    "linear": lambda o: Average((1 - o.share, o.share)),
    "slerp": lambda o: Slerp(o.share),
    "task": lambda o: joined("task", o),
    "ties": lambda o: joined("ties", o),
    "dare": lambda o: Dare(o.drop, joined("dare", o), o.seed),
    "svd": lambda o: LowRank(o.rank, scale_of("svd", o)),
    # its changes are relaxed by what the base's layers read
    "activation": lambda o: joined("activation", o),
}
USED: Mapping[str, tuple[str, ...]] = {
    "linear": ("share",),
    "slerp": ("share",),
    "task": ("scale",),
    "ties": ("removed", "scale"),
    "dare": ("drop", "then", "removed", "scale", "seed"),
    "svd": ("rank", "scale"),
    "activation": ("omega", "then", "removed", "scale"),
}
BETWEEN = ("linear", "slerp")  # need no base


@dataclass
class Distances:
    """Squared lengths and products of differences between weights, summed one weight at a time."""

    sums: dict[str, float] = field(default_factory=dict)

    def add(self, **vectors: torch.Tensor) -> None:
        for name, x in vectors.items():
            self._sum(name, float(x.square().sum()))
        if {"first", "second"} <= vectors.keys():
            self._sum("product", float((vectors["first"] * vectors["second"]).sum()))

    def _sum(self, name: str, x: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + x

    def length(self, name: str) -> float:
        return self.sums[name] ** 0.5

    @property
    def cosine(self) -> float | None:
        """Of the two task vectors; None where one of them is 0, or there is no base."""
        size = self.length("first") * self.length("second") if "product" in self.sums else 0.0
        return self.sums["product"] / size if size else None


def merge(
    first: str,
    second: str,
    base: str = "",
    *,
    how: How = "linear",
    out: str | Path,
    data: str = "",
    tokenizer: Literal["first", "second", "base"] = "first",
    device: str = "cpu",
    **options: Any,
) -> dict[str, Any]:
    """Writes the merge of two models into a folder that transformers loads, with a report.json.

    Weights are read, merged in float64 and written one at a time in the type of the base's file, or
    of the first model's; so a shard of 1 GB and a weight of each model are in memory, and one whole
    model while the data are read. A head that is tied in all models stays tied.

    Args:
        first, second, base: folders, built-in names or ids of the hub. The base is what both were
            fine-tuned from; "linear" and "slerp" have none.
        how: linear, slerp, task (arithmetic), ties, dare, svd, activation.
        out: a folder without a model.
        data: texts (`read_texts`). The loss on them is measured along the line between the two
            models, and of the merge; "activation" reads the size of the layers' inputs on them.
        tokenizer: whose tokenizer, chat template and end of turn the merge has.
        device: where models run that read the data.
        options: fields of `MergeOptions`.

    Returns:
        The report: `distance` from model to model in parameter space, `cosine` of the task vectors,
        `notes`, and with data `line`, `barrier` and `loss` in nats a token.

    Raises:
        UserError: for models of another architecture, shape or vocabulary, and for an option that
            the way to merge does not read.
    """
    chosen = check_arguments(how, base, data, options, tokenizer)
    folder = check_folder(out)
    models = [StoredModel(first), StoredModel(second)]
    start = StoredModel(base) if base else models[0]
    common = CommonWeights(start, models)
    speaker = {"first": models[0], "second": models[1], "base": start}[tokenizer]
    way = WAYS[how](chosen)
    if how == "activation":
        way = Relaxed(way, column_scales(load(base, device=device), data, chosen.omega))
    distances = write_merge(common, way, speaker, folder)
    report: dict[str, Any] = {
        "with": how,
        "models": {"first": first, "second": second, **({"base": base} if base else {})},
        "options": effective(how, chosen),
        **describe_merge(common, speaker, distances, bool(base), measured=bool(data)),
        **(losses_on(data, models, folder, device) if data else {}),
    }
    write_atomic(folder / REPORT, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report


def describe_merge(
    common: CommonWeights,
    speaker: StoredModel,
    distances: Distances,
    has_base: bool,
    *,
    measured: bool,
) -> dict[str, Any]:
    """What a merge kept, how far it lies from its models, and what differs between these; a note
    where no barrier is `measured`.
    """
    notes = [*common.notes, *([] if measured else [NO_BARRIER])]
    if len({str(m.tokenizer.chat_template) for m in (common.base, *common.models)}) > 1:
        notes.append(f"the chat templates differ; the merge has that of {speaker.name}")
    return {
        "tokenizer": speaker.name,
        "tied_head": HEAD not in common.shapes,
        "distance": distance_report(distances, has_base),
        "cosine": distances.cosine,
        "special_tokens": sorted(common.special),
        "notes": notes,
    }


def check_arguments(
    how: str, base: str, data: str, options: Mapping[str, Any], tokenizer: str
) -> MergeOptions:
    """The options of a merge. Raises UserError for one that would change nothing."""
    if how not in WAYS:
        raise UserError(f"no way to merge is called {how!r}; there are {', '.join(WAYS)}")
    if how in BETWEEN and base:
        raise UserError(
            f"{how} lies between two models and reads no base; leave {base} out, or take task, ties, "
            "dare, svd or activation"
        )
    if how not in BETWEEN and not base:
        raise UserError(f"{how} adds what two models learned to their base: name the base third")
    if how == "activation" and not data:
        raise UserError("activation reads the base's activations on texts: give --data FILE")
    if tokenizer == "base" and not base:
        raise UserError("there is no base whose tokenizer could be kept; say first or second")
    if odd := sorted(set(options) - set(USED[how])):
        raise UserError(f"{how} does not read {odd[0]}; it reads {', '.join(USED[how])}")
    chosen = MergeOptions(**options)
    if "removed" in options and not by_ties(how, chosen):
        raise UserError("removed is read by TIES alone; say then=ties as well")
    return chosen


def effective(how: str, o: MergeOptions) -> dict[str, Any]:
    """The options that a merge reads, with their defaults."""
    values = {**asdict(o), "scale": scale_of(how, o)}
    return {k: values[k] for k in USED[how] if k != "removed" or by_ties(how, o)}


def check_folder(out: str | Path) -> Path:
    """A folder to write into, without a model."""
    folder = Path(out).expanduser()
    if (folder / "config.json").exists() or [*folder.glob("*.safetensors")]:
        raise UserError(f"{folder} holds a model already; name another folder")
    return make_folder(folder)


def write_merge(common: CommonWeights, how: Merge, speaker: StoredModel, folder: Path) -> Distances:
    """The merged weights with their settings, and how far they lie from what they were made of."""
    distances = Distances()
    check_rows(common, speaker)
    with ShardWriter(folder) as writer:
        for name, base, (first, second) in common:
            made = how({name: base}, [{name: first}, {name: second}])[name]
            writer.add(name, made)
            own, a, b, m = (x.double() for x in (base, first, second, made))
            distances.add(between=a - b, first=a - own, second=b - own)
            distances.add(merge=m - own, to_first=m - a, to_second=m - b)
    write_settings(common, speaker, folder)
    return distances


def distance_report(d: Distances, has_base: bool) -> dict[str, float]:
    """Euclidean lengths over all weights, in units of the weights."""
    report = {
        "first to second": d.length("between"),
        "merge to first": d.length("to_first"),
        "merge to second": d.length("to_second"),
    }
    if has_base:
        report |= {
            "base to first": d.length("first"),
            "base to second": d.length("second"),
            "base to merge": d.length("merge"),
        }
    return report


def column_scales(model: Model, data: str, omega: float) -> dict[str, torch.Tensor]:
    """By weight, what the change of each column is multiplied by."""
    pairs, _ = spell_texts(model, read_texts(data, TEXTS))
    inputs = input_magnitudes(model, [(*context, *target) for context, target in pairs])
    return {n: x.cpu() for n, x in relaxation(inputs, omega).items()}


def losses_on(
    data: str, models: Sequence[StoredModel], merged: Path, device: str
) -> dict[str, Any]:
    """The loss along the line between two models, how far it rises above the line between their own
    losses, and the merge's loss; all on the same ids, as the first model spells the texts.
    """
    model = load(models[0].name, device=device)
    pairs, cut = spell_texts(model, read_texts(data, TEXTS))
    line = line_losses(model, CommonWeights(models[0], models), pairs)
    del model
    loss = mean_loss(load(str(merged), device=device), pairs)
    return {
        "data": {"file": data, "texts": len(pairs), "cut": cut},
        "line": {f"{share:g}": x for share, x in zip(SHARES, line, strict=True)},
        "barrier": linear_barrier(SHARES, line),
        "loss": {"first": line[0], "second": line[-1], "merge": loss},
    }


@torch.no_grad()
def line_losses(model: Model, common: CommonWeights, pairs: Sequence[Pair]) -> list[float]:
    """The loss of the averages of two stored models at each of `SHARES`, in a model that is written
    over.
    """
    if common.untied:
        untie_head(model.causal)
    named, losses = dict(model.causal.named_parameters()), list[float]()
    for share in SHARES:
        way = Average((1 - share, share))
        for name, base, (first, second) in common:
            named[name].copy_(way({name: base}, [{name: first}, {name: second}])[name])
        losses.append(mean_loss(model, pairs))
    return losses
