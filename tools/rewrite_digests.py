"""Writes the digests of published results anew, from the same configurations: python -m
tools.rewrite_digests CHECKOUT

CHECKOUT is one of the commit before names or digests changed. A result is rewritten only where its
stored digest is that of the configuration there, and where that configuration, its names read
through `palaestra/renamed.tsv`, is today's to the letter. No cell is run. The digest of the code is
taken from the commit that measured the result; "" where the working tree had changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from palaestra.identity import current_name
from palaestra.ledger.digests import configuration, sha256
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.files import folder, read_result
from palaestra.ledger.results import settings
from palaestra.markdown import one_line_lists

THERE = """
import importlib, json, sys
from palaestra import catalogue
from palaestra.ledger import results
from palaestra.ledger.digests import configuration

def told(method, arm):
    experiment = results.experiment_of(method, catalogue.find(method).__name__)
    return [
        configuration(experiment.arms[arm], results.settings(experiment, t), experiment.tokens, experiment.samples)
        for t in experiment.tasks
    ]

print(json.dumps([told(*asked) for asked in json.load(sys.stdin)]))
"""
CODE = """
import ast, hashlib, json, sys
from palaestra import catalogue
from palaestra.ledger import digests, results
try:
    from palaestra.runtime import config as values
except ImportError:
    from palaestra import values
try:
    from palaestra.runtime.setup import bench_of
except ImportError:
    from palaestra.run.setup import bench_of

class Unimported(ast.NodeTransformer):
    def visit_Import(self, node): return None
    def visit_ImportFrom(self, node): return None

def source(module):
    path = digests._path(module)
    tree = ast.parse(path.read_text(encoding="utf-8")) if path else ast.Module(body=[], type_ignores=[])
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return hashlib.sha256(ast.dump(Unimported().visit(tree)).encode()).hexdigest()

def sha256(part):
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()

def code(runnable, settings):
    bench, players = bench_of(settings)
    parts = (runnable, bench.tasks, bench.world, bench.reward, *players.values())
    own = {digests._module(x) for p in parts for x in (p, *(v for _, v in values.walk(p)))}
    found = {m.removeprefix("palaestra.") for m in own if m.startswith("palaestra.")}
    return sha256(sorted(map(source, digests._reached(found | set(digests.ALWAYS)))))

def told(method, arm):
    experiment = results.experiment_of(method, catalogue.find(method).__name__)
    if arm not in experiment.arms:
        return ""
    return sha256([code(experiment.arms[arm], results.settings(experiment, t)) for t in experiment.tasks])

print(json.dumps([told(*asked) for asked in json.load(sys.stdin)]))
"""


def ask(program: str, checkout: Path, asked: list[tuple[str, str]]) -> list[Any]:
    """What a program says of (method, arm) with the package of another checkout."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        cwd=checkout,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def read_through(x: Any) -> Any:
    """A configuration of before with today's names."""
    if isinstance(x, dict):
        return {k: read_through(v) for k, v in x.items()}
    if isinstance(x, list):
        return [read_through(v) for v in x]
    return current_name(x) if isinstance(x, str) and x.startswith("palaestra.") and ":" in x else x


def measured_with(commit: str, asked: list[tuple[str, str]]) -> list[str]:
    """Digests of the code at a commit."""
    if commit.endswith("+"):
        return [""] * len(asked)
    with tempfile.TemporaryDirectory() as place:
        checkout = Path(place) / "checkout"
        subprocess.run(
            ["git", "worktree", "add", "--detach", "-f", str(checkout), commit],
            check=True,
            capture_output=True,
        )
        try:
            return ask(CODE, checkout, asked)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], check=True)


def main() -> None:
    before = Path(sys.argv[1]).resolve()
    results = {p.stem: read_result(p.stem) or {} for p in sorted(folder().glob("*.json"))}
    arms = [(m, a) for m, result in results.items() for a in result["arms"]]
    there = dict(zip(arms, ask(THERE, before, arms), strict=True))
    codes: dict[tuple[str, str], str] = {}
    for commit in sorted({r["commit"] for r in results.values()}):
        asked = [(m, a) for m, a in arms if results[m]["commit"] == commit]
        codes |= dict(zip(asked, measured_with(commit, asked), strict=True))
    for method, arm in arms:
        found, experiment = results[method]["arms"][arm], experiment_of(method)
        old = there[method, arm]
        new = [
            configuration(
                experiment.arms[arm], settings(experiment, t), experiment.tokens, experiment.samples
            )
            for t in experiment.tasks
        ]
        if sha256(old) != found["config_sha256"]:
            print(f"{method}, {arm}: the stored digest is not that of {before}; left as it is")
        elif read_through(old) != new:
            print(f"{method}, {arm}: the configuration has changed; left as it is")
        else:
            rest = {k: v for k, v in found.items() if k not in ("config_sha256", "code_sha256")}
            head = {k: rest.pop(k) for k in ("values", "interval", "by_task") if k in rest}
            digests = {"config_sha256": sha256(new), "code_sha256": codes[method, arm]}
            results[method]["arms"][arm] = {**head, **digests, **rest}
    for method, result in results.items():
        (folder() / f"{method}.json").write_text(one_line_lists(result))
    print(f"{len(arms)} arms of {len(results)} results")


if __name__ == "__main__":
    main()
