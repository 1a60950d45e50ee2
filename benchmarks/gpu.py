"""One slice of `palaestra bench gpu` in a process of its own: `python -m benchmarks.gpu
REQUEST`. It says what it does in lines of JSON, its machine first and its result last.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import memory, step, trl
from benchmarks.engine import prompts_of, sample_seconds
from benchmarks.exactness import check_laws, measure_gap
from benchmarks.random_models import model_folder
from benchmarks.slices import RANK, Slice, scale_of, slice_of, work_of
from benchmarks.turns import interleave
from benchmarks.work import Work
from palaestra.context import Engine
from palaestra.engines.own import OwnEngine
from palaestra.engines.probe import digests
from palaestra.engines.vllm import SHARED_MEMORY, VllmEngine, interpreter, write_merged
from palaestra.errors import PalaestraError, UserError
from palaestra.models.load import ADAPTER, Model, load, save_adapters
from palaestra.models.lora import LoRA
from palaestra.planning.paper import config_of
from palaestra.run import machine
from palaestra.run.parts import Parts
from palaestra.scale.weights import Publication, check_publication, in_buckets
from palaestra.services.lines import answer_sender, questions
from palaestra.terminal.progress import Headway
from palaestra.types import value_class

POSITIONS = 4096  # tokens that a model of random weights has places for
SHARE = 0.8  # of the time limit, in which rounds are begun


@value_class
class Job:
    """A slice under way."""

    slice: Slice
    device: str
    left: Callable[[], float]  # seconds in which rounds may still be begun
    say: Callable[[str], None]  # what is measured at the moment

    def parts(self) -> Parts:
        """Of one measurement, within the slice's time; a slice is kept as a whole."""
        return Parts(Headway(self.slice.name, say=lambda text: None), left=self.left)


def measure_exactness(job: Job) -> dict[str, Any]:
    """Laws on the embedded model; gaps of it and of a larger one, in both precisions, and of vLLM
    in the one that it is used with.
    """
    scale, work = scale_of(job.device), work_of(job.slice, job.device)
    groups, tokens = scale.prompts, min(64, scale.tokens)
    job.say("laws")
    checks, gaps = check_laws(job.device, groups, tokens), list[dict[str, Any]]()
    for name, dtype in ((n, d) for n in ("tiny", work.model) for d in ("float32", "bfloat16")):
        job.say(f"log-probs of {name} in {dtype}")
        model = load(name, dtype=dtype, device=job.device)
        gaps.append(measure_gap(model, OwnEngine(model), "own", groups, tokens))
        if has_vllm() and name == work.model and dtype == work.dtype:
            other = VllmEngine(model, slots=64, cache_mb=scale.cache_mb)
            try:
                gaps.append(measure_gap(model, other, "vllm", groups, tokens))
            finally:
                other.close()
    return {"checks": checks, "gaps": gaps}


def measure_engine(job: Job) -> dict[str, Any]:
    """Tokens a second by batch size: with CUDA graphs, without, and of vLLM where it is installed;
    beside the rate at which weights, keys and values can be read.
    """
    scale, work = scale_of(job.device), work_of(job.slice, job.device)
    model = load(work.model, dtype=work.dtype, device=job.device)
    model.eos = frozenset()  # all answers have their full length
    most = max(scale.batches)
    graphs, launches = (OwnEngine(model, slots=most, cache_mb=scale.cache_mb) for _ in range(2))
    launches.decoder.graphs = None
    engines: dict[str, Engine] = {"graphs": graphs, "launches": launches}
    if has_vllm():
        engines["vllm"] = VllmEngine(model, slots=most, cache_mb=scale.cache_mb)
    copies = machine.bandwidth(model.device)
    try:
        batches = [batch_rates(job, model, engines, n, copies) for n in scale.batches]
    finally:
        for engine in engines.values():
            engine.close()
    return {
        "copy_bytes": copies,
        "weight_bytes": weight_bytes(model),
        "token_bytes": graphs.decoder.token_bytes,
        "batches": batches,
    }


def batch_rates(
    job: Job, model: Model, engines: Mapping[str, Engine], n: int, copies: float
) -> dict[str, Any]:
    """`n` sequences at a time; ratios of seconds a token, over those with CUDA graphs. An engine of
    ours begins every round as after an update, without keys, values and graphs.
    """
    scale = scale_of(job.device)
    rounds = job.parts().rounds(f"{n} at a time", scale.rounds)
    for r in rounds:
        job.say(f"{n} at a time, round {r} of {scale.rounds}")
        prompts, spent = prompts_of(model, n, scale.prompt_tokens, r), dict[str, float]()
        for name, engine in engines.items():
            before = engine.sampled_tokens
            seconds = sample_seconds(engine, prompts, [scale.tokens] * n)
            if isinstance(engine, OwnEngine):
                engine.forget()
            spent[name] = seconds / (engine.sampled_tokens - before)  # a token
        rounds.put(spent)
    first = engines["graphs"]
    assert isinstance(first, OwnEngine)
    held = n * (scale.prompt_tokens + scale.tokens / 2) * first.decoder.token_bytes
    arrays = {name: np.array([spent[name] for spent in rounds.found]) for name in engines}
    over = [name for name in ("launches", "vllm") if name in arrays]
    return {
        "batch": n,
        "rates": {name: 1 / float(np.median(s)) for name, s in arrays.items()},
        "ratios": {name: machine.spread(arrays[name] / arrays["graphs"]) for name in over},
        "limit": n * copies / (weight_bytes(model) + held),
    }


