"""Checkpoints and run folders of earlier versions load and go on; a class that moves is the class that it was."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from palaestra import catalogue, identity, values
from palaestra.api.run import Run
from palaestra.cli.main import main
from palaestra.ledger.digests import canonical, sha256
from palaestra.objective.policy import Clipped
from palaestra.store.codec import decode, encode
from palaestra.types import Group, Origin

OLDER = Path(__file__).parent / "fixtures" / "older_run"


@pytest.fixture
def older(tmp_path, monkeypatch):
    shutil.copytree(OLDER, tmp_path / "older")
    monkeypatch.chdir(tmp_path / "older")
    return tmp_path / "older"


def test_a_run_of_before_names_goes_on_as_it_did_then(older, capsys):
    """Its queue holds groups that were sampled, and its classes are stored with their modules."""
    assert '"palaestra.types:Group"' in (older / "run/checkpoints/step-2/state.json").read_text()
    assert main(["train", "--resume", "run", "--steps", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 4
    now, then = (load_file(older / p) for p in ("run/checkpoints/step-4/model.safetensors", "after-4.safetensors"))
    assert now.keys() == then.keys()
    assert all((now[k] - then[k]).abs().max() < 1e-6 for k in now)
    start = load_file(OLDER / "run/checkpoints/step-2/model.safetensors")
    assert any((now[k] - start[k]).abs().max() > 1e-5 for k in now), "nothing was learned, so nothing was shown"


def test_a_run_folder_of_before_opens(older):
    run = Run("run")
    assert run.summary["recipe"] == "ppo" and run.steps.num_rows == 2 and run.episodes().num_rows == 8


def test_stored_names_of_before_are_read_through_the_table():
    assert identity.find("palaestra.types:Origin") is Origin is identity.find("Origin")
    moved = identity.find("palaestra.recipes.objectives.rec:Balance")
    assert (
        moved.__name__ == "DropSurplus" and identity.find("palaestra.objective.residual:Balance").__name__ == "Balance"
    )
    assert identity.find("palaestra.os:path") is None and identity.find("Nothing") is None


@pytest.mark.parametrize("before", sorted(identity.table()))
def test_every_renamed_name_leads_to_something(before):
    now = identity.today(before)
    assert now in identity.places() or now[0].islower(), f"{before} is called {now}, which is nowhere"


def test_a_class_that_moves_changes_no_digest_and_no_checkpoint(monkeypatch):
    recipe = catalogue.recipe("grpo")
    here = values.digest(recipe), sha256(canonical(recipe))
    tree = encode(Origin(parent=1, turn=2))
    monkeypatch.setattr(Clipped, "__module__", "palaestra.elsewhere.losses")
    monkeypatch.setattr(sys.modules["palaestra"], "elsewhere", None, raising=False)
    monkeypatch.setitem(sys.modules, "palaestra.elsewhere.losses", type("M", (), {"Clipped": Clipped}))
    assert (values.digest(recipe), sha256(canonical(recipe))) == here
    assert values.digest(replace(recipe, references={"ref": "policy"})) != here[0], "the digest sees nothing at all"
    monkeypatch.setattr(Origin, "__module__", "palaestra.elsewhere.nouns")
    assert encode(Origin(parent=1, turn=2)) == tree and decode(*tree) == Origin(parent=1, turn=2)


def test_a_renamed_class_keeps_its_first_name(monkeypatch):
    """A row of `renamed.tsv` whose first column says no module: digests stay, and both names are read."""
    monkeypatch.setattr(identity, "table", lambda: {"Former": "Group"})
    monkeypatch.setattr(identity, "first_names", lambda: {"Group": "Former"})
    assert identity.name_of(Group) == "Former" and identity.find("Former") is Group
    assert decode(*encode(Group(task=None))).episodes == ()
