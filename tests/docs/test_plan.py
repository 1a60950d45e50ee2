"""The commands of docs/plan.md run as they stand there; its tables and its picture are what they give."""

import re
import shlex
from pathlib import Path

import pytest
from palaestra.cli.main import main
from palaestra.markdown import table

pytest.importorskip("simpy")

from palaestra.planning import published
from palaestra.planning.age_rules import compare_age_rules
from palaestra.planning.extrapolate import ARMS, DeviceSpeeds, extrapolate, scale_table
from palaestra.planning.growth import growth_table, paper_series, simulated_series
from palaestra.planning.sizing import GPUS, Assumptions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "plan.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
COSTS, COMMANDS, TABLE = (next(code for kind, code in BLOCKS if kind == k) for k in ("json", "", "text"))


def test_the_table_and_the_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("costs.json").write_text(COSTS)
    assert main(shlex.split(COMMANDS.splitlines()[0])[1:]) == 0
    assert TABLE in capsys.readouterr().out
    assert Path("timeline.svg").read_text() == (DOCS / "timeline.svg").read_text()


def test_a_run_folder_as_a_source(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = shlex.split(COMMANDS.splitlines()[1])[1:]
    sizes = ["schedule.prompts=8", "collect.links.0.n=2", "--steps", "4", "--evaluate", "2"]
    assert main(["train", *sizes, "--out", command[command.index("--run") + 1]]) == 0
    assert main(command) == 0, capsys.readouterr().err


def test_the_age_rules():
    rows = [
        f"| {r.order} | {r.lag} | {r.seconds:.2f} | {r.slowest_tenth:.1%} | {r.cost_ratio:.2f} | {r.dropped:.1%} | {r.age_max} |"
        for r in compare_age_rules()
    ]
    assert "\n".join(rows) in PAGE


def test_many_devices():
    """All but the line of 1,024 devices, which takes a minute; AsyncFlow's order: barrier, streaming, lag 1."""
    speeds, sizes = DeviceSpeeds(), (64, 256)
    rows = extrapolate(sizes, speeds, arms=ARMS[:4])
    head, assumed = scale_table(rows, speeds).rstrip().split("\n\n")
    assert head in PAGE and assumed in PAGE
    for devices in sizes:
        by = {r.arm: r.tokens_per_second for r in rows if r.devices == devices}
        assert by["separate, barrier"] < by["streaming, lag 0"] < by["lag 1"]


def test_a_step_on_gpus(capsys):
    """The commands of the section, and what they print; the table of published numbers and of exponents."""
    commands = [x for x in PAGE.splitlines() if x.startswith("palaestra plan --")]
    shown = [code for kind, code in BLOCKS if kind == "text"][1:]
    outputs = list[str]()
    for command in commands:
        if "--model" in command or "--published" in command:
            assert main(shlex.split(command)[1:]) == 0
            outputs.append(capsys.readouterr().out)
    assert len(shown) == 3 and all(block in "".join(outputs) for block in shown)
    assert table(published.table(published.compare()), *published.HEAD) in PAGE
    assert all(f"- {line}\n" in PAGE for line in Assumptions().lines(GPUS["h100"]))


def test_the_exponents():
    rows = growth_table(paper_series() | simulated_series())
    assert "\n".join(f"| {' | '.join(row)} |" for row in rows) in PAGE
