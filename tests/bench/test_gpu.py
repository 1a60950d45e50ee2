"""The GPU programme's machinery, on a processor: what runs, what is kept, what is tried again, and what each slice measures."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import exactness, gpu, peer, programme, turns
from benchmarks.page import main as draw_page
from benchmarks.random_models import model_folder
from benchmarks.slices import MODELS, REHEARSAL, SLICES, find_slices, slice_of, work_of
from benchmarks.trl import PHASES
from benchmarks.work import Work
from palaestra.cli.main import main
from palaestra.engines import vllm
from palaestra.engines.own import OwnEngine
from palaestra.errors import Fault, UserError
from palaestra.models.load import load
from palaestra.models.lora import LoRA
from palaestra.planning.paper import config_of
from palaestra.run import machine
from palaestra.run.parts import Parts
from palaestra.terminal.progress import Headway

SPEED = Path(__file__).parents[2] / "docs/speed.md"
TOY = REHEARSAL.shapes[MODELS["0.5b"]]


# ---- choosing


def test_slices_are_found_by_name_kind_and_size_in_the_order_of_the_programme():
    names = lambda *words: [s.name for s in find_slices(words)]
    assert names() == [s.name for s in SLICES] and len(set(names())) == len(SLICES)
    assert names("memory-0.5b", "exactness") == ["exactness", "memory-0.5b"]
    assert names("trl", "lora") == [
        "trl-0.5b", "trl-vllm-0.5b", "lora-0.5b", "trl-1.5b", "trl-vllm-1.5b", "lora-1.5b", "trl-4b", "trl-vllm-4b",
    ]  # fmt: skip
    assert names("4b") == ["engine-4b", "trl-4b", "trl-vllm-4b", "memory-4b", "qlora-4b", "publish-4b"]
    assert names("optim") == ["optim-0.5b", "optim-1.5b"]
    with pytest.raises(UserError, match=r"no slice 'trl-05b'; did you mean trl-0\.5b"):
        find_slices(["trl-05b"])
    assert {s.kind for s in SLICES} == set(gpu.KINDS)


def test_the_largest_model_trains_adapters():
    assert [work_of(slice_of(f"trl-{size}"), "cuda").lora for size in MODELS] == [0, 0, 16]
    assert "peft" in slice_of("memory-4b").needs and "vllm" in slice_of("trl-vllm-4b").needs


# ---- running


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*names, again=(), how={slice: "fails" | "hangs" | "dies"}): the records that are left; `run.asked`: the requests."""
    folder, log = tmp_path / "out", tmp_path / "asked.jsonl"
    monkeypatch.setattr(programme, "WORKER", (str(Path(__file__).parent / "fake_slice.py"),))
    monkeypatch.setattr(programme.importlib.util, "find_spec", lambda name: name != "vllm" or None)
    monkeypatch.setenv("FAKE_SLICE_LOG", str(log))

    def call(*names, again=(), how=None, device="cpu", limit=30):
        monkeypatch.setenv("FAKE_SLICE", json.dumps(how or {}))
        log.write_text("")
        order = programme.Order(device=device, folder=folder, limit=limit, only=names, again=again)
        try:
            call.states = programme.run_programme(order)
        finally:
            call.asked = [json.loads(line) for line in log.read_text().splitlines()]
            call.records = {f.stem.removeprefix("gpu-"): json.loads(f.read_text()) for f in folder.glob("*.json")}
        return call.records

    call.folder = folder
    return call


def test_what_is_done_is_not_run_again_unless_asked(run, capsys):
    records = run("exactness", "engine-0.5b")
    assert {n: r["state"] for n, r in records.items()} == {"exactness": "done", "engine-0.5b": "done"} == run.states
    record = records["engine-0.5b"]
    assert (record["bench"], record["slice"], record["device"]) == ("gpu", "engine-0.5b", "cpu")
    assert record["machine"]["processor"] == "P" and record["work"] == {"model": "m"}
    assert record["result"] == {"how": "done"} and record["seconds"] >= 0 and "at" not in record
    assert record["command"] == "palaestra bench gpu --device cpu --only engine-0.5b"
    assert "at most 1:00 left in all" in capsys.readouterr().err
    run("exactness", "engine-0.5b", "update-0.5b")
    assert [a["slice"] for a in run.asked] == ["update-0.5b"]
    assert "2 of 3 slices are done" in capsys.readouterr().err
    run(again=("exactness",), how={"exactness": "better"})
    assert [a["slice"] for a in run.asked] == ["exactness"] and run.records["exactness"]["result"] == {"how": "better"}


