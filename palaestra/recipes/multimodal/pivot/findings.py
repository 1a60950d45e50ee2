"""What the looks at all models say together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import palaestra as pl

Looks = Mapping[str, Mapping[str, Any]]
Numbers = dict[str, float | pl.stats.Interval]


def share(flags: Sequence[bool]) -> pl.stats.Interval:
    return pl.stats.proportion(sum(flags), len(flags))


def flagged(look: Mapping[str, Any]) -> dict[str, Sequence[bool]]:
    """What was read right or wrong, by the name of its measure."""
    named = {k: x for k, x in look.items() if k.startswith("probe_") or k in ("segments", "ranked")}
    return {k: x for k, x in named.items() if x}


def numbers_of(looks: Looks, attached: Looks) -> Numbers:
    """All numbers, as MEASURE_MODEL; of encoders on a fresh model as MEASURE_on_MODEL."""
    numbers: Numbers = {"encoder_moved": max(look["moved"] for look in looks.values())}
    for name, look in looks.items():
        numbers[f"moved_{name}"] = look["moved"]
        numbers |= {f"{k}_{name}": share(flags) for k, flags in flagged(look).items()}
        numbers[f"nll_{name}"] = float(np.mean(look["nll"]))
        if local := located(look):
            numbers[f"localisation_{name}"] = pl.stats.mean_interval(local)
            numbers["localisation_by_chance"] = float(np.mean(look["area"]))
        if "background" in look:
            numbers["segments_by_background"] = look["background"]
    for name, look in attached.items():
        numbers[f"ranked_on_{name}"] = share(look["ranked"])
        numbers[f"nll_on_{name}"] = float(np.mean(look["nll"]))
    return numbers | compared(looks)


def compared(looks: Looks) -> Numbers:
    """DPO less SFT on the same pictures."""
    if not {"sft", "dpo"} <= looks.keys():
        return {}
    sft, dpo = (flagged(looks[n]) for n in ("sft", "dpo"))
    numbers: Numbers = {
        f"{k}_dpo_less_sft": pl.stats.paired_share_difference(
            [float(x) for x in sft[k]], [float(x) for x in dpo[k]]
        )
        for k in dpo
        if k in sft and k != "segments"  # patches of one picture are no independent items
    }
    one, two = (looks[n].get("local") or () for n in ("sft", "dpo"))
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a is not None and b is not None]
    if len(pairs) > 1:
        numbers["localisation_dpo_less_sft"] = pl.stats.paired_difference(*zip(*pairs, strict=True))
    return numbers


def located(look: Mapping[str, Any]) -> list[float]:
    """Shares of the gradient in the box, where there is a gradient."""
    return [x for x in look.get("local") or () if x is not None]


def report(
    question: str,
    looks: Looks,
    attached: Looks,
    meanings: Mapping[str, str],
    protocol: Mapping[str, str],
) -> pl.studies.StudyReport:
    numbers = numbers_of(looks, attached)
    held = len(next(iter(looks.values()))["ranked"])
    return pl.studies.StudyReport(
        study="pivot",
        question=question,
        findings=tell(numbers, looks, attached),
        numbers=numbers,
        protocol={
            **protocol,
            "held out": f"{held} pairs; localisation is the share of |d -log p(chosen) / d feature| in the box",
            "arms": "; ".join(f"{n}: {meanings[n]}" for n in looks if n in meanings),
        },
        tables=[table(looks), *([attached_table(attached)] if attached else [])],
        items=[
            {"pair": i, "kind": kind, "ranked": {n: look["ranked"][i] for n, look in looks.items()}}
            for i, kind in enumerate(next(iter(looks.values()))["kinds"])
        ],
    )


def tell(numbers: Numbers, looks: Looks, attached: Looks) -> list[str]:
    """The findings as sentences, the answer first."""
    lines = list[str]()
    for key, x in numbers.items():
        if key.endswith("_dpo_less_sft") and isinstance(x, pl.stats.Interval):
            what = key.removesuffix("_dpo_less_sft").replace("probe_", "the probe of ")
            verb = "above" if x.low > 0 else "below" if x.high < 0 else "not told apart from"
            lines.append(
                f"DPO is {verb} SFT in {what}: {pl.studies.tell_interval(x, signed=True)}, one run of each."
            )
    moved = "; ".join(f"{n} {100 * look['moved']:.2f}%" for n, look in looks.items())
    lines.append(f"How far the encoder's weights moved from the start: {moved}.")
    if attached:
        told = "; ".join(
            f"{n} {pl.studies.tell_interval(share(look['ranked']))}" for n, look in attached.items()
        )
        lines.append(
            f"Held-out pairs ranked right by a fresh model around a frozen encoder of: {told}."
        )
    if not any(k.startswith("probe_") for k in numbers):
        lines.append(
            "No trait was probed: rows have no column `traits` or too few classes in it, or all held-out pictures are "
            "among those of training."
        )
    if "localisation_by_chance" not in numbers:
        lines.append(
            "No gradient was located: rows have no `boxes` of what they ask for, pictures are cut into tiles, or all "
            "held-out pictures are among those of training."
        )
    return lines


def table(looks: Looks) -> pl.studies.StudyTable:
    """All measures of all arms."""
    names = list(dict.fromkeys(k for look in looks.values() for k in flagged(look)))
    rows: list[list[str]] = []
    for name, look in looks.items():
        cells = [pl.studies.tell_interval(share(look[k])) if look.get(k) else "" for k in names]
        local = f"{100 * float(np.mean(some)):.1f}%" if (some := located(look)) else ""
        rows.append(
            [
                name,
                f"{100 * look['moved']:.2f}%",
                *cells,
                local,
                f"{float(np.mean(look['nll'])):.3f}",
            ]
        )
    columns = ["model", "encoder moved", *(k.replace("_", " ") for k in names)]
    return pl.studies.StudyTable(
        "Encoders, frozen and probed",
        [*columns, "gradient in the box", "nats a token"],
        rows,
        "ranked: held-out pairs whose chosen reply is likelier; patches of one picture are not independent.",
    )


def attached_table(attached: Looks) -> pl.studies.StudyTable:
    """Encoders on the fresh model."""
    rows = [
        [n, pl.studies.tell_interval(share(look["ranked"])), f"{float(np.mean(look['nll'])):.3f}"]
        for n, look in attached.items()
    ]
    return pl.studies.StudyTable(
        "A fresh model around the frozen encoder", ["encoder of", "ranked", "nats a token"], rows
    )
