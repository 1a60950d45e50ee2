"""vLLM as an engine, over a fake of it; with PALAESTRA_VLLM_PYTHON set, over the real one too."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from palaestra import catalogue
from palaestra.cli.main import main
from palaestra.engines import probe, select, vllm
from palaestra.engines.own import OwnEngine
from palaestra.engines.sampling import truncate
from palaestra.errors import Fatal, Fault, UserError
from palaestra.models.load import load
from palaestra.run.benches import bench_by_name
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Reward, Sampling
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests.fake_vllm import digest

FAKE = Path(__file__).parents[1] / "fake_vllm.py"
REAL = os.environ.get(vllm.PYTHON)


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What the fake server is asked, as a function that reads it."""
    monkeypatch.setattr(vllm, "SERVER", FAKE)
    monkeypatch.setattr(vllm, "interpreter", lambda: sys.executable)
    monkeypatch.setattr(vllm, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(probe, "own_logp", lambda model, sampled: np.full(len(sampled.ids), -np.log(26)))
    monkeypatch.setenv("FAKE_VLLM_LOG", str(tmp_path / "asked.jsonl"))
    return lambda: [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines()]


@pytest.fixture
def engine(log):
    made = vllm.VllmEngine(load("tiny"))
    yield made
    made.close()


def ask(engine, prompts, keys=None, **sampling):
    async def run():
        keys_of = keys or [("draw", i) for i in range(len(prompts))]
        given = Sampling(**{"max_tokens": 12, **sampling})
        return await asyncio.gather(*(engine.generate(p, given, k) for p, k in zip(prompts, keys_of, strict=True)))

    return asyncio.run(run())


def gone(pid):
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True  # dead, and its new parent has not looked yet
        time.sleep(0.05)
    return False


# ---- asking


def test_many_in_flight_come_back_to_those_who_asked(engine, log):
    prompts = [(65 + i % 26, 97 + i % 26) for i in range(60)]
    samples = ask(engine, prompts)
    assert [s.ids[0] for s in samples] == [p[-1] for p in prompts]
    assert max(e["running"] for e in log() if "request" in e) == 60
    assert engine.sampled_tokens == sum(len(s.ids) for s in samples)
    assert not engine.busy and engine.seconds > 0


def test_a_key_is_a_seed(engine):
    first = ask(engine, [(65,)] * 8)
    again = ask(engine, [(65,)] * 8)
    assert [s.ids for s in first] == [s.ids for s in again]
    assert len({s.ids for s in first}) == 8
    assert len({s.ids for s in ask(engine, [(65,)] * 4, keys=[("same",)] * 4)}) == 1


def test_what_a_sample_says(engine):
    samples = ask(engine, [(65,)] * 40, max_tokens=30)
    ended = [s for s in samples if s.finish == "eos"]
    assert ended and all(s.ids[-1] in engine.model.eos and s.cut == len(s.text) == len(s.ids) - 1 for s in ended)
    assert all(np.allclose(s.logp, -np.log(26)) and len(s.logp) == len(s.ids) for s in samples)
    assert all(s.logp == (0.0,) * len(s.ids) for s in ask(engine, [(65,)] * 3, temperature=0.0))
    short = ask(engine, [(65,)] * 9, max_tokens=1)
    assert all(s.finish == "length" and len(s.ids) == 1 for s in short)
    letters = set("etaoin")
    stopped = [s for s in ask(engine, [(65,)] * 9, max_tokens=90, stop=tuple(letters)) if s.finish == "stop"]
    assert stopped and all(s.text[s.cut - 1] in letters and s.cut == len(s.text) for s in stopped)


def test_choices_are_refused(engine):
    """Its structured outputs mask token by token, which is another distribution."""
    with pytest.raises(UserError, match="use --engine own"):
        ask(engine, [(5, 6)], choices=((1, 2), (3,)))


def test_prompts_without_room_are_faults_of_their_episode(engine):
    with pytest.raises(Fault, match="leaves no room in a context of 512"):
        ask(engine, [(65,) * 512])
    with pytest.raises(Fault, match="the cache is too small") as found:
        ask(engine, [(65,) * 450])
    assert not isinstance(found.value, Fatal)
    assert len(ask(engine, [(65,) * 395], max_tokens=30)[0].ids) <= 5


# ---- weights


def test_every_step_samples_from_the_weights_of_the_last(log, context, small):
    recipe = small(catalogue.find("grpo").build())
    ctx = context(bench=replace(bench_by_name("chain")[0], reward=by_length))
    ctx.engine_name = "vllm"
    prepare(recipe, ctx)
    state, digests = start(0), []
    for _ in range(3):
        digests.append(saved_digest(ctx))
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert {"mismatch_gap", "mismatch_max", "mismatch_ratio", "mismatch_kl"} <= set(metrics)
    ctx.close()
    events = log()
    kinds = ["start" if "start" in e else "update" if "rpc" in e else "request" for e in events if "reset" not in e]
    runs = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    assert runs == ["start", "request", "update", "request", "update", "request"]
    used = [e["weights"] for e in events if "weights" in e]
    assert used == digests and len(set(used)) == 3
    assert all(e["running"] == 0 for e in events if "rpc" in e)
    assert sum("reset" in e for e in events) == 2
    versions = {s.version for g in ctx.seen for e in g.episodes for r in e.rows for s in r.segments if s.logp}
    assert versions == {2}


async def by_length(ctx, group):
    return [Reward(total=float(e.n_sampled)) for e in group.episodes]


def saved_digest(ctx):
    with tempfile.TemporaryDirectory() as folder:
        ctx.model("policy").module.save_pretrained(folder)
        return digest(folder)


def test_it_sleeps_while_the_run_learns_and_wakes_in_order(log, context, small, monkeypatch):
    """The stand-in for vLLM refuses every other order. What is learned is what a run learns whose engine never sleeps."""
    recipe = small(catalogue.find("grpo").build())

    def weights(engine_name):
        ctx = context(bench=replace(bench_by_name("chain")[0], reward=by_length))
        ctx.engine_name = engine_name
        describe = ctx.describe  # the first that learning asks for
        monkeypatch.setattr(ctx, "describe", lambda *given: at_learning(describe(*given)))
        prepare(recipe, ctx)
        state = start(0)
        for _ in range(3):
            digests.append(saved_digest(ctx))
            state, _ = asyncio.run(step(recipe, ctx, state))
        ctx.close()
        return saved_digest(ctx)

    def at_learning(found):
        learning.append("asleep" in log()[-1])
        return found

    learning, digests = [], []
    awake = weights("vllm")
    assert learning == [False] * 3
    before = len(log())
    assert weights("vllm(sleep=True)") == awake
    assert learning == [False] * 3 + [True] * 3
    assert [e["weights"] for e in log()[before:] if "weights" in e] == digests[3:] and len(set(digests)) == 3
    told = [e for e in log()[before:] if {"asleep", "awake", "rpc"} & set(e)]
    said = [e.get("rpc") or e.get("awake", "asleep") for e in told]
    wakes = ["asleep", ["weights"], "reload_weights", ["kv_cache"]]
    assert said == [*wakes, *wakes, "asleep"]


def test_it_sleeps_only_when_nobody_asks_it(log):
    engine = vllm.VllmEngine(load("tiny"), sleep=True)
    try:
        engine.rest()  # which has no server yet
        ask(engine, [(1, 2)])
        engine._running += 1
        engine.rest()
        engine._running -= 1
        assert not any("asleep" in e for e in log())
        engine.rest()
        assert "asleep" in log()[-1]
        ask(engine, [(1, 2)])  # nothing was learned, and it has the weights again
        engine.rest()
        engine._moved = False
        with pytest.raises(Fatal, match="it sleeps, and was asked to sample"):
            ask(engine, [(1, 2)])
        with pytest.raises(Fatal, match="ended with status 1"):
            engine.rest()
    finally:
        engine.close()


def test_adapters_travel_merged(log, tmp_path):
    from palaestra.models.lora import LoRA

    pytest.importorskip("peft")
    model = load("tiny", lora=LoRA(rank=2))
    with torch.no_grad():
        for p in model.trainable():
            p.normal_()
    engine = vllm.VllmEngine(model)
    engine._write(tmp_path / "copy")
    weights = load_file(tmp_path / "copy" / "model.safetensors")
    assert set(weights) == set(load_file(Path(load("tiny").source) / "model.safetensors"))
    assert sorted(p.name for p in (tmp_path / "copy").glob("**/*.safetensors")) == ["model.safetensors"]


def adapted(rank=3):
    from palaestra.models.lora import LoRA

    pytest.importorskip("peft")
    model = load("tiny", lora=LoRA(rank=rank))
    with torch.no_grad():
        for p in model.trainable():
            p.normal_()
    return model


def test_adapters_travel_alone(log, tmp_path):
    """The weights below them once, then some kilobytes for each update, under a number of their own."""
    model = adapted()
    engine = vllm.VllmEngine(model, adapters=True)
    try:
        ask(engine, [(65,)])
        scratch = next(tmp_path.glob("palaestra-vllm-*"))
        base = load_file(scratch / "model" / "model.safetensors")
        own = load_file(Path(load("tiny").source) / "model.safetensors")
        assert base.keys() == own.keys() and all(torch.equal(base[k], own[k]) for k in own)
        with torch.no_grad():
            for p in model.trainable():
                p.add_(1.0)
        engine.forget()
        samples = ask(engine, [(65,), (66,)])
        sent = [e for e in log() if "lora" in e]
        assert [e["lora"] for e in sent] == [1, 2] == [engine.updates - 1, engine.updates]
        assert len({e["weights"] for e in sent}) == 2 and not [e for e in log() if "rpc" in e] and len(samples) == 2
        whole = (scratch / "model" / "model.safetensors").stat().st_size
        assert all(e["bytes"] < whole / 4 for e in sent)
        assert [p.name for p in scratch.glob("adapters-*")] == ["adapters-2"]
    finally:
        engine.close()


def test_adapters_that_were_not_taken_sample_nothing(log, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM_LOADS", "rww")  # it is tried twice
    engine = vllm.VllmEngine(adapted(), adapters=True)
    try:
        with pytest.raises(Fatal, match="samples from other weights than it was given"):
            ask(engine, [(65,)])
        assert engine.sampled_tokens == 0
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"adapters": 1}, "write adapters=True or adapters=False"),
        ({"adapters": True, "sleep": True}, "what sleeps forgets the weights below the adapters"),
        ({"adapters": True}, "there are no adapters; train with --lora RANK"),
    ],
)
def test_settings_of_adapters(log, settings, says):
    with pytest.raises(UserError, match=says):
        vllm.check_served(load("tiny"), **settings)
    assert vllm.served_rank(adapted()) == 8
    with pytest.raises(UserError, match="vLLM takes ranks up to 512, not 600"):
        vllm.served_rank(adapted(600))