def test_a_slice_that_fails_leaves_the_others_and_is_tried_again(run, capsys):
    with pytest.raises(Fault, match=r"1 of 2 slices could not be measured \(exactness\); the same command tries them"):
        run("exactness", "engine-0.5b", how={"exactness": "fails"})
    failed = run.records["exactness"]
    assert failed["state"] == "failed" and failed["why"] == "OutOfMemoryError: CUDA out of memory"
    assert failed["log"] == ["Traceback, says the log"] and failed["at"] == "the middle" and "result" not in failed
    assert run.records["engine-0.5b"]["state"] == "done"
    said = capsys.readouterr().err
    assert "[1/2] exactness" in said and "at: the middle: OutOfMemoryError: CUDA out of memory" in said
    run("exactness", "engine-0.5b")
    assert [a["slice"] for a in run.asked] == ["exactness"] and run.records["exactness"]["state"] == "done"
    with pytest.raises(Fault):
        run(again=("exactness",), how={"exactness": "fails"})
    assert run.records["exactness"]["state"] == "done", "a failure does not replace a result"


def ended(pid):
    """Gone, or a zombie that its new parent has not looked at yet."""
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("how", "state", "why"), [("hangs", "out of time", "it ran for 1 s"), ("dies", "failed", "it was ended by SIGKILL")]
)
def test_a_slice_that_hangs_or_dies_takes_its_workers_along(run, how, state, why):
    with pytest.raises(Fault):
        run("exactness", "engine-0.5b", how={"exactness": how}, limit=1 if how == "hangs" else 30)
    record = run.records["exactness"]
    assert (record["state"], record["why"], record["at"]) == (state, why, "the middle")
    assert ended(record["worker"])
    assert run.records["engine-0.5b"]["state"] == "done"


def test_a_slice_whose_packages_are_missing_is_not_started(run):
    run("trl-vllm-0.5b")
    assert run.states == {"trl-vllm-0.5b": "missing"} and not run.asked
    assert run.records["trl-vllm-0.5b"]["why"] == "not installed here, vLLM: pip install vllm"


