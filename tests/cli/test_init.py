"""`palaestra init`: every method's project can be read, and what it writes trains as it is."""

import json
import subprocess
import sys

import pytest
from palaestra import catalogue
from palaestra.api.project import write_project
from palaestra.cli.main import main
from palaestra.settings import reading
from palaestra.settings.fields import Settings

from tests.rows import every

BUILT = [e.id for e in catalogue.all_entries() if e.built]


@every("method", BUILT)
def test_every_method_has_a_project_whose_files_are_there(method, tmp_path):
    folder = tmp_path / method
    names = write_project(method, folder, {})
    settings = Settings(**reading.from_file(folder / "config.toml"))
    assert settings.recipe == method and {"config.toml", "README.md"} <= {*names}
    for place in (settings.data, settings.env.partition(":")[0], *(t.partition(":")[0] for t in settings.tools)):
        assert not place or place in names
    for line in (folder / "data.jsonl").read_text().splitlines() if settings.data else ():
        json.loads(line)


@pytest.mark.parametrize("method", ["grpo", "research", "spiral", "orpo"])
def test_what_is_written_trains_as_it_is(method, tmp_path, monkeypatch, capsys):
    main(["init", method, str(tmp_path / "new")])
    assert "palaestra train @config.toml" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "new")
    small = ["--steps", "1", "--evaluate", "0", "schedule.prompts=2", "--max-tokens", "16", "--out", "run"]
    assert main(["train", "@config.toml", *small]) == 0


def test_what_is_missing_is_said_by_the_run_and_stands_in_the_file(tmp_path, monkeypatch, capsys):
    main(["init", "kdrl", str(tmp_path / "new")])
    assert '# teacher = "DIR"  # required' in (tmp_path / "new" / "config.toml").read_text()
    monkeypatch.chdir(tmp_path / "new")
    assert main(["train", "@config.toml"]) == 2
    assert "teacher=DIR" in capsys.readouterr().err


def test_its_tests_hold_for_its_reward(tmp_path):
    write_project("grpo", tmp_path / "new", {})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reward.py"]
    assert subprocess.run(command, cwd=tmp_path / "new", capture_output=True).returncode == 0


def test_arguments_go_into_the_configuration(tmp_path):
    write_project("dpo", tmp_path / "new", {"pairs": "data"})
    assert reading.from_file(tmp_path / "new" / "config.toml")["set"] == {"pairs": "data"}
    row = json.loads((tmp_path / "new" / "data.jsonl").read_text().splitlines()[0])
    assert {"prompt", "chosen", "rejected"} <= row.keys()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    assert main(["init", "grpo", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err and [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    assert main(["init", "grpo", str(tmp_path / "new"), "colour=red"]) == 2
    assert "grpo has no argument 'colour'" in capsys.readouterr().err
