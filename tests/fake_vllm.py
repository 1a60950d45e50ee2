"""Runs the vLLM server over a stand-in for vLLM: deterministic, standard library only, with a log of what it was asked.

A request's tokens are those of its seed, after one that repeats the prompt's last; token i is the character i.
FAKE_VLLM_LOG: a file for one JSON line an event. FAKE_VLLM_DIES_AFTER: finished requests after which it breaks down.
FAKE_VLLM_WORKER: 1 = it starts a process.
FAKE_VLLM_LOADS: "" or a text of letters, one for each load, the start's first: "r" a right one, "w" one after which
log-probs are of other weights, "n" one after which they are no numbers.

Weights and cache are what it remembers of them: asleep at level 2 it has neither, woken it has room and no weights, and
whoever samples, loads or wakes out of order is told.
"""

import hashlib
import json
import math
import os
import random
import runpy
import subprocess
import sys
import time
import types
from pathlib import Path

LETTERS = list(range(97, 123))
CONTEXT = 400  # less than the model's, as a small cache would have it
LOADS = os.environ.get("FAKE_VLLM_LOADS", "")
DIES_AFTER = int(os.environ.get("FAKE_VLLM_DIES_AFTER", "1000000"))


def log(**event):
    if "FAKE_VLLM_LOG" in os.environ:
        with open(os.environ["FAKE_VLLM_LOG"], "a") as file:
            file.write(json.dumps(event) + "\n")


class Settings(types.SimpleNamespace):
    pass


class LoRARequest:
    def __init__(self, lora_name, lora_int_id, lora_path):
        self.lora_name, self.lora_int_id, self.lora_path = lora_name, lora_int_id, lora_path


class Engine:
    model_config = types.SimpleNamespace(max_model_len=CONTEXT)

    def __init__(self, settings):
        self.running, self.done, self.loads = {}, 0, 1
        self.lora_rank, self.lora, self.loras = getattr(settings, "max_lora_rank", 0), None, []
        assert not self.lora_rank or (settings.enable_lora and settings.max_loras == 1)
        self.room, self.loaded, self.may_sleep = {"weights", "kv_cache"}, True, settings.enable_sleep_mode
        log(
            start=sorted(vars(settings)),
            tp=settings.tensor_parallel_size,
            pid=os.getpid(),
            weights=digest(settings.model),
        )
        print("a library talks on standard output")
        if os.environ.get("FAKE_VLLM_WORKER"):
            log(worker=subprocess.Popen(["sleep", "600"]).pid)

    @classmethod
    def from_engine_args(cls, settings):
        return cls(settings)

    def has_unfinished_requests(self):
        return bool(self.running)

    def sleep(self, level):
        assert self.may_sleep and self.room and level == 2 and not self.running
        time.sleep(0.2)  # in which whoever does not wait has begun to learn
        self.room, self.loaded = set(), False
        log(asleep=True)

    def wake_up(self, tags):
        assert tags in (["weights"], ["kv_cache"]) and not self.room.intersection(tags)
        assert tags == ["weights"] or self.loaded, "the cache before the weights: both copies beside it"
        self.room |= set(tags)
        log(awake=tags)

    def add_request(self, name, prompt, params, lora_request=None):
        assert bool(self.lora_rank) == (lora_request is not None), "adapters are on, and none is named"
        assert lora_request is None or (lora_request.lora_int_id == self.lora and Path(lora_request.lora_path).is_dir())
        assert self.loaded and len(self.room) == 2, "it sleeps"
        rng = random.Random(params.seed)
        self.running[name] = (params, rng, [prompt["prompt_token_ids"][-1]])
        log(request=name, running=len(self.running), temperature=params.temperature, max_tokens=params.max_tokens)

    def step(self):
        """The youngest request first, so that answers come in another order than questions."""
        return [self.token(name) for name in reversed(list(self.running))]

    def token(self, name):
        params, rng, ids = self.running[name]
        ids.append(params.stop_token_ids[0] if rng.random() < 0.1 and params.stop_token_ids else rng.choice(LETTERS))
        finish = None
        if ids[-1] in params.stop_token_ids or any(s in "".join(map(chr, ids)) for s in params.stop):
            finish = "stop"
        elif len(ids) >= params.max_tokens:
            finish, ids[params.max_tokens :] = "length", []
        if finish:
            del self.running[name]
            self.done += 1
            if self.done > DIES_AFTER:
                raise RuntimeError("out of memory, says the fake")
        wrong = {"w": 0.001, "n": math.nan}.get(LOADS[self.loads - 1 : self.loads], 0.0)
        logprobs = [{i: types.SimpleNamespace(logprob=-math.log(len(LETTERS)) + wrong)} for i in ids]
        output = types.SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=finish)
        return types.SimpleNamespace(request_id=name, finished=bool(finish), outputs=[output])

    def collective_rpc(self, method, kwargs):
        assert "weights" in self.room, "no room for weights"
        self.loads, self.loaded = self.loads + 1, True
        log(rpc=method, weights=digest(kwargs["weights_path"]), running=len(self.running))

    def add_lora(self, lora):
        """One at a time, under a number that no other had: the cache tells adapters apart by it."""
        assert self.lora_rank and not self.running, "adapters moved under a request"
        assert self.lora is None and lora.lora_int_id > 0 and lora.lora_int_id not in self.loras, (
            "no room, or an old number"
        )
        config = json.loads((Path(lora.lora_path) / "adapter_config.json").read_text())
        assert config["r"] <= self.lora_rank, "a rank above max_lora_rank"
        self.lora, self.loads = lora.lora_int_id, self.loads + 1
        self.loras.append(lora.lora_int_id)
        weights = Path(lora.lora_path) / "adapter_model.safetensors"
        log(
            lora=lora.lora_int_id,
            bytes=weights.stat().st_size,
            weights=hashlib.sha256(weights.read_bytes()).hexdigest(),
        )
        return True

    def remove_lora(self, number):
        assert self.lora == number, "not there"
        self.lora = None
        return True

    def reset_prefix_cache(self):
        log(reset=True)


def digest(folder):
    return hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


if __name__ == "__main__":
    module("vllm", EngineArgs=Settings, LLMEngine=Engine, SamplingParams=Settings)
    module("vllm.sampling_params", RequestOutputKind=Settings(FINAL_ONLY="final"))
    module("vllm.lora")
    module("vllm.lora.request", LoRARequest=LoRARequest)
    module("vllm.platforms", current_platform=Settings(is_cpu=lambda: False))
    server = Path(__file__).parents[1] / "palaestra" / "engines" / "vllm_process" / "server.py"
    runpy.run_path(str(server), run_name="__main__")