@pytest.mark.parametrize(("given", "seen"), [(None, "0"), ("3,1", "3"), ("", "")])
def test_a_slice_sees_one_gpu(run, monkeypatch, given, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    run("exactness")
    assert run.asked[0]["gpu"] == seen


def test_a_rehearsal_and_a_gpu_do_not_share_a_folder(run):
    run("exactness", device="cuda")
    with pytest.raises(
        UserError, match=r"gpu-exactness.json is of the device 'cuda', not 'cpu'; choose another folder"
    ):
        run("exactness", again=("exactness",))
    assert programme.default_folder("cuda") == Path("benchmarks") != programme.default_folder("cpu")


def test_the_time_left_is_that_of_slices_which_run():
    assert programme.time_left([], 3, 480) == "at most 24:00 left in all"
    assert programme.time_left([10.0, 30.0], 3, 480) == "about 1:00 left in all"


def test_a_slice_ends_with_the_programme(tmp_path):
    """However that ends: its standard input is closed then. Its group goes along."""
    request = {"slice": "exactness", "device": "cpu", "limit": 60, "models": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu", json.dumps(request)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert "machine" in json.loads(child.stdout.readline())
    child.stdin.close()
    assert child.wait(20) == -9


# ---- at the terminal


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no CUDA device here; --device cpu rehearses the programme in miniature"),
        (["--device", "cuda"], "no CUDA device here; --device cpu rehearses the programme in miniature"),
        (["--device", "cpu", "--only", "lore-4b"], "no slice 'lore-4b'; did you mean"),
        (["--device", "cpu", "--out", "file/out"], "writing into file/out: not a directory; mend it or choose another"),
        (["--list", "--out", "broken"], "broken/gpu-exactness.json is no result of a slice"),
        (["--limit", "9"], "takes a whole number of at least 10"),
    ],
)
def test_mistakes_are_told_in_one_line(monkeypatch, tmp_path, capsys, argv, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("broken").mkdir()
    Path("broken/gpu-exactness.json").write_text("{}")
    assert main(["bench", "gpu", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("palaestra: ") and err.count("\n") == 1 and said in err


def test_the_list_shows_every_slice_with_its_state(run, capsys):
    with pytest.raises(Fault):
        run("exactness", "engine-0.5b", how={"exactness": "fails"})
    capsys.readouterr()
    assert main(["bench", "gpu", "--list", "--out", str(run.folder), "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [s.name for s in SLICES]
    assert "failed" in lines[0] and "CUDA out of memory" in lines[0] and "done" in lines[1] and "not run" in lines[2]
    assert [r["state"] for r in json.loads(last)[:3]] == ["failed", "done", "not run"]


# ---- the page


def page_of(folder, *records):
    folder.mkdir(exist_ok=True)
    (folder / "speed.md").write_text(SPEED.read_text())
    for r in records:
        (folder / f"gpu-{r['slice']}.json").write_text(json.dumps(r))
    draw_page(folder, folder)
    return (folder / "speed.md").read_text()


MACHINE = {
    "processor": "NVIDIA X",
    "cores": 8,
    "load": [0.1, 0, 0],
    "torch": "2.13.0",
    "cuda": "13.0",
    "driver": "590.1",
}
RATIO = {"median": 2.5, "low": 2.25, "high": 3.0, "each": [2.25, 2.5, 3.0]}
ENGINE = {
    "bench": "gpu",
    "slice": "engine-0.5b",
    "device": "cuda",
    "state": "done",
    "command": "palaestra bench gpu --only engine-0.5b",
    "machine": MACHINE,
    "work": {"model": "qwen2.5-0.5b"},
    "result": {
        "batches": [
            {"batch": 8, "rates": {"graphs": 900.0, "launches": 300.0}, "ratios": {"launches": RATIO}, "limit": 1000.0}
        ]
    },
}


def test_a_step_beside_trl_is_drawn_with_its_version(tmp_path):
    """Without TRL, as its rehearsal is skipped where it is not installed."""
    memory = {"update": 10.0, "update_above_base": 4.0}
    result = {
        "memory_mb": {"palaestra": memory, "trl": memory},
        "ratios": dict.fromkeys(PHASES, RATIO),
        "ratio_per_token": RATIO,
    }
    work = {"model": "qwen2.5-0.5b", "dtype": "float32", "prompts": 2, "group": 2, "full": True, "max_tokens": 8}
    machine = {**MACHINE, "trl": "1.16.0", "omp_num_threads": "1"}
    record = {**ENGINE, "slice": "trl-0.5b", "machine": machine, "work": work, "result": result}
    (row,) = [x for x in page_of(tmp_path, record).splitlines() if x.startswith("| qwen2.5-0.5b, float32, 2 x 2,")]
    assert row.endswith("| 3 | 1.16.0 |") and "10 against 10" in row


def test_the_page_says_of_each_slice_what_was_measured_or_that_nothing_was(tmp_path):
    late = {**ENGINE, "slice": "update-0.5b", "state": "out of time", "why": "it ran for 480 s"}
    rehearsed = {**ENGINE, "slice": "engine-1.5b", "device": "cpu"}
    page = page_of(tmp_path, ENGINE, late, rehearsed)
    assert "**engine-0.5b**: sampling" in page and "NVIDIA X." in page
    assert "| qwen2.5-0.5b | 8 | 900 | 90% | 300 | not measured: not installed | 2.50 (2.25 to 3.00) |  |" in page
    assert "- update-0.5b (the update beside the rate of matrix products): not measured (it ran for 480 s).\n- " in page
    lines = [line for line in page.splitlines() if line.endswith(": not measured.")]
    assert [line[2:].split()[0] for line in lines] == [
        s.name for s in SLICES if s.name not in ("engine-0.5b", "update-0.5b")
    ], "a rehearsal is no measurement"
    row = (
        "| `palaestra bench gpu --only engine-0.5b` | NVIDIA X, 8 cores | torch 2.13.0, cuda 13.0, driver 590.1 | 0.1 |"
    )
    assert row in page and page.count("palaestra bench gpu --only") == 1


# ---- what slices measure


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        (
            "exactness",
            ["| gradient in micro-batches |", "| at most 0.001 | yes |", "| qwen2.5-0.5b | bfloat16 | own |"],
        ),
        ("engine-0.5b", ["| qwen2.5-0.5b | 3 |"]),
        ("update-1.5b", ["| qwen2.5-1.5b | 4096 |"]),
        ("memory-4b", ["| qwen3-4b | 2 | 64 | 4096 | yes |"]),
        ("lora-0.5b", ["| qwen2.5-0.5b | adapters of rank 16 |"]),
        ("qlora-0.5b", ["| qwen2.5-0.5b | adapters of rank 16 on 16 bits |", "| adapters of rank 16 on 4 bits |"]),
        (
            "optim-0.5b",
            ["| qwen2.5-0.5b | moments in float32 |", "| moments in 8 bits |", "| moments in 8 bits, paged |"],
        ),
        ("publish-0.5b", ["| adapters | adapters |", "| adapters on 4 bits | whole weights |"]),
        ("trl-0.5b", ["| qwen2.5-0.5b, float32, 2 x 2, all 8 tokens |"]),
        ("trl-4b", ["| qwen3-4b, float32, LoRA 16, 2 x 2, all 8 tokens |"]),
    ],
)
def test_a_slice_is_rehearsed_and_drawn(tmp_path, name, shows):
    if name.startswith("trl"):
        pytest.importorskip("trl")
    if name.startswith(("qlora", "optim", "publish")):
        pytest.importorskip("bitsandbytes")
    argv = [
        "bench",
        "gpu",
        "--device",
        "cpu",
        "--only",
        name,
        "--out",
        str(tmp_path),
        "--models",
        str(tmp_path / "models"),
    ]
    assert main(argv) == 0
    record = json.loads((tmp_path / f"gpu-{name}.json").read_text())
    assert record["state"] == "done" and record["work"]["model"] in MODELS.values()
    assert "**no**" not in (page := page_of(tmp_path / "page", {**record, "device": "cuda"}))
    for row in shows:
        assert row in page


def job(name):
    return gpu.Job(slice=slice_of(name), device="cpu", left=lambda: math.inf, say=lambda text: None)


def test_vllm_is_measured_where_it_is(tmp_path, monkeypatch):
    for module in (vllm, gpu):
        monkeypatch.setattr(module, "interpreter", lambda: sys.executable)
    monkeypatch.setattr(vllm, "SERVER", Path(__file__).parents[1] / "fake_vllm.py")
    monkeypatch.setattr(vllm, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(vllm, "check_gap", lambda model, every: None)  # a stand-in's log-probs are no model's
    monkeypatch.chdir(tmp_path)
    model_folder(MODELS["0.5b"], config_of(TOY, 512), tmp_path, "cpu")
    found = gpu.measure_engine(job("engine-0.5b"))
    for b in found["batches"]:
        assert b["rates"].keys() == {"graphs", "launches", "vllm"} and b["ratios"].keys() == {"launches", "vllm"}
        assert min(b["rates"].values()) > 0 and b["limit"] > 0
        low, high = (b["ratios"]["vllm"][k] for k in ("low", "high"))
        assert low <= b["rates"]["graphs"] / b["rates"]["vllm"] <= high
    gaps = gpu.measure_exactness(job("exactness"))["gaps"]
    (theirs,) = [g for g in gaps if g["engine"] == "vllm"]
    assert theirs["mean"] > 1, "the stand-in's log-probs are no model's"


def test_weights_are_published_to_a_server_too(tmp_path, monkeypatch):
    """Adapters take fewer bytes than weights, in an object and in files, and vLLM has them after a probe."""
    pytest.importorskip("peft")
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)  # 4 bits are rehearsed above
    for module in (vllm, gpu):
        monkeypatch.setattr(module, "interpreter", lambda: sys.executable)
    monkeypatch.setattr(vllm, "SERVER", Path(__file__).parents[1] / "fake_vllm.py")
    monkeypatch.setattr(vllm, "SHARED_MEMORY", tmp_path)
    probes = []
    monkeypatch.setattr(vllm, "check_gap", lambda model, every: probes.append(len(every)))
    monkeypatch.setattr(gpu, "load", lambda name, **given: load("tiny", **given))
    kinds = {(k["name"], k["alone"]): k for k in gpu.measure_publish(job("publish-0.5b"))["kinds"]}
    rounds = REHEARSAL.rounds + 1
    assert len(probes) == len(kinds) * (rounds + 1), "one at the start, and one an update"
    assert [*kinds] == [("all weights", False), ("adapters", False), ("adapters", True)]
    assert all(k[part]["low"] > 0 for k in kinds.values() for part in ("object", "check", "write", "digests", "vllm"))
    size = {at: (k["object_mb"]["median"], k["files_mb"]["median"]) for at, k in kinds.items()}
    whole, merged, alone = size["all weights", False], size["adapters", False], size["adapters", True]
    assert merged[0] == alone[0] < whole[0] and alone[1] < merged[1] == pytest.approx(whole[1], rel=0.01)
    trained = sum(p.nbytes for p in load("tiny").named_trainable().values())
    assert whole[0] == trained / 1e6


def test_a_decode_step_reads_all_weights_but_an_embedding_that_is_no_head(tmp_path):
    for tied in (True, False):
        model_folder(f"tied-{tied}", config_of((*TOY[:-1], tied), 64), tmp_path, "cpu")
        model = load(str(tmp_path / f"tied-{tied}"))
        matrices = sum(p.numel() for p in model.module.parameters() if p.dim() == 2)
        table = 0 if tied else TOY[5] * TOY[0]
        assert gpu.weight_bytes(model) == 4 * (matrices - table)


def test_laws_are_checked(monkeypatch):
    checks = {c["law"]: c for c in exactness.check_laws("cpu", 2, 12)}
    assert len(checks) == 9 and all(c["holds"] for c in checks.values())
    answer = exactness.sample_prompts
    off = lambda engine, prompts, tokens: answer(engine, prompts[:: 1 if engine.slots > 1 else -1], tokens)
    monkeypatch.setattr(exactness, "sample_prompts", off)
    monkeypatch.setattr(exactness, "apart", lambda a, b: 0.1)
    broken = [c["law"] for c in exactness.check_laws("cpu", 2, 12) if not c["holds"]]
    assert broken == [law for law in checks if law.startswith("gradient")] + ["answers alike one at a time"]


@pytest.mark.parametrize("budget", [1 << 20, 40])
def test_a_gradient_that_is_another_is_seen(budget):
    model = load("tiny")
    prompts = exactness.repeated_prompts(model, 2, 24)
    batch = exactness.batch_of(prompts, exactness.sample_prompts(OwnEngine(model), prompts, 12))
    right = exactness.gradient(model, batch, budget)
    assert exactness.apart(right, exactness.gradient(model, batch)) < 1e-5 and float(right.norm()) > 0
    batch.columns["behaviour_logp"].add_(0.01 * batch.mask)
    assert exactness.logp_gap(model, batch)["mean"] == pytest.approx(0.01, abs=1e-4)
    batch.columns["advantage"][0] *= 1.1
    assert exactness.apart(exactness.gradient(model, batch), right) > exactness.GRADIENT


# ---- the parts


def test_a_model_of_random_weights_has_a_text_for_every_id(tmp_path):
    config = config_of((64, 128, 2, 4, 2, 700, 0, True), 512)
    where = model_folder("toy", config, tmp_path, "cpu")
    model, tiny = load(str(where), dtype="bfloat16"), load("tiny")
    assert (model.vocabulary, len(model.tokenizer), model.context) == (700, 700, 512)
    assert json.loads((where / "config.json").read_text())["dtype"] == "bfloat16"
    assert model.eos == tiny.eos
    said = "Write one sentence. <|end|>"
    assert model.tokenizer.encode(said) == tiny.tokenizer.encode(said)
    texts = [model.tokenizer.decode([i]) for i in range(256, 700)]
    assert len(set(texts)) == len(texts) and all(texts)
    weights = (where / "model.safetensors").read_bytes()
    assert model_folder("toy", config, tmp_path, "cpu") == where
    torch.rand(1)  # whatever was drawn before
    assert (model_folder("toy", config, tmp_path / "other", "cpu") / "model.safetensors").read_bytes() == weights
    (where / "config.json").write_text("{}")
    model_folder("toy", config, tmp_path, "cpu")
    assert (where / "config.json").read_text() == "{}", "a model that is there is used"


def test_trl_is_given_the_same_work(tmp_path):
    full = Work(full=True, max_tokens=9)
    assert peer.sampling(full) == {"generation_kwargs": {"min_new_tokens": 9}}
    with_vllm = Work(full=True, max_tokens=9, peer_vllm=True)
    assert peer.sampling(with_vllm) == {
        "generation_kwargs": {"min_tokens": 9},
        "use_vllm": True,
        "vllm_mode": "colocate",
    }
    assert peer.sampling(Work()) == {"generation_kwargs": None}
    pytest.importorskip("peft")
    model_folder("toy", config_of(TOY, 512), tmp_path, "cpu")
    module = load(str(tmp_path / "toy"), lora=LoRA(rank=3)).module
    ours, theirs = module.peft_config["default"], peer.adapters(3)
    for name in ("r", "lora_alpha", "lora_dropout", "bias", "use_rslora"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert set(ours.target_modules) == set(theirs.target_modules)


def test_memory_of_a_gpu_belongs_to_the_phase_that_took_it(monkeypatch):
    held = {"now": 0, "peak": 0}

    def take(n):
        held["now"] += n
        held["peak"] = max(held["peak"], held["now"])

    for name, fake in {
        "is_initialized": lambda: True,
        "memory_allocated": lambda: held["now"] << 20,
        "max_memory_allocated": lambda: held["peak"] << 20,
        "reset_peak_memory_stats": lambda: held.update(peak=held["now"]),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    take(100)
    with turns.Memory() as memory:
        take(50)
        take(-50)
        with turns.Memory.phase("backward"):
            take(10)
            with turns.Memory.phase("forward"):
                take(70)
                take(-70)
            take(-10)
        take(5)
    take(1000)
    assert memory.peaks == {"base": 100, "rollout": 150, "update": 180, "rest": 105}


def test_a_gpu_is_described_with_its_driver(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70 << 30, 80 << 30))
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 590.1\necho 590.1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    about = machine.describe_machine("cuda")
    assert (about["processor"], about["driver"], about["memory_free_mb"], about["memory_mb"]) == (
        "NVIDIA X", "590.1", 70 << 10, 80 << 10,
    )  # fmt: skip
    tool.unlink()
    assert machine.driver() == "" and "driver" not in machine.describe_machine("cpu")


def test_an_update_has_a_rate(tmp_path):
    """FLOP of the linear layers, three times the forward pass, over the time of the update."""
    from benchmarks import step

    model_folder("toy", config_of(TOY, 512), tmp_path, "cpu")
    work = Work(model=str(tmp_path / "toy"), prompts=2, group=2, max_tokens=6, full=True)
    found = step.measure(work, 1, Parts(Headway("step", lambda text: None)))
    update = sum(found["phases"][p] for p in ("forward", "backward", "optimiser"))
    linears = machine.Linears(load(str(tmp_path / "toy")))
    low = linears.flops(3 * found["positions"]["computed"], 3 * 4 * 6)
    assert found["update_flops"] * update == pytest.approx(low, rel=1e-6)
    assert np.isfinite(found["over_limit"]["update"]) and os.path.exists(tmp_path / "toy")
