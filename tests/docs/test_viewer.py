"""docs/viewer.md: its commands run, and what it says of the page is there."""

import re
import shlex
from pathlib import Path

import pytest
from benchmarks.made_up import write_run
from palaestra.cli import view
from palaestra.cli.main import main
from palaestra.store.columns import ROW, SCHEMA

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "viewer.md").read_text()
COMMANDS = re.search(r"```\n(palaestra view.*?)```", PAGE, re.DOTALL)[1].splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    served = []
    monkeypatch.setattr(view, "serve", lambda arguments, runs, names: served.extend(names))
    argv = shlex.split(command)[1:]
    write_run(tmp_path / argv[1], 3, groups=2, samples=2, problems=4, tokens=8)
    assert main(argv) == 0, capsys.readouterr().err
    assert served == ([] if {"--text", "--export"} & set(argv) else ["grpo-chain-tiny-s0"])


def test_what_it_says_of_the_page_and_the_columns_is_there():
    code = "".join(p.read_text() for p in (ROOT / "palaestra/view/page").glob("*.js"))
    for name in ("problems", "signs", "judges", "time", "explain as", "compare with another", "episodes of"):
        assert f"**{name}**" in PAGE and name in code
    told = re.findall(r"^\| `([a-z_.]+)` \|", PAGE, re.MULTILINE)
    rows = {f"rows.{f.name}" for f in ROW}
    assert set(told) <= {*SCHEMA.names, *rows} and len(told) == 9
    assert all((ROOT / "docs" / f"viewer-{n}.png").is_file() for n in re.findall(r"\(viewer-(\w+)\.png\)", PAGE))
