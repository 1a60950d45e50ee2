"""The page of measured speed shows the numbers of the results, and says what was not measured."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks import work
from benchmarks.command import run_one
from benchmarks.page import main as draw_page
from benchmarks.page import setting
from benchmarks.work import Work, prepare_work
from palaestra.cli.main import main, parser_of
from palaestra.markdown import fill_marks
from palaestra.models.load import load, weights_sha256
from palaestra.run import machine

MACHINE = {"processor": "P", "cores": 2, "torch": "2.13.0", "load": [0.1, 0, 0]}
RATIO = {"median": 2.5, "low": 2.25, "high": 3.0, "each": [2.25, 2.5, 3.0]}
TRL = {
    "bench": "trl",
    "command": "palaestra bench trl --model smollm2 --prompts 4 --full",
    "work": asdict(Work(model="smollm2", prompts=4, full=True)),
    "machine": MACHINE | {"trl": "1.16.0"},
    "ratios": dict.fromkeys(("rollout", "forward", "backward", "seconds"), RATIO),
    "ratio_per_token": RATIO,
    "ratio_processor": RATIO | {"median": 2.75},
    "memory_mb": {
        "palaestra": {"update": 700.4, "update_above_base": 90.0},
        "trl": {"update": 1500.0, "update_above_base": 200.0},
    },
}
SCALING = {
    "bench": "scaling",
    "command": "palaestra bench scaling",
    "machine": MACHINE,
    "turns": {"points": [{"x": 2, "seconds": 1.0, "seconds_again": 4.0}], "exponent": 1.02, "exponent_again": 1.9},
}


def test_a_page_shows_what_was_measured(tmp_path):
    (tmp_path / "speed.md").write_text((Path(__file__).parents[2] / "docs/speed.md").read_text())
    for result in (TRL, SCALING):
        (tmp_path / f"{result['bench']}.json").write_text(json.dumps(result))
    draw_page(tmp_path, tmp_path)
    page = (tmp_path / "speed.md").read_text()
    row = "| smollm2, float32, 4 x 8, all 64 tokens | 2.50 (2.25 to 3.00) |"
    assert row in page and "| 700 against 1500 | 90 against 200 | 2.75 (2.25 to 3.00) | 3 | 1.16.0 |" in page
    assert "| turns, histories read again | 1.90 |  | 2: 4.00 s |" in page
    assert (
        page.count("Not measured.") == 10
    )  # step, ablation, engine, drafts, company, memory, sandbox, busy, checkouts, episodes
    assert "--full` | P, 2 cores | torch 2.13.0, trl 1.16.0 | 0.1 |" in page
    assert "`palaestra bench scaling` | P, 2 cores | torch 2.13.0 | 0.1 |" in page
    drawn = (tmp_path / "speed.svg").read_text()
    assert drawn.count("<rect") == 1 + 4 and "whole step" in drawn
    draw_page(tmp_path, tmp_path)
    assert (tmp_path / "speed.md").read_text() == page  # made again it is the same


def test_what_was_measured_is_named():
    assert setting({"work": asdict(Work())}) == "tiny, float32, 16 x 8, up to 64 tokens"
    assert setting(TRL) == "smollm2, float32, 4 x 8, all 64 tokens"
    long = {"work": asdict(Work(positions=2304))}
    assert setting(long) == "tiny, float32, 16 x 8, up to 64 tokens, 2304 positions"
    two = {"work": asdict(Work()), "machine": {"omp_num_threads": "2"}}
    assert setting(two) == "tiny, float32, 2 threads, 16 x 8, up to 64 tokens"


@pytest.mark.parametrize("what", ["step", "engine", "drafts", "company", "trl", "ablation", "memory", "scaling"])
def test_a_device_that_is_not_there_is_refused_in_one_line(monkeypatch, capsys, what):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert main(["bench", what, "--device", "cuda"]) == 2
    assert capsys.readouterr().err == "palaestra: no CUDA device here; leave --device out, or say --device cpu\n"


@pytest.mark.parametrize(
    ("given", "there", "meant"),
    [(None, False, "cpu"), (None, True, "cuda"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_that_is_meant(monkeypatch, given, there, meant):
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    assert machine.device_of(given) == meant


def test_the_work_is_done_on_its_device(monkeypatch, tmp_path):
    asked, load = [], work.load
    monkeypatch.setattr(work, "load", lambda *a, device, **k: asked.append(device) or load(*a, **k))
    prepare_work(Work.read(Work(device="cuda").json()), tmp_path, 4)
    assert asked == ["cuda"]


def test_a_model_gets_the_places_that_long_answers_need(tmp_path):
    """Its weights stay as they are, and so does the model itself where it has places enough."""
    model, longer = load("tiny"), load(Work(positions=2304).source(tmp_path))
    assert (model.context, longer.context) == (512, 2304)
    assert weights_sha256(longer) == weights_sha256(model)
    _, ctx = prepare_work(Work(positions=2304), tmp_path, 4)
    assert ctx.model("policy").context == 2304
    assert Work().source(tmp_path) == model.source


def test_the_version_of_what_stands_beside_is_written_down(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"trl": "1.16.0"}[name])
    monkeypatch.setattr("benchmarks.command.measure", lambda *_: ({}, ""))
    monkeypatch.setattr(machine, "describe_machine", lambda device: {"processor": "P"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    asked = (parser_of("bench").parse_args([what]) for what in ("trl", "step"))
    with_peer, alone = (run_one(Namespace(**vars(a), command="")) for a in asked)
    assert with_peer["machine"] == {"processor": "P", "trl": "1.16.0"} and alone["machine"] == {"processor": "P"}


def test_a_page_without_marks_is_not_filled():
    with pytest.raises(ValueError, match="no marks for 'trl'"):
        fill_marks("text", {"trl": "x"})
