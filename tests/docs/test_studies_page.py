"""The commands of the page of studies, on a file of a user and with a study of theirs."""

import json
import shlex

import pytest
from palaestra.cli.main import main

from tests.docs.blocks import ROOT, commands, files

PAGE = ROOT / "docs" / "studies.md"
SMALL = ["problems=2", "samples=2"]


@pytest.mark.slow
def test_every_command_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"What is {a} + 3?", "answer": str(a + 3)} for a in range(4)]
    (tmp_path / "my_problems.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    for name, text in files(PAGE).items():
        (tmp_path / name).write_text(text)
    ran = commands(PAGE)
    for command in ran:
        words = shlex.split(command.replace("AFTER", "tiny").replace("BEFORE", "tiny-agent"))[1:]
        words += [] if "--list" in words else SMALL[:1] if "longest.py" in words else SMALL
        assert main(words) == 0, command
    told = capsys.readouterr().out
    assert len(ran) == 4 and "How long are answers after training?" in told
    assert len(list((tmp_path / "runs").glob("study-*/study.html"))) == 3
