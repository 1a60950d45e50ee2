"""Every recipe can be imported where no optional package is installed."""

import json
import subprocess
import sys

PROGRAM = """
import builtins, json, re, sys, tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

plain = lambda name: re.split(r"[\\s\\[;<>=!~(]", name)[0].lower().replace("_", "-")
needed, waiting = set(), tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
while waiting:
    if (name := plain(waiting.pop())) not in needed:
        needed.add(name)
        try:
            waiting += [r for r in requires(name) or () if "extra ==" not in r]
        except PackageNotFoundError:  # of another platform
            pass
found = packages_distributions()
optional = {m for m, names in found.items() if not needed & {plain(n) for n in names}} - {"palaestra", "examples"}
asked, load = {}, builtins.__import__

def watch(name, globals=None, locals=None, fromlist=(), level=0):
    importer = str((globals or {}).get("__name__"))
    if level == 0 and name.partition(".")[0] in optional and importer.startswith("palaestra."):
        asked.setdefault(name, importer)
    return load(name, globals, locals, fromlist, level)

builtins.__import__ = watch
from palaestra import catalogue

built = [e for e in catalogue.all_entries() if e.built]
for entry in built:
    catalogue.find(entry.id)
print(json.dumps({"optional": sorted(optional), "asked": asked, "built": len(built)}))
"""


def test_recipes_are_imported_without_optional_packages():
    made = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seen = json.loads(made.stdout.splitlines()[-1])
    assert seen["built"] > 200 and "pytest" in seen["optional"]
    assert not seen["asked"], f"imported with recipes: {seen['asked']}"
