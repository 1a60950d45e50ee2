"""`palaestra list`: lists the methods of the catalogue with their status, filtered by family, status
and the axes of the taxonomy.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.ledger.axes import columns
from palaestra.ledger.listed import listed
from palaestra.plugins import Plugin, refused
from palaestra.suggest import suggestion_or_all


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = (
        catalogue.rows()
        if arguments.json and arguments.family not in (catalogue.BASE, catalogue.LOSSES)
        else catalogue.all_entries()
    )
    entries = [
        *(describe_entry(e) for e in rows),
        *(offered(p) for p, why in recipes().items() if not why),
    ]
    for name in ("family", "status"):
        wanted = getattr(arguments, name)
        known = sorted({e[name] for e in entries})
        if wanted and wanted not in known:
            raise UserError(f"no method has {name} {wanted!r}{suggestion_or_all(wanted, known)}")
        entries = [e for e in entries if not wanted or e[name] == wanted]
    if given := arguments.domain:
        if given not in (fields := catalogue.domains()):
            raise UserError(
                f"no methods are of the domain {given!r}{suggestion_or_all(given, fields)}"
            )
        entries = [e for e in entries if e["id"] in fields[given]]
    wanted = {name: getattr(arguments, name) for name in columns()}
    if any(wanted.values()):
        entries = on_axes(rows, entries, wanted)
    if not arguments.json:
        show(entries)
        print("".join(f"not used: {p}: {why}\n" for p, why in recipes().items() if why), end="")
    return entries


def on_axes(
    rows: list[catalogue.Entry], listed: list[dict[str, Any]], wanted: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The listed rows that have the wanted values, with all their placements. This builds every
    recipe; methods of other packages have no placement.
    """
    from palaestra.ledger.placements import as_record, choose

    by_id = {e["id"]: e for e in listed}
    return [by_id[r.id] | as_record(r) for r in choose((r for r in rows if r.id in by_id), wanted)]


def describe_entry(entry: catalogue.Entry) -> dict[str, Any]:
    if (status := listed(entry)) is None:  # a result that is newer than its pages
        from palaestra.ledger.standing import standing

        status = standing(entry)
    names = ("id", "family", "kind", "title", "shape")
    note = {"note": status.note} if status.note else {}
    return (
        {n: getattr(entry, n) for n in names}
        | {"status": status.status, "command": entry.command}
        | note
    )


def recipes() -> Mapping[Plugin, str]:
    """What other packages add to the methods, and why it is not used; "" = it is."""
    return refused("recipes", [e.id for e in catalogue.all_entries()])


def offered(plugin: Plugin) -> dict[str, Any]:
    """A method of another package, without its module, which a listing does not import."""
    return {
        "id": plugin.name,
        "family": catalogue.PLUGINS,
        "kind": "system",
        "title": plugin.summary or "no summary",
        "shape": "",
        "status": "built",
        "command": f"palaestra train {plugin.name}",
        "package": plugin.package,
    }


def show(entries: list[dict[str, Any]]) -> None:
    family = ""
    for e in entries:
        if e["family"] != family:
            family = e["family"]
            print(f"\n{family}")
        package = f"  [{e['package']}]" if "package" in e else ""
        print(f"  {e['id']:<26} {e['status']:<15} {e['title']}{package}")
    counts = Counter(e["status"] for e in entries)
    kinds = {catalogue.BASE: "base methods", catalogue.LOSSES: "losses by name"}
    counted = {of: sum(e["family"] == family for e in entries) for family, of in kinds.items()}
    named = " and ".join(f"{n} {of}" for of, n in counted.items() if 0 < n < len(entries))
    beside = f", of them {named}" if named else ""
    print(
        f"\n{len(entries)} methods{beside}: "
        + ", ".join(f"{n} {s}" for s, n in counts.most_common())
    )
