"""Checkpoints and run folders of earlier versions load and go on; a class that moves is the class that it was."""

import dataclasses
import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from palaestra import catalogue, identity, values
from palaestra.api.run import Run
from palaestra.cli.main import main
from palaestra.credit.links import Outcome
from palaestra.ledger.digests import canonical, sha256
from palaestra.objective.policy import Clipped
from palaestra.run.benches import bench_by_name
from palaestra.run.origin import changed_fields
from palaestra.store.codec import decode, encode
from palaestra.types import Group, Origin
from safetensors.torch import load_file

from tests.rows import every

PROBLEMS = {  # digests of the first 40 problems of both splits at commit 717f9a2
    "chain": "2f13a3c0fffcb6ea",
    "count": "7214528015dd4d1a",
    "rec": "15e1ee9f04ab9186",
    "add": "14095607487ed273",
    "bool": "34e0315a198692a2",
    "sort": "ebc43936efc0eac9",
    "knights": "62d6f6523e4a11df",
    "constraints": "cb533780a9f8424e",
    "unanswerable": "7e9998740b85698f",
    "variants": "53e5e5ecbe6e1a7e",
    "compare": "b58aa9bdb4b260be",
    "hop": "9dd15849e86a29af",
    "hop-noisy": "6c08704c997708a2",
    "grid": "a0c84b3089687da3",
    "grid-4": "fceecee886753063",
    "tictactoe": "1bfbde68b335606f",
    "compare-pairs": "369a69aa074bc162",
    "judge-pairs": "9c51779e41aad52d",
    "chain(operands=(2,3))": "183d4cf23e6bc627",
    "chain(modulo=9)*2+add": "7b2c0cd0a9c1cf29",
}
OLDER = Path(__file__).parents[1] / "fixtures" / "older_run"


@pytest.fixture
def older(tmp_path, monkeypatch):
    shutil.copytree(OLDER, tmp_path / "older")
    monkeypatch.chdir(tmp_path / "older")
    return tmp_path / "older"


def test_a_run_of_before_names_goes_on_as_it_did_then(older, capsys):
    """Its queue holds groups that were sampled, and its classes are stored with their modules."""
    assert '"palaestra.types:Group"' in (older / "run/checkpoints/step-2/state.json").read_text()
    start = load_file(older / "run/checkpoints/step-2/model.safetensors")
    assert main(["train", "--resume", "run", "--steps", "4", "--json", "--trust"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 4
    now, then = load_file(older / "run/checkpoints/step-4/model.safetensors"), load_file(older / "after-4.safetensors")
    assert now.keys() == then.keys()
    assert max((then[k] - start[k]).abs().max() for k in now) > 0.1
    assert all((now[k] - then[k]).abs().max() < 1e-6 for k in now)


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


@every("before", sorted(identity.table()))
def test_every_renamed_name_leads_to_something(before):
    now = identity.current_name(before)
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


@every("name", PROBLEMS)
def test_problems_are_drawn_as_before(name):
    """A source's random stream is named by its settings and its class: a renamed class must not draw other problems."""
    tasks, seen = bench_by_name(name)[0].tasks, hashlib.sha256()
    for split in ("train", "test"):
        for i in range(40):
            t = tasks.task(split, i)
            meta = sorted((k, str(v)) for k, v in t.meta.items())
            seen.update(repr((t.id, [m.content for m in t.prompt], str(t.answer), meta)).encode())
    assert seen.hexdigest()[:16] == PROBLEMS[name]


def test_a_renamed_field_keeps_its_first_name_in_digests():
    """`Outcome(right, wrong, above)` of before is `Outcome(positive, negative, right)`."""
    part = Outcome(1.0, -0.5, right=None)
    assert canonical(part) == ["Outcome", {"right": 1, "wrong": "-0.5", "above": None}]
    for name, fields in identity.former_fields().items():
        cls = identity.find(name)
        assert set(fields) <= {f.name for f in dataclasses.fields(cls)}, name


def test_settings_of_a_run_before_a_field_was_renamed_are_read():
    """Its fields say nothing changed, and an override of the old name reaches the field."""
    recipe = catalogue.recipe("nsr")
    at = next(k for k, x in values.walk(recipe) if isinstance(x, Outcome))
    now = {k: values.file_form(x) for k, x in values.flatten(recipe).items()}
    was = {"positive": "right", "negative": "wrong", "right": "above"}
    before = {f"{at}.{was[k.rpartition('.')[2]]}" if k.startswith(f"{at}.") else k: x for k, x in now.items()}
    assert f"{at}.above" in before and changed_fields(before, recipe) == [] == changed_fields(now, recipe)
    other = {**before, f"{at}.right": 0.25}
    (line,) = changed_fields(other, recipe)
    assert line.startswith(f"changed: {at}.positive 0.25 -> ")
    assert values.find(recipe, f"{at}.above") == f"{at}.right"
    assert dict(values.walk(values.override(recipe, "above", "0.25")))[at].right == 0.25
