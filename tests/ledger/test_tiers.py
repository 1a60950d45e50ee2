"""Experiments on a real model beside those of the tiny one."""

import json
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.ledger import standing
from palaestra.ledger.cells import machine_of
from palaestra.ledger.experiment import START, Experiment, experiment_of, tiers_of
from palaestra.ledger.files import read_result
from palaestra.ledger.results import Scope, machines_of, name_of, place_of
from tools.pages import build as pages
from tools.pages import holding

from tests.rows import every

ID = "nsr"
NAME = f"{ID}@small"
SMALL = [n for e in catalogue.rows() if e.built for n in tiers_of(e.id)]


def test_a_tier_is_an_experiment_of_its_own():
    small, tiny = experiment_of(NAME), experiment_of(ID)
    assert small.model == "smollm2" and tiny.model == Experiment.model and tiers_of(ID) == [NAME]
    assert name_of(NAME) == NAME and tiers_of("rloo") == []


def test_a_method_without_one_says_so(capsys, tmp_path):
    with pytest.raises(UserError, match="rloo has no experiment of the tier small; without --tier it runs on tiny"):
        experiment_of("rloo@small")
    assert main(["reproduce", "rloo", "--tier", "small", "--out", str(tmp_path)]) == 2
    assert main(["reproduce", "rloo", "--tier", "large"]) == 2
    assert "invalid choice: 'large'" in capsys.readouterr().err
    assert main(["reproduce", "rloo@large", "--out", str(tmp_path)]) == 2
    assert "rloo@large: no tier 'large'; there is small" in capsys.readouterr().err


@every("name", SMALL)
def test_it_is_declared_as_the_rules_ask(name, tmp_path):
    e = experiment_of(name)
    assert e.lacks() == [] and e.model == "smollm2" and len(e.blocks[0]) >= 3 and bool(e.samples) == bool(e.evaluate)
    asked = Scope(method=name, experiment=e, arms=[], blocks=[], tokens=e.tokens, out=tmp_path)
    of_arms = [asked.request(a, e.settings_of(a)[0], e.tasks[0], 0).configuration() for a in e.every_arm]
    # what has no address cannot be run, and two arms with one address are one
    assert len(set(map(repr, of_arms))) == len(e.every_arm)


def test_it_is_declared_under_its_name_and_told_with_its_command(tmp_path, monkeypatch, capsys):
    found = {}

    def run_all(method, **more):
        found["declared"] = [p.name for p in (tmp_path / "declared").iterdir()]
        raise UserError(f"ran {method}")

    monkeypatch.setattr("palaestra.ledger.results.reproduce", run_all)
    assert main(["reproduce", ID, "--tier", "small", "--out", str(tmp_path)]) == 2
    assert f"ran {NAME}" in capsys.readouterr().err
    (name,) = found["declared"]
    assert name.startswith(f"{NAME}-")
    assert json.loads((tmp_path / "declared" / name).read_text())["model"] == "smollm2"


def test_a_page_shows_both(monkeypatch):
    entry = catalogue.entry_of(ID)
    result = read_result("demo-regularized-rl") or {}
    page = pages.method_page(entry, {ID: (None, []), NAME: (None, [])})
    first, second = page.split("## Measured on a real model (tier small)")
    assert f"palaestra reproduce {ID}\n" in first and f"palaestra reproduce {ID} --tier small\n" in second
    own = {**result, "id": NAME, "declaration": "0" * 64, "model": "smollm2"}
    page = pages.method_page(entry, {ID: (None, []), NAME: (own, [])})
    assert "Stale result: it was declared otherwise" in page and f"ledger/results/{NAME}.json" in page
    monkeypatch.setattr(pages, "stale_reason", lambda _: "")
    page = pages.method_page(entry, {ID: (None, []), NAME: (own, [])})
    assert f"ledger/declared/{NAME}-000000000000.json" in page and "with the model `smollm2`" in page


def test_published_results_of_tiers_are_checked_and_listed(monkeypatch):
    result = read_result("demo-regularized-rl") or {}
    own = {**result, "id": NAME, "model": "smollm2"}
    read = lambda name, where=None: own if name == NAME else read_result(name, where)
    monkeypatch.setattr(standing, "read_result", read)
    assert NAME in standing.published()
    monkeypatch.setattr(holding, "read_result", read)
    for lesson in ("_lesson_row", "_of_arm"):  # which build on numbers that `own` has not
        monkeypatch.setattr(holding, lesson, lambda *of: "")
    others = [n for n in SMALL if n != NAME and read_result(n) and not standing.taken_back(n)]
    others_alone = real_model_table(len(others))
    assert f"[{ID}]" not in others_alone  # another declaration than today's
    monkeypatch.setattr(holding, "stale_reason", lambda _: "")
    table = real_model_table(len(others) + 1)
    assert f"[{ID}](methods/{ID}.md)" in table and ": smaller" in table


def real_model_table(rows):
    return holding.holding_page().split(f"## On a real model ({rows})")[1].split("##")[0]


# ---- on a GPU


def scope(tmp_path, **differences):
    given = {"arms": [START], "blocks": [[0]], "tokens": 10, "out": tmp_path, "device": "cuda"}
    return Scope(method=NAME, experiment=experiment_of(NAME), **given | differences)


def test_cells_of_a_gpu_have_addresses_of_their_own_and_are_in_bfloat16(tmp_path):
    asked, other = (scope(tmp_path, device=d).request(START, {}, "constraints", 0).settings for d in ("cuda", "cpu"))
    assert (asked.where, asked.precision, other.where) == ("cuda", "bfloat16", "cpu")
    assert place_of(scope(tmp_path)) == {"device": "cuda", "dtype": "bfloat16"}
    assert place_of(scope(tmp_path, device="cpu")) == {}


def test_without_one_nothing_runs_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("palaestra.ledger.cells.CellRequest.digest", lambda r: f"{r.label:>20}")
    assert main(["reproduce", ID, "--tier", "small", "--device", "cuda", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "20 of 20 runs are still to be made on a CUDA device, and there is none here" in said
    assert not (tmp_path / "results").exists() and not list(tmp_path.rglob("cell.json"))


def test_a_result_says_the_machines_of_its_cells(monkeypatch):
    assert machines_of([{"machine": "b"}, {"machine": "a"}, {"machine": "b"}]) == "a; b"
    assert machines_of([]) == machines_of([{}]) == machine_of("cpu")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA X")
    assert machine_of("cuda") == f"NVIDIA X, {machine_of('cpu')}"


def test_a_page_says_that_it_was_a_gpu():
    shown = pages.measured(catalogue.entry_of(ID), NAME, read_result(NAME), [])
    assert "with the model `smollm2` in bfloat16 on a GPU, a budget" in shown
    assert f"palaestra reproduce {ID} --tier small --device cuda\n" in shown


def test_ten_seeds_a_block_are_another_declaration_with_the_first_five_among_them():
    e = experiment_of(ID)
    more = replace(e, blocks=pl.ledger.TWENTY_SEEDS)
    assert [set(a) < set(b) for a, b in zip(e.blocks, more.blocks, strict=True)] == [
        True,
        True,
    ] or e.blocks == pl.ledger.TWENTY_SEEDS
    assert more.is_whole(more.every_arm, pl.ledger.TWENTY_SEEDS, more.tokens)