# ---- probes


def loads_of(log):
    return [e["weights"] for e in log() if "rpc" in e]


@pytest.mark.parametrize(
    ("loads", "told"),
    [
        ("w", "differ from the model's by 0.001 nats in the mean, where 0.0001 is the most"),
        ("n", "by inf nats"),
        ("rr", None),
        ("rwr", None),  # it is loaded again
        ("rnr", None),
        ("rww", "by 0.001 nats"),
    ],
)
def test_an_engine_that_did_not_take_its_weights_samples_nothing(log, monkeypatch, loads, told):
    monkeypatch.setenv("FAKE_VLLM_LOADS", loads)
    engine = vllm.VllmEngine(load("tiny"))
    try:
        if told is None:
            ask(engine, [(65,)])
            engine.forget()
            ask(engine, [(65,)])
            assert len(loads_of(log)) == engine.updates == len(loads) - 1
            return
        with pytest.raises(Fatal, match=f"samples from other weights than it was given: .* {told}"):
            ask(engine, [(65,)])
            engine.forget()
            engine.sampled_tokens = 0
            ask(engine, [(65,)])
        assert engine.sampled_tokens == 0
        assert {e["max_tokens"] for e in log() if "request" in e} == ({8} if len(loads) == 1 else {8, 12})
    finally:
        engine.close()


