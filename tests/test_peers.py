"""The night installs each library that tests compare with, as these tests are skipped where it is not."""

import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
PEERS = FLOW["jobs"]["peers"]["strategy"]["matrix"]["include"]
SKIPS = re.compile(r"importorskip\(\s*\"([\w.]+)\"")


def files(peer):
    return [w for w in shlex.split(peer["tests"]) if w.endswith(".py")]


def test_each_job_runs_files_that_skip_without_its_library():
    for peer in PEERS:
        asked = {m for f in files(peer) for m in SKIPS.findall((ROOT / f).read_text())}
        wanted = set(peer["modules"].replace(" ", "").split(","))
        assert wanted & asked and wanted <= asked | {"jsonschema"}, (peer["name"], asked)


def test_every_library_of_these_files_is_installed_by_some_job():
    installed = {m for peer in PEERS for m in peer["modules"].replace(" ", "").split(",")}
    for f in {f for peer in PEERS for f in files(peer)}:
        top = {m for m in SKIPS.findall((ROOT / f).read_text()) if not m.startswith("trl.")}
        assert top <= installed, (f, top - installed)


def test_the_page_names_each_of_them():
    page = (ROOT / "docs" / "beside.md").read_text().split("\n## Tested with the libraries themselves\n")[1]
    table = page.split("\n## ")[0]
    assert all(f"`{f}`" in table for peer in PEERS for f in files(peer))
