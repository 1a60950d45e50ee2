"""`palaestra view RUN --export FILE.html`: the page and the answers to what it asks, in one file that
needs no server and asks nobody.

It holds the whole index, metrics, problems and signs, and of the groups those that tell most, up to
a size: of the first and the last step, then those whose rewards differ most.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from palaestra.view.answers import PageAnswers
from palaestra.view.reader import RunReader
from palaestra.view.server import digest, page_files

MEGABYTES = 8.0
OF_EACH_RUN = ("metrics", "signs", "judges", "settings", "verdict", "rise")


def export(runs: Sequence[RunReader], megabytes: float = MEGABYTES) -> tuple[str, int]:
    """The page, and how many groups it holds."""
    answers = PageAnswers(runs)
    held: dict[str, str] = {}

    def hold(address: str) -> int:
        body = answers.get([unquote(p) for p in address.split("/")[1:]], {})
        held[address] = base64.b64encode(gzip.compress(body.data, 6, mtime=0)).decode()
        return len(held[address])

    size = sum(map(hold, always(runs)))
    n = 0
    for address in groups_by_worth(runs):
        size += hold(address)
        if size > megabytes * 2**20:
            del held[address]
            break
        n += 1
    return page(held), n


def always(runs: Sequence[RunReader]) -> Iterator[str]:
    """Addresses whose answers every file has."""
    yield "api/runs"
    for i, run in enumerate(runs):
        yield from (f"api/run/{i}/{name}" for name in OF_EACH_RUN)
        tables = [f"api/run/{i}/table/{part_of_address(t)}" for t in run.tables]
        yield from (f"{table}/{what}" for table in tables for what in ("index", "problems"))
    pairs = ((i, j) for i in range(len(runs)) for j in range(len(runs)) if i != j)
    yield from (f"api/compare/{i}/{j}" for i, j in pairs)


def part_of_address(name: str) -> str:
    """As the page writes it (JavaScript's `encodeURIComponent`)."""
    return quote(name, safe="!'()*~")


def groups_by_worth(runs: Sequence[RunReader]) -> Iterator[str]:
    """Addresses of groups, those that tell most first, of all runs in turn."""
    for turn in zip_longest(*map(by_worth, runs)):
        for i, group in enumerate(turn):
            if group is not None:
                table = part_of_address(runs[i].main.name)
                yield f"api/run/{i}/table/{table}/group/{group[0]}/{group[1]}"


def by_worth(run: RunReader) -> list[tuple[int, int]]:
    """(step, group): of the ends of the run first, then by the spread of the rewards."""
    index = run.main.index
    if not index.num_rows:
        return []
    step_E, group_E = index["step"].to_numpy(), index["group"].to_numpy()
    reward_E = np.nan_to_num(index["reward"].to_numpy())
    keys, at_E = np.unique(np.stack([step_E, group_E]), axis=1, return_inverse=True)
    at_E = at_E.ravel()
    n = np.bincount(at_E)
    centre_E = reward_E - (np.bincount(at_E, reward_E) / n)[at_E]
    spread = np.bincount(at_E, centre_E**2) / n
    ends = np.isin(keys[0], (step_E.min(), step_E.max()))
    return [(int(keys[0, i]), int(keys[1, i])) for i in np.lexsort((-spread, ~ends))]


def page(held: dict[str, str]) -> str:
    """The page with everything inside. Scripts are those that the policy has the hash of; modules
    are data addresses, and answers no script at all.
    """
    read = lambda name: page_files()[name].data.decode("utf-8")
    module = lambda name: (
        "data:text/javascript;base64," + base64.b64encode(page_files()[name].data).decode()
    )
    modules = [n for n in page_files() if n.endswith(".js") and "/" not in n and n != "main.js"]
    imports = {f"palaestra/{n[:-3]}": module(n) for n in modules} | {
        "lit": module("vendor/lit-html.js")
    }
    scripts = {
        "importmap": json.dumps({"imports": imports}),
        "flechette": read("vendor/flechette.min.js"),
        "uplot": read("vendor/uPlot.iife.min.js"),
        "module": read("main.js"),
    }
    style = read("vendor/uPlot.min.css") + read("style.css")
    policy = (
        f"default-src 'none'; script-src {' '.join(map(digest, scripts.values()))} data:; "
        f"style-src {digest(style)}; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Palaestra</title>',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
            f"<style>{style}</style>",
            f'<script type="application/json" id="held">{json.dumps(held)}</script>',
            f'<script type="importmap">{scripts["importmap"]}</script>',
            f"<script>{scripts['flechette']}</script><script>{scripts['uplot']}</script>",
            f'</head><body><main id="page"></main><script type="module">{scripts["module"]}</script>',
            "</body></html>",
        ]
    )


def write(runs: Sequence[RunReader], out: Path, megabytes: float = MEGABYTES) -> int:
    """Writes the file; returns how many groups it holds."""
    from palaestra.store.checkpoint import write_atomic

    text, n = export(runs, megabytes)
    write_atomic(out, text)
    return n