def weight_bytes(model: Model) -> float:
    """What a decode step reads of the weights."""
    return machine.Linears(model).flops(1, 1) / 2 * model.dtype.itemsize


def measure_update(job: Job) -> dict[str, Any]:
    """Steps by the number of positions that a training forward pass may hold."""
    work, passes = work_of(job.slice, job.device), list[dict[str, Any]]()
    for budget in scale_of(job.device).budgets:
        job.say(f"steps with {budget} positions a pass")
        measured = step.measure(
            replace(work, budget=budget), scale_of(job.device).rounds, job.parts()
        )
        passes.append({"budget": budget, **measured})
        free_memory()
    return {"passes": passes}


def measure_trl(job: Job) -> dict[str, Any]:
    """As `palaestra bench trl` does."""
    job.say("steps of both in turn")
    return trl.measure(work_of(job.slice, job.device), scale_of(job.device).rounds, job.parts())


def measure_memory(job: Job) -> dict[str, Any]:
    """As `palaestra bench memory` does, with recomputing and without."""
    work = work_of(job.slice, job.device)
    job.say("two steps without recomputing, and two with it")
    return memory.peaks_of([replace(work, recompute=r) for r in (False, True)], 2, job.parts())


def measure_lora(job: Job) -> dict[str, Any]:
    """Steps that train adapters, between steps that train all weights."""
    work = work_of(job.slice, job.device)
    measured = compare_steps(job, {"full": work, "lora": replace(work, lora=RANK)})
    return {"rank": RANK, **measured, "ratios": measured["ratios"]["lora"]}


def measure_qlora(job: Job) -> dict[str, Any]:
    """Steps that train adapters on weights in 4 bits, between steps that train them on others."""
    work = work_of(job.slice, job.device)
    works = {"lora": work, "qlora": replace(work, load_in_4bit=True)}
    return {"rank": RANK, **compare_steps(job, works)}


def measure_optim(job: Job) -> dict[str, Any]:
    """Steps by where and in how many bits the optimiser's moments lie."""
    work = work_of(job.slice, job.device)
    kinds = ("", "adamw_8bit", "paged_adamw_8bit")
    return compare_steps(job, {k or "adamw": replace(work, optim=k) for k in kinds})


def compare_steps(job: Job, works: Mapping[str, Work]) -> dict[str, Any]:
    """Steps of several kinds of work in turn: seconds, memory, and the first's seconds over each
    other's, by phase.
    """
    job.say("steps in turn")
    rounds = job.parts().rounds("round", scale_of(job.device).rounds)
    steps = interleave({n: ("benchmarks.own", w) for n, w in works.items()}, rounds)
    phases = ("seconds", "rollout", "forward", "backward", "optimiser")
    first, *others = steps
    return {
        "seconds": {n: float(np.median([s["seconds"] for s in each])) for n, each in steps.items()},
        "ratios": {
            n: {p: trl.phase_ratios(steps[first], steps[n], p) for p in phases} for n in others
        },
        "memory_mb": {n: trl.memory_peaks(each) for n, each in steps.items()},
    }


def measure_publish(job: Job) -> dict[str, Any]:
    """Seconds and bytes of handing over what a step moved: an object for other processes and its
    check, files for vLLM, and the time until a server of vLLM has passed its probe. Of all weights,
    of adapters, and of adapters on weights in 4 bits, which vLLM can also take merged.
    """
    work, kinds = work_of(job.slice, job.device), list[dict[str, Any]]()
    for name, lora in publications().items():
        job.say(f"the model for {name}")
        model = load(work.model, dtype=work.dtype, device=job.device, lora=lora)
        kinds += [publish_times(job, model, name, alone) for alone in ways_of(lora)]
        del model
        free_memory()
    return {"rank": RANK, "kinds": kinds}


def publications() -> dict[str, LoRA | None]:
    """What is handed over, by how its model is trained."""
    made = {"all weights": None, "adapters": LoRA(rank=RANK)}
    four = {"adapters on 4 bits": LoRA(rank=RANK, load_in_4bit=True)}
    return made | (four if find_spec("bitsandbytes") else {})


