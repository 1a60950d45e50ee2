"""What the looks at all models say together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import palaestra as pl

Looks = Mapping[str, Mapping[str, Any]]
Numbers = dict[str, float | pl.stats.Interval]
READ = ("segments", "answered", "ranked")
ITEMS = ("answered", "ranked")
OTHERS = ("sft", "both", "random")  # what DPO is compared with on the same items
NAMES = {
    "sft": "SFT",
    "both": "imitation of both replies",
    "random": "DPO with a random rejected reply",
}
WORDS = {"answered": "questions answered right", "ranked": "pairs ranked right"}
COMPARING = ("dpo", "frozen", "random")


def share(flags: Sequence[bool]) -> pl.stats.Interval:
    return pl.stats.proportion(sum(flags), len(flags))


def flagged(look: Mapping[str, Any]) -> dict[str, Sequence[bool]]:
    """What was read right or wrong, by the name of its measure."""
    named = {k: x for k, x in look.items() if k.startswith("probe_") or k in READ}
    return {k: x for k, x in named.items() if x}


def numbers_of(looks: Looks, attached: Looks) -> Numbers:
    """All numbers, as MEASURE_MODEL; of encoders on a fresh model as MEASURE_on_MODEL. The first one is
    what the comparison of replies put into the encoder: of the arm dpo, else of another one that
    compares; 0 without such an arm.
    """
    comparing = next((looks[n] for n in COMPARING if n in looks), {})
    numbers: Numbers = {"margin_by_encoder": float(np.mean(comparing.get("by_encoder", [0.0])))}
    numbers["encoder_moved"] = max(look["moved"] for look in looks.values())
    for name, look in looks.items():
        numbers[f"moved_{name}"] = look["moved"]
        numbers |= {f"{k}_{name}": share(flags) for k, flags in flagged(look).items()}
        numbers |= {f"answered_{k}_{name}": share(x) for k, x in by_kind(look).items()}
        numbers[f"margin_by_encoder_{name}"] = pl.stats.mean_interval(look["by_encoder"])
        numbers[f"nll_{name}"] = float(np.mean(look["nll"]))
        if local := located(look):
            numbers[f"localisation_{name}"] = pl.stats.mean_interval(local)
            numbers["localisation_by_chance"] = float(np.mean(look["area"]))
        if "background" in look:
            numbers["segments_by_background"] = look["background"]
    for name, look in attached.items():
        numbers[f"answered_on_{name}"] = share(look["answered"])
        numbers |= {f"answered_{k}_on_{name}": share(x) for k, x in by_kind(look).items()}
        numbers[f"ranked_on_{name}"] = share(look["ranked"])
        numbers[f"nll_on_{name}"] = float(np.mean(look["nll"]))
    return numbers | compared(looks)


def by_kind(look: Mapping[str, Any]) -> dict[str, list[bool]]:
    """Which greedy answers are right, by the kind of question; nothing where all are of one kind."""
    kinds = sorted(set(look["kinds"]))
    flags = list(zip(look["kinds"], look["answered"], strict=True))
    return {k: [x for kind, x in flags if kind == k] for k in kinds} if len(kinds) > 1 else {}


def compared(looks: Looks) -> Numbers:
    """DPO less each of OTHERS on the same items: SFT, which does not see the rejected replies; `both`,
    which imitates them; `random`, which should be worse where the comparison tells something.
    """
    numbers: Numbers = {}
    for name in OTHERS if "dpo" in looks else ():
        if name in looks:
            differences = less(looks[name], looks["dpo"])
            numbers |= {f"{k}_dpo_less_{name}": x for k, x in differences.items()}
    return numbers


def less(one: Mapping[str, Any], two: Mapping[str, Any]) -> Numbers:
    """The second look less the first one, item by item."""
    first, second = flagged(one), flagged(two)
    numbers: Numbers = {
        k: pl.stats.paired_share_difference(
            [float(x) for x in first[k]], [float(x) for x in second[k]]
        )
        for k in second
        if k in first and k != "segments"  # patches of one picture are no independent items
    }
    locals_ = (look.get("local") or () for look in (one, two))
    pairs = [(a, b) for a, b in zip(*locals_, strict=True) if a is not None and b is not None]
    if len(pairs) > 1:
        numbers["localisation"] = pl.stats.paired_difference(
            [a for a, _ in pairs], [b for _, b in pairs]
        )
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
    notes: Sequence[str] = (),
) -> pl.studies.StudyReport:
    numbers = numbers_of(looks, attached)
    held = len(next(iter(looks.values()))["ranked"])
    return pl.studies.StudyReport(
        study="pivot",
        question=question,
        findings=[*notes, *tell(numbers, looks, attached)],
        numbers=numbers,
        protocol={
            **protocol,
            "held out": f"{held} pairs, each also asked: answered is whether the greedy answer is the chosen reply but for "
            "case and white space; localisation is the share of |d -log p(chosen) / d feature| in the box",
            "arms": "; ".join(f"{n}: {meanings[n]}" for n in looks if n in meanings),
        },
        tables=[
            table(looks),
            *kind_table({**looks, **{f"on {n}": x for n, x in attached.items()}}),
            *([attached_table(attached)] if attached else []),
        ],
        items=[
            {
                "pair": i,
                "kind": kind,
                **{k: {n: look[k][i] for n, look in looks.items()} for k in ITEMS},
            }
            for i, kind in enumerate(next(iter(looks.values()))["kinds"])
        ],
    )


def tell(numbers: Numbers, looks: Looks, attached: Looks) -> list[str]:
    """The findings as sentences, the answer first."""
    lines = list[str]()
    for key, x in numbers.items():
        what, is_difference, other = key.rpartition("_dpo_less_")
        if is_difference and isinstance(x, pl.stats.Interval):
            what = WORDS.get(what, what.replace("probe_", "the probe of "))
            verb = "above" if x.low > 0 else "below" if x.high < 0 else "not told apart from"
            lines.append(
                f"DPO is {verb} {NAMES[other]} in {what}: {pl.studies.tell_interval(x, signed=True)}, one run of each."
            )
    listing = "; ".join(
        f"{n} {pl.studies.tell_interval(pl.stats.mean_interval(look['by_encoder']), share=False, signed=True)}"
        for n, look in looks.items()
    )
    lines.append(
        "How much of log p of the chosen less that of the rejected reply, in nats, is lost with the start's encoder in "
        f"place of the model's own: {listing}."
    )
    moved = "; ".join(f"{n} {100 * look['moved']:.2f}%" for n, look in looks.items())
    lines.append(f"How far the encoder's weights moved from the start: {moved}.")
    if attached:
        listing = "; ".join(
            f"{n} {pl.studies.tell_interval(share(look['ranked']))}" for n, look in attached.items()
        )
        lines.append(
            f"Held-out pairs ranked right by a fresh model around a frozen encoder of: {listing}."
        )
        listing = "; ".join(
            f"{n} {pl.studies.tell_interval(share(look['answered']))}"
            for n, look in attached.items()
        )
        lines.append(f"Held-out questions that it answers right: {listing}.")
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
        "answered: held-out questions whose greedy answer is the chosen reply; ranked: pairs whose chosen reply is "
        "likelier, which is what DPO and not SFT learns from; patches of one picture are not independent.",
    )


def kind_table(looks: Looks) -> list[pl.studies.StudyTable]:
    """Greedy answers by the kind of question, where there are several."""
    kinds = list(by_kind(next(iter(looks.values()))))
    if not kinds:
        return []
    rows = [
        [n, *(pl.studies.tell_interval(share(by_kind(look)[k])) for k in kinds)]
        for n, look in looks.items()
    ]
    title = "Questions answered right, by their kind"
    return [pl.studies.StudyTable(title, ["model", *kinds], rows)]


def attached_table(attached: Looks) -> pl.studies.StudyTable:
    """Encoders on the fresh model."""
    rows = [
        [
            n,
            *(pl.studies.tell_interval(share(look[k])) for k in ITEMS),
            f"{float(np.mean(look['nll'])):.3f}",
        ]
        for n, look in attached.items()
    ]
    return pl.studies.StudyTable(
        "A fresh model around the frozen encoder",
        ["encoder of", "answered", "ranked", "nats a token"],
        rows,
    )
