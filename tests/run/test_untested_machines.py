"""A Mac, and its GPU: a line says what nobody has tried, and nothing that reads Linux's files raises without them."""

import types
from pathlib import Path

import pytest
from palaestra import cores, processor
from palaestra.cli.main import main
from palaestra.models.precision import precision_for
from palaestra.run import driver, machine
from palaestra.services.sandbox import bubblewrap

NOWHERE = Path("/nonexistent/place")


@pytest.fixture
def mac(monkeypatch):
    """As far as this package asks: the system's name, and no /proc or /sys."""
    for module in (machine, driver, bubblewrap):
        named = types.SimpleNamespace(**vars(module.sys) | {"platform": "darwin"})
        monkeypatch.setattr(module, "sys", named)
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(cores, "OWN_GROUPS", NOWHERE)
    monkeypatch.setattr(cores, "CGROUPS", NOWHERE)
    monkeypatch.setattr(processor, "CPUINFO", NOWHERE)
    monkeypatch.delattr(cores.os, "sched_getaffinity", raising=False)


def test_on_linux_nothing_is_said():
    assert machine.untested("cpu") == machine.untested("cuda:1") == ""


def test_a_mac_and_its_gpu_are_said_to_be_untested(mac):
    gpu = machine.untested("mps")
    assert gpu.startswith("note: --device mps on macOS is untested: ") and "PYTORCH_ENABLE_MPS_FALLBACK=1" in gpu
    cpu = machine.untested("cpu")
    assert cpu.startswith("note: macOS is untested: ") and "MPS" not in cpu and "\n" not in cpu + gpu


def test_a_run_on_a_mac_says_it_once_and_goes_through(mac, tmp_path, capsys):
    assert main(["train", "sft", "--smoke", "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.count("note: macOS is untested") == 1
    assert "the sandbox needs Linux, not darwin" in bubblewrap.missing_reason()


def test_memory_is_in_bytes_there(mac, monkeypatch):
    use = types.SimpleNamespace(ru_maxrss=3 << 20)
    monkeypatch.setattr(driver.resource, "getrusage", lambda who: use)
    monkeypatch.setattr(driver.torch.cuda, "is_initialized", lambda: False)
    assert driver.peak_memory_mb() == 3.0


def test_a_device_that_is_not_there_is_one_line(capsys):
    assert main(["train", "sft", "--smoke", "--device", "mps"]) == 2
    assert "no device 'mps' here" in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_large_model_on_another_device_is_not_rounded():
    assert precision_for("some/large-model", "mps").dtype == "float32"