def spoil(how, folder):
    path = folder / "model.safetensors"
    if how == "missing":
        return path.unlink()
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 4
    path.write_bytes(whole if how == "flipped" else whole[:-64])


@pytest.mark.parametrize(("how", "times"), [("flipped", 2), ("torn", 1), ("missing", 2)])
def test_a_folder_that_is_not_as_it_was_written_is_not_loaded(log, engine, monkeypatch, how, times):
    ask(engine, [(65,)])
    left, digests = [times], probe.digests

    def then_spoil(folder):
        found = digests(folder)
        if left[0]:
            left[0] -= 1
            spoil(how, folder)
        return found

    monkeypatch.setattr(vllm, "digests", then_spoil)
    engine.forget()
    if times == 2:
        with pytest.raises(Fatal, match=r"update 1 is not as it was written: model\.safetensors"):
            ask(engine, [(65,)])
        assert loads_of(log) == [] and engine.updates == 0
    else:
        ask(engine, [(65,)])
        assert len(loads_of(log)) == engine.updates == 1


def test_a_start_on_a_spoilt_folder_is_named(log, engine, monkeypatch, tmp_path):
    digests = probe.digests
    monkeypatch.setattr(vllm, "digests", lambda f: (digests(f), spoil("flipped", f))[0])
    with pytest.raises(Fatal, match=r"the model's folder is not as it was written: model\.safetensors"):
        ask(engine, [(65,)])
    assert not (tmp_path / "asked.jsonl").exists() and not list(tmp_path.glob("palaestra-vllm-*"))


