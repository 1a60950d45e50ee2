"""Samples with vLLM for a parent process: JSON lines in, JSON lines out.

Runs in an environment of its own (vLLM pins its torch and transformers), so it imports the standard
library and vLLM alone. Its one argument holds the settings as JSON; standard output carries answers
only, and all that libraries print goes to standard error. Lines of the parent, handled in their
order:

    {"generate": [{"id", "prompt", "temperature", "top_k", "top_p", "min_p", "max_tokens", "stop", "seed"}, ...]}
    {"update": FOLDER, "digests", "weights", "id"}  weights in place, once what is running has finished
    {"update": FOLDER, "adapters": true, ...}  adapters in the place of those before, on weights that stay
    {"sleep": true, "id"}  weights and cache leave the GPU, once what is running has finished; an update wakes it

Answers: {"id", "ids", "logp", "finish", "weights"} as each request ends, {"id", "seconds"} to an
update, {"id"} when it sleeps, {"id", "error"} to a request that vLLM refuses and to weights that are
not as they were written; of these nothing is loaded. "weights" is the number of the update that
samples, 0 before the first. Any other failure, a request while it sleeps among them, ends the
process. It also ends when the parent does, and takes the scratch folder along.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import hashlib
import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from typing import Any


def main() -> None:
    settings = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: Any = queue.SimpleQueue()
    threading.Thread(target=listen, args=(lines, settings["scratch"]), daemon=True).start()
    try:
        serve(start(settings), settings, lines, answers)
    except BaseException:
        traceback.print_exc()
        end(1)


def end(status: int) -> None:
    """At once: threads of vLLM keep nothing alive. Its worker processes go along, or, after an
    error, when the parent has seen the end of this one.
    """
    sys.stderr.flush()
    if os.getpgrp() == os.getpid() and status == 0:
        os.killpg(0, signal.SIGKILL)
    os._exit(status)


def listen(lines: Any, scratch: str) -> None:
    """Hands over the parent's lines. Their end is the parent's end, however it came."""
    for line in sys.stdin.buffer:
        lines.put(json.loads(line))
    shutil.rmtree(scratch, ignore_errors=True)
    end(0)


def memory() -> dict[str, float]:
    """The share of a GPU that vLLM may count on: the trainer has the rest."""
    import torch

    if not torch.cuda.is_available():
        return {}
    free, whole = torch.cuda.mem_get_info()
    return {"gpu_memory_utilization": min(0.9, 0.95 * free / whole)}


def start(settings: Any) -> Any:
    from vllm import EngineArgs, LLMEngine

    cpu = is_on_cpu()
    rank = settings["rank"]  # of adapters that come by themselves; 0 = none do
    adapters = {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1} if rank else {}
    if wrong := other_files(settings["model"], settings["digests"]):
        raise ValueError("the model's folder is not as it was written: " + wrong)
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=settings["model"],
            dtype=settings["dtype"],
            tensor_parallel_size=settings["tp"],
            enable_sleep_mode=settings["sleep"],
            max_num_seqs=settings["slots"],
            kv_cache_memory_bytes=settings["cache_mb"] << 20,
            **memory(),
            max_model_len=-1,  # the model's, or less where the cache holds less
            enforce_eager=cpu,  # compiling costs more there than it brings
            # 0.32 cannot rewind the generator of a seeded request there
            enable_chunked_prefill=False if cpu else None,
            enable_prefix_caching=True,  # a group shares its prompt
            # of the tempered and truncated distribution that is drawn from
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            **adapters,
        )
    )


def serve(engine: Any, settings: Any, lines: Any, answers: Any) -> None:
    """Decodes one token for every request between two looks at the parent's lines."""

    weights, asleep, lora = 0, False, None

    def answer(message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def step() -> None:
        for output in engine.step():
            if output.finished:
                answer({**read_output(output), "weights": weights})

    def finish() -> None:
        while engine.has_unfinished_requests():
            step()

    while True:
        while not engine.has_unfinished_requests() or not lines.empty():
            message = lines.get()
            if "sleep" in message:
                finish()
                engine.sleep(level=2)  # which keeps neither anywhere
                asleep = True
                answer({"id": message["id"]})
            if "update" in message:
                finish()
                if wrong := other_files(message["update"], message["digests"]):
                    error = f"update {message['weights']} is not as it was written: {wrong}"
                    answer({"id": message["id"], "error": error})
                elif message.get("adapters"):
                    begin = time.perf_counter()
                    lora = replace_adapters(engine, lora, message["update"], message["weights"])
                    weights = message["weights"]
                    answer({"id": message["id"], "seconds": time.perf_counter() - begin})
                else:
                    seconds = update(engine, message["update"], asleep)
                    weights, asleep = message["weights"], False
                    answer({"id": message["id"], "seconds": seconds})
            for request in message.get("generate", ()):
                if asleep:
                    raise RuntimeError("it sleeps, and was asked to sample before it had weights")
                try:
                    add(engine, request, settings["eos"], lora)
                except ValueError as error:
                    answer({"id": request["id"], "error": str(error)})
        step()


def add(engine: Any, request: Any, eos: Any, lora: Any) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    room = engine.model_config.max_model_len - len(request["prompt"])
    if room < 1:
        raise ValueError(
            f"a prompt of {len(request['prompt'])} tokens leaves no room; the cache is too small "
            "for it"
        )
    params = SamplingParams(
        temperature=request["temperature"],
        top_k=request["top_k"],
        top_p=request["top_p"],
        min_p=request["min_p"],
        max_tokens=min(request["max_tokens"], room),
        seed=request["seed"],
        stop=request["stop"],
        stop_token_ids=eos,
        skip_special_tokens=False,
        include_stop_str_in_output=True,
        logprobs=0,  # of the chosen token alone
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    prompt = {"prompt_token_ids": request["prompt"]}
    given = {} if lora is None else {"lora_request": lora}
    engine.add_request(str(request["id"]), prompt, params, **given)


def read_output(output: Any) -> Any:
    done = output.outputs[0]
    ids = list(done.token_ids)
    logp = [entry[token].logprob for token, entry in zip(ids, done.logprobs)]  # noqa: B905 (Python 3.9 too)
    return {"id": int(output.request_id), "ids": ids, "logp": logp, "finish": done.finish_reason}


def other_files(folder: str, digests: Any) -> str:
    """The names of files that are missing, or whose bytes are others than were written."""
    return ", ".join(n for n, d in digests.items() if digest(os.path.join(folder, n)) != d)


def digest(path: str) -> str:
    """SHA-256 of a file; "" = there is none."""
    if not os.path.exists(path):
        return ""
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    return sha256.hexdigest()


def update(engine: Any, folder: str, asleep: bool) -> float:
    """The weights of a folder, in place: vLLM packs and fuses them as it did when it started.

    The cache of one that slept gets its memory back last, so that it never lies beside two copies
    of the weights.
    """
    begin = time.perf_counter()
    if asleep:
        engine.wake_up(tags=["weights"])
    engine.collective_rpc("reload_weights", kwargs={"weights_path": folder})
    if is_on_cpu():
        engine.collective_rpc(repack_head)
    if asleep:
        engine.wake_up(tags=["kv_cache"])
    engine.reset_prefix_cache()
    return time.perf_counter() - begin


def replace_adapters(engine: Any, before: Any, folder: str, number: int) -> Any:
    """The request for the adapters of a folder, which is loaded in the place of the one before. Each
    has a name and a number of its own, by which vLLM knows what it has cached.
    """
    from vllm.lora.request import LoRARequest

    if before is not None:
        engine.remove_lora(before.lora_int_id)
    lora = LoRARequest(f"update-{number}", number, folder)
    if engine.add_lora(lora) is False:
        raise RuntimeError(f"vLLM did not take the adapters of update {number}")
    engine.reset_prefix_cache()
    return lora


def repack_head(worker: Any) -> None:
    """A tied head shares the tensor of the embedding, but on a CPU it computes with a packed copy,
    which a reload leaves old.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in worker.get_model().modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


def is_on_cpu() -> bool:
    from vllm.platforms import current_platform

    return current_platform.is_cpu()


if __name__ == "__main__":
    main()