def ways_of(lora: LoRA | None) -> tuple[bool, ...]:
    """Whether vLLM gets adapters alone."""
    return (False,) if lora is None else (False, True)


def publish_times(job: Job, model: Model, name: str, alone: bool) -> dict[str, Any]:
    """Of one kind, round by round."""
    scale, models = scale_of(job.device), {"policy": model}
    rounds = job.parts().rounds(f"{name}, {'alone' if alone else 'merged'}", scale.rounds)
    server = (
        VllmEngine(model, slots=1, cache_mb=scale.cache_mb, adapters=alone) if has_vllm() else None
    )
    try:
        for r in rounds:
            job.say(f"{name}, {'alone' if alone else 'merged'}, round {r} of {scale.rounds}")
            spent = object_seconds(models)
            with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
                spent |= file_seconds(model, Path(folder), alone)
            if server is not None:
                spent["vllm"] = server_seconds(server)
            rounds.put(spent)
    finally:
        if server is not None:
            server.close()
    spans = {k: machine.spread(np.array([s[k] for s in rounds.found])) for k in rounds.found[0]}
    return {"name": name, "alone": alone, **spans}


def object_seconds(models: Mapping[str, Model]) -> dict[str, float]:
    """Making objects of what moves, with its sums, and checking them where they arrive."""
    begin = time.perf_counter()
    buckets = {n: in_buckets(m.named_trainable().items()) for n, m in models.items()}
    weights = {n: b for n, (b, _) in buckets.items()}
    publication = Publication(step=0, weights=weights, sums={n: s for n, (_, s) in buckets.items()})
    made = time.perf_counter()
    check_publication(publication, 0, models)
    size = sum(a.nbytes for of in weights.values() for bucket in of for a in bucket().values())
    return {"object": made - begin, "check": time.perf_counter() - made, "object_mb": size / 1e6}


def file_seconds(model: Model, folder: Path, alone: bool) -> dict[str, float]:
    """Writing what vLLM reads, and its digests."""
    begin = time.perf_counter()
    if alone:
        save_adapters(model, folder)
    else:
        write_merged(model, folder)
    written = time.perf_counter()
    digests(folder / ADAPTER if alone else folder)
    size = sum(f.stat().st_size for f in folder.rglob("*.safetensors"))
    return {
        "write": written - begin,
        "digests": time.perf_counter() - written,
        "files_mb": size / 1e6,
    }


def memory_folder() -> Path | None:
    """Where the engine of vLLM has its files too; None = there is no such place."""
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() else None


def server_seconds(engine: VllmEngine) -> float:
    """Until a running server has new weights and has passed its probe."""

    async def update() -> float:
        await engine.updated()
        engine.forget()
        begin = time.perf_counter()
        await engine.updated()
        return time.perf_counter() - begin

    return asyncio.run(update())


KINDS: Mapping[str, Callable[[Job], dict[str, Any]]] = {
    "exactness": measure_exactness,
    "engine": measure_engine,
    "update": measure_update,
    "trl": measure_trl,
    "memory": measure_memory,
    "lora": measure_lora,
    "qlora": measure_qlora,
    "optim": measure_optim,
    "publish": measure_publish,
}


def has_vllm() -> bool:
    """Whether an engine of vLLM can be started; see docs/engines.md."""
    try:
        interpreter()
    except UserError:
        return False
    return True


def free_memory() -> None:
    """Gives back what nobody holds."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def end_with_parent() -> None:
    """Takes the workers along: the process leads a group of its own."""
    for _ in questions():
        pass
    os.killpg(0, signal.SIGKILL)


def measure_slice(request: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Tells the machine, what is done at the moment, and the result of the slice asked for."""
    begin, device, models = time.monotonic(), request["device"], Path(request["models"])
    which = slice_of(request["slice"])
    beside = machine.versions(which.needs)
    tell({"machine": machine.describe_machine(device) | beside})
    name = work_of(which, device).model
    tell({"at": f"the model {name}"})
    model_folder(name, config_of(scale_of(device).shapes[name], POSITIONS), models, device)
    free_memory()
    os.chdir(models)  # so that the result names the model, and not a folder of this machine
    job = Job(
        slice=which,
        device=device,
        left=lambda: begin + SHARE * request["limit"] - time.monotonic(),
        say=lambda text: tell({"at": text}),
    )
    result = KINDS[which.kind](job)
    tell({"work": asdict(work_of(which, device)), "result": result})


def main() -> None:
    tell = answer_sender()
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        measure_slice(json.loads(sys.argv[1]), tell)
    except Exception as error:
        traceback.print_exc()
        # of a worker's last words the very last
        last = next(iter(str(error).splitlines()), "").rpartition(" | ")[2]
        named = isinstance(error, PalaestraError)
        tell({"why": last if named else f"{type(error).__name__}: {last}"})
        sys.exit(1)


if __name__ == "__main__":
    main()