def test_a_sample_of_other_weights_than_were_loaded_is_none(engine):
    ask(engine, [(65,)])
    engine.updates += 1  # as if the server had missed one
    with pytest.raises(Fatal, match="from weights of update 0, and was to come from those of 1"):
        ask(engine, [(65,)])


def test_the_probe_knows_weights_of_an_update_before():
    """Log-probs of the embedded model by its own engine: right ones far within the bound, and beyond it once the
    weights have moved as far as one update of AdamW at the default rate moves them.
    """
    model = load("tiny")
    prompts = probe.probe_prompts(model)
    samples = ask(OwnEngine(model), prompts, max_tokens=probe.TOKENS)
    every = [probe.Sampled(p, s.ids, s.logp) for p, s in zip(prompts, samples, strict=True)]
    assert probe.mean_gap(model, every) < probe.most_gap(model) / 20
    probe.check_gap(model, every)
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.trainable():
            p.add_(3e-4 * torch.randn_like(p).sign())
    with pytest.raises(Fatal, match="it samples from other weights than it was given"):
        probe.check_gap(model, every)


# ---- ends


def test_a_dead_server_ends_the_run_and_says_why(log, context, small, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM_DIES_AFTER", "9")
    recipe, ctx = small(catalogue.find("grpo").build()), context()
    ctx.engine_name = "vllm"
    prepare(recipe, ctx)
    with pytest.raises(Fault, match=r"vLLM server ended with status 1: .*out of memory, says the fake"):
        state, _ = asyncio.run(step(recipe, ctx, start(0)))
        asyncio.run(step(recipe, ctx, state))
    with pytest.raises(Fatal, match="says the fake"):
        ask(ctx.engine(), [(65,)])
    ctx.close()


def test_who_does_not_fall_asleep_is_named(log, monkeypatch):
    monkeypatch.setattr(vllm, "ASLEEP", 0.05)
    engine = vllm.VllmEngine(load("tiny"), sleep=True)
    ask(engine, [(1, 2)])
    with pytest.raises(Fatal, match=r"the vLLM server did not answer \['sleep'\] in 0.05 s"):
        engine.rest()
    ask(engine, [(1, 2)])  # it slept at last, and has weights again
    engine.close()


def test_what_a_server_started_ends_with_it(log, monkeypatch):
    """Worker processes of vLLM, which a server that breaks down leaves behind."""
    monkeypatch.setenv("FAKE_VLLM_DIES_AFTER", "0")
    monkeypatch.setenv("FAKE_VLLM_WORKER", "1")
    engine = vllm.VllmEngine(load("tiny"))
    with pytest.raises(Fatal, match="ended with status 1"):
        ask(engine, [(1, 2)])
    (worker,) = [e["worker"] for e in log() if "worker" in e]
    assert gone(worker)
    engine.close()


def test_a_killed_server_is_named_by_its_signal(engine):
    ask(engine, [(65,)])
    os.kill(engine._child.pid, signal.SIGKILL)
    with pytest.raises(Fatal, match="was ended by SIGKILL"):
        for _ in range(50):
            ask(engine, [(65,)])
            time.sleep(0.02)


def test_close_leaves_nothing_behind(engine, log, tmp_path):
    ask(engine, [(65,)])
    pid = engine._child.pid
    engine.close()
    assert gone(pid) and not list(tmp_path.glob("palaestra-vllm-*"))
    assert ask(engine, [(65,)])  # it starts again where it is asked again


@pytest.mark.parametrize("broken", ["_write", "environment"])
def test_a_start_that_fails_leaves_no_folder(engine, tmp_path, monkeypatch, broken):
    def fails(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(engine if broken == "_write" else vllm, broken, fails)
    with pytest.raises(OSError, match="no space"):
        ask(engine, [(65,)])
    assert not list(tmp_path.glob("palaestra-vllm-*"))


def test_no_orphan_when_the_parent_is_killed(log, tmp_path):
    code = f"""
import asyncio, sys, time
from pathlib import Path
from palaestra.models.load import load
import numpy as np
from palaestra.engines import probe, vllm
from palaestra.types import Sampling
probe.own_logp = lambda model, sampled: np.full(len(sampled.ids), -np.log(26))
vllm.SERVER, vllm.SHARED_MEMORY, vllm.interpreter = Path({str(FAKE)!r}), Path({str(tmp_path)!r}), lambda: sys.executable
engine = vllm.VllmEngine(load("tiny"))
asyncio.run(engine.generate((65,), Sampling(), ("k",)))
print("sampled", flush=True)
time.sleep(60)
"""
    env = os.environ | {"PYTHONPATH": str(Path(vllm.__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
    assert parent.stdout.readline() == b"sampled\n"
    (pid,) = (e["pid"] for e in log() if "pid" in e)
    assert list(tmp_path.glob("palaestra-vllm-*"))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid) and not list(tmp_path.glob("palaestra-vllm-*"))


# ---- choosing


def test_what_is_missing_is_told(monkeypatch, capsys):
    monkeypatch.setattr(vllm.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv(vllm.PYTHON, raising=False)
    assert main(["eval", "--engine", "vllm", "--n", "1"]) == 2
    assert "pip install 'vllm>=0.32'" in capsys.readouterr().err
    monkeypatch.setenv(vllm.PYTHON, "/nowhere/python")
    with pytest.raises(UserError, match="cannot be run: No such file"):
        select.build("vllm", load("tiny"), slots=1, cache_mb=1)
    monkeypatch.setenv(vllm.PYTHON, sys.executable)
    with pytest.raises(UserError, match="has no vllm"):
        select.build("vllm", load("tiny"), slots=1, cache_mb=1)
    with pytest.raises(UserError, match="no engine 'vlm'"):
        select.build("vlm", load("tiny"), slots=1, cache_mb=1)


def test_the_command_line_trains_and_evaluates_with_it(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vllm, "HEADS_ON_CPU", (40,))
    out = tmp_path / "run"
    flags = ["--engine", "vllm", "--smoke", "--tis", "2", "--out", str(out), "--json"]
    assert main(["train", "grpo", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 2
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(s["mismatch_gap"]) and s["tis_weight"] <= 2 for s in steps if "reward" in s)
    assert main(["train", "--resume", str(out), "--steps", "3", "--json"]) == 0
    assert main(["eval", "--engine", "vllm", "--n", "4", "--k", "2", "--json"]) == 0
    assert all(gone(e["pid"]) for e in log() if "pid" in e)


def test_a_model_that_vllm_would_refuse_is_named_before_the_run(monkeypatch, tmp_path, capsys):
    """On a CPU it serves some sizes of attention heads only, and the embedded model's is none of them."""
    monkeypatch.setattr(vllm, "interpreter", lambda: sys.executable)
    select.check("vllm", served(tmp_path))
    select.check("vllm", load("tiny-agent"))
    select.check("own", load("tiny"))
    assert main(["train", "grpo", "--engine", "vllm", "--smoke", "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert "without a GPU vLLM serves attention heads of 32, 64," in told and "this model's have 40" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("vllm(tp=2)", None),
        ("vllm(tp=4)", "this model has 2, with 1 of keys and values"),
        ("vllm(tp=0)", "vllm(tp=0): tp is the number of GPUs that share each layer, at least 1"),
        ("vllm(tp=True)", "vllm(tp=True): tp is the number"),
        ("vllm(tp=1.5)", "vllm(tp=1.5): tp is the number"),
        ("vllm(sleep=True)", "without a GPU vLLM has nothing to give back"),
        ("vllm(sleep=false)", "--engine vllm(sleep=false): write sleep=True or sleep=False"),
        ("vllm(sleeps=True)", "engine 'vllm' has no setting 'sleeps'; did you mean sleep?"),
        ("vllm(slots=3)", "engine 'vllm' has no setting 'slots'; that is --slots"),
        ("own(tp=2)", "engine 'own' has no setting 'tp'; there are drafts, dtype"),
        ("vllm+own", "write --engine NAME or --engine 'NAME(setting=value)'"),
        ("vllm(2)", "write settings as vllm(name=value)"),
    ],
)
def test_settings_of_an_engine(monkeypatch, tmp_path, spec, told):
    monkeypatch.setattr(vllm, "interpreter", lambda: sys.executable)
    model = served(tmp_path)
    if told is None:
        select.check(spec, model)
    else:
        with pytest.raises(UserError) as refused:
            select.check(spec, model)
        assert told in str(refused.value)


def test_keys_and_values_are_dealt_out_or_repeated(monkeypatch, tmp_path):
    monkeypatch.setattr(vllm, "interpreter", lambda: sys.executable)
    model = served(tmp_path)
    config = model.causal.config
    config.num_attention_heads, config.num_key_value_heads = 6, 2
    for tp in (1, 2, 6):  # the two of six are repeated on three GPUs each
        select.check(f"vllm(tp={tp})", model)
    with pytest.raises(UserError, match="has 6, with 2 of keys and values"):
        select.check("vllm(tp=3)", model)


def test_as_many_gpus_as_are_there(monkeypatch, tmp_path):
    monkeypatch.setattr(vllm, "interpreter", lambda: sys.executable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    model = served(tmp_path)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    select.check("vllm(sleep=True)", model)
    with pytest.raises(UserError, match="this process sees fewer GPUs than that: 1"):
        select.check("vllm(tp=2)", model)


def test_the_server_is_told_its_settings(log, capsys):
    engine = select.build("vllm(tp=4,sleep=True)", load("tiny"), slots=3, cache_mb=5)
    ask(engine, [(1, 2)])
    engine.close()
    assert [e["tp"] for e in log() if "start" in e] == [4]
    assert main(["train", "grpo", "--vllm-tensor-parallel-size", "2"]) == 2
    assert "write --engine 'vllm(tp=2)'" in capsys.readouterr().err


def served(folder):
    """A model of random weights, with heads that vLLM serves anywhere."""
    tiny = load("tiny")
    sizes = {
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "num_hidden_layers": 2,
    }
    config = LlamaConfig(**tiny.causal.config.to_dict() | sizes | {"initializer_range": 0.3})
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder / "served")
    tiny.tokenizer.save_pretrained(folder / "served")
    return load(str(folder / "served"))


def test_the_server_meets_the_standard_library():
    """Its folder is the first place where Python looks: a file beside it, such as `select.py`, would be taken for a
    module of the standard library.
    """
    assert [p.name for p in vllm.SERVER.parent.iterdir() if p.name != "__pycache__"] == ["server.py"]


# ---- the real one


@pytest.mark.skipif(not REAL, reason=f"{vllm.PYTHON} is not set")
@pytest.mark.parametrize("tp", [1, 2])
def test_real_vllm_samples_from_the_present_weights(tmp_path, monkeypatch, tp):
    """Without a GPU the parts of the model are processes, which vLLM wants to be told their cores of."""
    if tp > 1:
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "|".join(map(str, range(tp))))
    model = served(tmp_path)
    engine = vllm.VllmEngine(model, cache_mb=256, tp=tp)
    prompts = [tuple(range(40 + i, 60 + i)) for i in range(16)]
    try:
        for _ in range(3):
            for given in ({}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}):
                samples = ask(engine, prompts, **given)
                for p, s in zip(prompts, samples, strict=True):
                    np.testing.assert_allclose(s.logp, logp(model, p, s.ids, **given), atol=1e-3)
                again = ask(engine, prompts, **given)
                assert [s.ids for s in samples] == [s.ids for s in again]
            greedy = ask(engine, prompts, temperature=0.0)
            assert [s.ids for s in greedy] == [s.ids for s in ask(OwnEngine(model), prompts, temperature=0.0)]
            with torch.no_grad():
                for p in model.trainable():
                    p.add_(0.1 * p.abs().mean() * torch.randn_like(p))
            engine.forget()
    finally:
        server, workers = engine._child.pid, children_of(engine._child.pid)
        engine.close()
    assert len(workers) >= tp * (tp > 1) and all(map(gone, [server, *workers]))


def children_of(pid):
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@torch.no_grad()
def logp(model, prompt, ids, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Of a continuation under the tempered and truncated distribution, one forward pass without any cache."""
    logits = model.logits(model.hidden(torch.tensor([[*prompt, *ids]]))[0])[len(prompt) - 1 : -1]
    n = len(ids)
    cut = (torch.full((n,), float(x)) for x in (top_k, top_p, min_p))
    return truncate((logits / temperature).log_softmax(-1), *cut).gather(1, torch.tensor(ids)[:, None])[:, 0]
