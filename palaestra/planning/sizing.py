"""A step of GRPO on GPUs that nobody has rented yet: memory of each device by part, seconds of each
call, and what breaks first. Nothing here was measured; every number follows from the dimensions of
a model, the data sheet of a GPU and the `Assumptions`, which are the same for all models.

    token of the decoder   max(2 active b / (t F),  (weights read + b context KV) / (t B)) + overhead
    log-probs              (2 active T + 2 layers width sum S^2) / (n F)
    update                 four times that (forward, again, backward twice), or the traffic of shards
    weights                2 P bytes into each rollout replica

P = parameters, active = those that a token meets, T = tokens of the step, S = tokens of a row,
b = answers that are decoded at once, t = GPUs of a rollout replica, n = of the learner, F and B =
the assumed shares of the data sheet's FLOP/s and bytes/s.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.planning.model_sizes import BYTES, SHORT, ModelSize, size_named
from palaestra.types import rng_of, value_class

# bytes of a trained weight as `scale.sharded` holds its share: float32, its gradient and two moments;
# together they are `paper.STATE`
WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
LOGITS = 3 * 4  # bytes of a logit: itself, its log-prob, its gradient in float32
GB = 1e9
TENSORS = (1, 2, 4, 8)  # GPUs of a rollout replica that are tried


@value_class
class Gpu:
    """A data sheet: dense bfloat16 FLOP/s, bytes/s of the memory, GB, bytes/s to a GPU of the same
    node in one direction, and bytes/s of the GPU's share of the network.
    """

    name: str
    flops: float
    bandwidth: float
    gb: float
    inside: float
    across: float


GPUS = {
    g.name: g
    for g in (
        Gpu(name="a100", flops=312e12, bandwidth=2.039e12, gb=80, inside=300e9, across=25e9),
        Gpu(name="a800", flops=312e12, bandwidth=2.039e12, gb=80, inside=200e9, across=25e9),
        Gpu(name="h100", flops=989e12, bandwidth=3.35e12, gb=80, inside=450e9, across=50e9),
        Gpu(name="h800", flops=989e12, bandwidth=3.35e12, gb=80, inside=200e9, across=50e9),
        Gpu(name="h200", flops=989e12, bandwidth=4.8e12, gb=141, inside=450e9, across=50e9),
        Gpu(name="h20", flops=148e12, bandwidth=4.0e12, gb=96, inside=450e9, across=50e9),
    )
}


@value_class
class Assumptions:
    """What a prediction takes for granted, the same for every model and GPU."""

    flops: float = 0.4  # of the data sheet's FLOP/s in products, as `paper.FLOPS` has it
    bandwidth: float = 0.6  # of the data sheet's bytes/s in decoding
    links: float = 0.7  # of the data sheet's bytes/s between GPUs
    token: float = 3e-3  # seconds that a decode step of the engine takes beside the model
    latency: float = 15e-6  # seconds of a collective
    memory: float = 0.9  # of a GPU's memory that is used
    context: float = 0.8  # GB that CUDA and the allocator take, as in `fit.CONTEXT`
    host: float = 25e9  # bytes/s of a GPU's way to the machine's memory
    at_once: int = 1024  # answers that an engine decodes at once, at most
    micro: int = 16384  # tokens of a micro-batch of the learner, or the longest row
    chunk: int = 1024  # positions whose logits exist at the same time
    per_node: int = 8
    sigma: float = 1.0  # of the logarithm of an answer's length

    def rate(self, gpu: Gpu, gpus: int) -> float:
        """Bytes/s that a GPU receives in a collective of so many: within a node by its links, else
        by the slower of them and all network cards of a node.
        """
        wide = gpu.inside if gpus <= self.per_node else min(gpu.inside, gpu.across * self.per_node)
        return self.links * wide

    def lines(self, gpu: Gpu) -> list[str]:
        """A line for each."""
        return [
            f"{gpu.name}: {gpu.flops / 1e12:g} TFLOP/s in bfloat16, {gpu.bandwidth / 1e12:g} TB/s, {gpu.gb:g} GB, "
            f"{gpu.inside / GB:g} GB/s to a GPU of the node, {gpu.across / GB:g} GB/s of network each (data sheets)",
            f"products reach {self.flops:.0%} of that, decoding {self.bandwidth:.0%} of the bytes/s, links {self.links:.0%}; "
            f"a collective takes {self.latency * 1e6:g} us, nodes have {self.per_node} GPUs",
            f"a decode step of the engine takes {self.token * 1e3:g} ms beside the model, and at most {self.at_once:,} answers",
            f"answers are log-normal, sigma {self.sigma:g}, with the mean that is given, cut at the longest; the engine "
            "reads each prompt once a group and keeps it once an answer",
            "the learner shards float32 weights, gradients and moments (16 bytes a weight) over its GPUs, and computes "
            f"layers again in the backward pass; {self.micro:,} tokens a micro-batch; logits of {self.chunk:,} "
            "positions at a time",
            "gathering weights overlaps with arithmetic: the longer of both counts; one update a step",
            f"{self.memory:.0%} of a GPU's memory is used, {self.context:g} GB of it by CUDA; colocated learners wait in the "
            f"machine's memory while answers are sampled, {self.host / GB:g} GB/s each way",
            "nothing is judged, evaluated or written, and nothing fails",
        ]  # fmt: skip


@value_class
class Work:
    """A step: so many prompts, answers to each, and their tokens."""

    prompts: int
    group: int
    prompt_tokens: int
    answer_tokens: float  # mean
    max_tokens: int  # of an answer
    references: int = 0  # frozen models that read every answer
    old: int = 1  # passes of the learner for log-probs of the sampled tokens
    lora: int = 0

    @property
    def answers(self) -> int:
        return self.prompts * self.group

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return self.prompt_tokens + self.max_tokens

    @property
    def tokens(self) -> float:
        """Of all rows."""
        return self.answers * (self.prompt_tokens + self.answer_tokens)


@lru_cache(maxsize=64)
def normal_quantiles(n: int) -> np.ndarray:
    """The middles of n equal shares of the normal distribution, ascending."""
    return np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])


@lru_cache(maxsize=256)
def answer_lengths(mean: float, longest: int, sigma: float, n: int) -> np.ndarray:
    """n quantiles of a log-normal distribution that is cut at the longest, with this mean.

    Raises:
        UserError: no answer is as long as the mean.
    """
    if mean > longest:
        raise UserError(
            f"answers of {mean:g} tokens on average are longer than --max-tokens {longest}"
        )
    if sigma == 0 or mean == longest:
        return np.full(n, mean)
    z_N = normal_quantiles(n)
    low, high = 1.0, float(longest) * math.exp(4 * sigma)
    for _ in range(60):
        median = math.sqrt(low * high)
        if np.minimum(median * np.exp(sigma * z_N), longest).mean() < mean:
            low = median
        else:
            high = median
    return np.minimum(math.sqrt(low * high) * np.exp(sigma * z_N), longest)


# ---- memory


def learner_parts(size: ModelSize, gpus: int, work: Work, assume: Assumptions) -> dict[str, float]:
    """GB of a GPU of the learner by part, at least: a micro-batch of one longest row."""
    rank = work.lora
    trained = size.adapter_weights(rank) if rank else size.parameters
    still = size.parameters if rank else 0.0
    layer = size.layer_parameters
    kept = (
        size.layers * size.hidden + 12 * size.hidden + 4 * size.middle
    )  # as `Model.position_bytes`
    parts = {
        "weights": BYTES * still + WEIGHT * trained,
        "gradients": GRADIENT * trained,
        "moments": MOMENTS * trained,
    }
    shards = {name: x / gpus / GB for name, x in parts.items()}
    return shards | {
        "gathered": (2 * BYTES * layer if gpus > 1 else 0.0) / GB,
        "activations": (BYTES * kept * work.longest + LOGITS * size.vocabulary * min(assume.chunk, work.longest)) / GB,
        "context": assume.context,
    }  # fmt: skip


def sampler_parts(
    size: ModelSize, tensor: int, work: Work, assume: Assumptions
) -> dict[str, float]:
    """GB of a GPU of a rollout replica by part; `answer` = keys and values of one longest answer."""
    return {
        "weights": BYTES * size.parameters / tensor / GB,
        "context": assume.context,
        "answer": size.cache_bytes * work.longest / tensor / GB,
    }


def answers_at_once(
    size: ModelSize, gpu: Gpu, tensor: int, tokens: float, assume: Assumptions
) -> int:
    """Answers of so many tokens, prompt included, whose keys and values a replica holds."""
    room = tensor * (assume.memory * gpu.gb - assume.context) * GB - BYTES * size.parameters
    return max(0, int(room / (size.cache_bytes * tokens)))


def first_rank_gb(size: ModelSize, gpus: int, work: Work, assume: Assumptions) -> float:
    """GB that the first rank of Palaestra's learner needs at most, by its code and not by a run: it
    keeps the whole model in bfloat16 beside its share, which it cuts from copies of one layer at a time,
    in float32 where weights are trained.
    """
    each = learner_parts(size, gpus, work, assume)
    parts = sum(each.values())
    if gpus == 1:
        return parts
    whole = BYTES * size.parameters / GB
    layer = (BYTES if work.lora else WEIGHT) * size.layer_parameters / GB
    return whole + max(each["weights"] + layer + assume.context, parts)


def least_learner(size: ModelSize, gpu: Gpu, work: Work, assume: Assumptions, most: int) -> int:
    """The fewest GPUs whose shards fit; 0 = more than `most`."""
    return next((n for n in range(1, most + 1) if fits(size, gpu, n, work, assume)), 0)


def fits(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> bool:
    """Whether the learner fits on so many GPUs."""
    return sum(learner_parts(size, gpus, work, assume).values()) <= assume.memory * gpu.gb


def least_tensor(size: ModelSize, gpu: Gpu, work: Work, assume: Assumptions, most: int) -> int:
    """The fewest GPUs of a replica that hold the weights and one longest answer; 0 = more."""
    for tensor in TENSORS:
        if tensor <= most and answers_at_once(size, gpu, tensor, work.longest, assume) >= 1:
            return tensor
    return 0


# ---- seconds


@value_class
class SampledStep:
    """Sampling of a step's answers by replicas of `tensor` GPUs; `slots` = answers at once."""

    seconds: float
    prefill: float
    slots: int
    tail: float  # share of the seconds in which less than half of the slots are in use


def decode_seconds(
    size: ModelSize, gpu: Gpu, tensor: int, answers: np.ndarray, context: np.ndarray,
    assume: Assumptions,
) -> np.ndarray:  # fmt: skip
    """Seconds of a decode step.

    Args:
        answers: that get a token.
        context: tokens of all of them whose keys and values are read.
    """
    arithmetic = 2 * size.active * answers / (tensor * gpu.flops * assume.flops)
    read = size.read_bytes(answers) + size.cache_bytes * context
    reading = read / (tensor * gpu.bandwidth * assume.bandwidth)
    sums = 0.0
    if tensor > 1:
        share = 2 * (tensor - 1) / tensor * BYTES * size.hidden * answers
        sums = 2 * size.layers * (assume.latency + share / assume.rate(gpu, tensor))
    return np.maximum(arithmetic, reading) + sums + assume.token


def prefill_seconds(
    size: ModelSize, gpu: Gpu, tensor: int, tokens: float, assume: Assumptions
) -> float:
    """Seconds of reading so many tokens of prompts."""
    return 2 * size.active * tokens / (tensor * gpu.flops * assume.flops)


def rollout(
    size: ModelSize, gpu: Gpu, gpus: int, tensor: int, work: Work, assume: Assumptions
) -> SampledStep:
    """Continuous batching: a slot that is free takes the next answer; all replicas get the same
    lengths, in an order that is drawn once.

    Raises:
        UserError: no answer fits.
    """
    replicas = gpus // tensor
    n = math.ceil(work.answers / replicas)
    slots = answers_at_once(size, gpu, tensor, work.prompt_tokens + work.answer_tokens, assume)
    slots = min(n, slots, assume.at_once)
    if slots < 1:
        raise UserError(
            f"{size.name}: {tensor} x {gpu.name} do not hold its weights and one answer"
        )
    length_N = np.ceil(answer_lengths(work.answer_tokens, work.max_tokens, assume.sigma, n)).astype(
        int
    )
    length_N = length_N[rng_of((0, "lengths")).permutation(n)]
    free, start_N = [0] * slots, np.zeros(n, int)
    for i, length in enumerate(length_N.tolist()):
        start_N[i] = free[0]
        heapq.heapreplace(free, free[0] + length)
    end_N = start_N + length_N
    steps = int(end_N.max())
    change = lambda weights: np.cumsum(
        np.bincount(start_N, weights, steps + 1) - np.bincount(end_N, weights, steps + 1)
    )[:steps]
    answers_T, started_T = change(None), change(start_N.astype(float))
    context_T = answers_T * (work.prompt_tokens + np.arange(steps)) - started_T
    each_T = decode_seconds(size, gpu, tensor, answers_T, context_T, assume)
    prefill = prefill_seconds(size, gpu, tensor, n / work.group * work.prompt_tokens, assume)
    decode = float(each_T.sum())
    return SampledStep(
        seconds=prefill + decode,
        prefill=prefill,
        slots=slots,
        tail=float(each_T[answers_T < slots / 2].sum()) / (prefill + decode),
    )


def endless_seconds(
    size: ModelSize, gpu: Gpu, gpus: int, tensor: int, work: Work, assume: Assumptions
) -> float:
    """Seconds of as many tokens as a step has where all slots are always in use, as with answers of
    later steps under way: no tail.
    """
    slots = answers_at_once(size, gpu, tensor, work.prompt_tokens + work.answer_tokens, assume)
    slots = min(max(1, slots), assume.at_once)
    length_N = answer_lengths(work.answer_tokens, work.max_tokens, assume.sigma, 1000)
    live = work.prompt_tokens + float((length_N**2).mean() / length_N.mean()) / 2
    each = decode_seconds(size, gpu, tensor, np.array([slots]), np.array([slots * live]), assume)
    rate = (gpus // tensor) * slots / float(each[0])
    prefill = prefill_seconds(size, gpu, gpus, work.prompts * work.prompt_tokens, assume)
    return prefill + work.answers * work.answer_tokens / rate


def pass_flops(size: ModelSize, work: Work, assume: Assumptions) -> float:
    """FLOPs of a forward pass over all rows: 2 a parameter and token, and attention to what precedes."""
    row_N = work.prompt_tokens + answer_lengths(
        work.answer_tokens, work.max_tokens, assume.sigma, 1000
    )
    squares = work.answers * float((row_N**2).mean())
    return 2 * size.active * work.tokens + 2 * size.layers * size.attention * squares


def gather_seconds(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> float:
    """Seconds of sending every weight to every GPU, once for each micro-batch of a step."""
    batches = max(1.0, work.tokens / gpus / max(assume.micro, work.longest))
    return batches * BYTES * size.parameters * (gpus - 1) / gpus / assume.rate(gpu, gpus)


def log_prob_seconds(
    size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions
) -> float:
    """Seconds of one model's log-probs of all rows."""
    arithmetic = pass_flops(size, work, assume) / (gpus * gpu.flops * assume.flops)
    return max(arithmetic, gather_seconds(size, gpu, gpus, work, assume))


def update_seconds(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> float:
    """Seconds of forward, forward again and backward over all rows, and of the optimiser. Below
    adapters the backward pass takes one pass instead of two.
    """
    passes, traffic = (3, 2) if work.lora else (4, 3)
    arithmetic = passes * pass_flops(size, work, assume) / (gpus * gpu.flops * assume.flops)
    moved = traffic * gather_seconds(size, gpu, gpus, work, assume)
    trained = size.adapter_weights(work.lora) if work.lora else size.parameters
    state = 2 * (WEIGHT + GRADIENT + MOMENTS) * trained / gpus
    return max(arithmetic, moved) + state / (gpu.bandwidth * assume.bandwidth)


def learn_seconds(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> float:
    """Seconds of all log-probs and the update."""
    forwards = work.old + work.references
    passes = forwards * log_prob_seconds(size, gpu, gpus, work, assume)
    return passes + update_seconds(size, gpu, gpus, work, assume)


def publish_seconds(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> float:
    """Seconds of sending what changed to the rollout replicas, as a broadcast of all nodes at once."""
    moved = 4 * size.adapter_weights(work.lora) if work.lora else BYTES * size.parameters
    return moved / assume.rate(gpu, gpus)


def switch_seconds(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> float:
    """Seconds of a colocated learner's way into the machine's memory and back, and of handing
    weights to the engine on the same GPUs.
    """
    parts = learner_parts(size, gpus, work, assume)
    state = GB * (parts["weights"] + parts["moments"])
    return 2 * state / assume.host + publish_seconds(size, gpu, gpus, work, assume)


# ---- a plan


@value_class
class GpuUse:
    """A way to use the GPUs; `step` = seconds."""

    name: str
    tensor: int  # GPUs of a rollout replica
    sampling: int  # GPUs
    learning: int
    step: float
    rollout: float
    log_probs: float
    update: float
    weights: float  # sending them, or switching
    slots: int
    here: str  # what Palaestra does of it


NO_WAY = "not built: of several ranks only the first samples"
ONE_GPU = "built, for one GPU"
UNTRIED = "built, tested on processors; not tried on several GPUs"
TOO_LARGE = "built, and too large for its first rank"


def here(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> str:
    """Whether Palaestra's learner of so many ranks would hold the model."""
    holds = first_rank_gb(size, gpus, work, assume) <= assume.memory * gpu.gb
    return UNTRIED if holds else TOO_LARGE


def ways(
    size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions = Assumptions(),
    tensor: int = 0, sampling: int = 0,
) -> list[GpuUse]:  # fmt: skip
    """Colocated, and separate with no lag, one step of lag and any lag, each with its best replicas and
    its best split of the GPUs; what does not fit is left out.

    Args:
        tensor: GPUs of a rollout replica; 0 = the best of those that hold the weights and an answer.
        sampling: GPUs that sample where these are separate; 0 = the best of all splits.
    """
    least = tensor or least_tensor(size, gpu, work, assume, gpus)
    if not least or not answers_at_once(size, gpu, least, work.longest, assume):
        return []
    rows = list[GpuUse]()
    for t in [tensor] if tensor else [t for t in TENSORS if least <= t <= gpus]:
        if fits(size, gpu, gpus, work, assume) and gpus % t == 0:
            rows.append(colocated(size, gpu, gpus, t, work, assume))
        for g in [sampling] if sampling else split_choices(gpus, t):
            if fits(size, gpu, gpus - g, work, assume):
                rows.extend(separate(size, gpu, (g, gpus - g), t, work, assume))
    best = lambda name: min((r for r in rows if r.name == name), key=lambda r: r.step)
    return [best(name) for name in dict.fromkeys(r.name for r in rows)]


def split_choices(gpus: int, tensor: int) -> list[int]:
    """GPUs that sample: at most sixteen choices, whole replicas."""
    jump = tensor * max(1, gpus // (16 * tensor))
    return [g for g in range(jump, gpus, jump) if g % tensor == 0]


def colocated(
    size: ModelSize, gpu: Gpu, gpus: int, tensor: int, work: Work, assume: Assumptions
) -> GpuUse:
    """All GPUs sample, then learn."""
    sampled = rollout(size, gpu, gpus, tensor, work, assume)
    forwards = (work.old + work.references) * log_prob_seconds(size, gpu, gpus, work, assume)
    update = update_seconds(size, gpu, gpus, work, assume)
    switch = switch_seconds(size, gpu, gpus, work, assume)
    return GpuUse(
        name="colocated", tensor=tensor, sampling=gpus, learning=gpus,
        step=sampled.seconds + forwards + update + switch, rollout=sampled.seconds,
        log_probs=forwards, update=update, weights=switch, slots=sampled.slots,
        here=ONE_GPU if gpus == 1 else NO_WAY,
    )  # fmt: skip


def separate(
    size: ModelSize, gpu: Gpu, split: tuple[int, int], tensor: int, work: Work, assume: Assumptions
) -> Iterator[GpuUse]:
    """The same split with no lag, one step and any."""
    g, n = split
    sampled = rollout(size, gpu, g, tensor, work, assume)
    forwards = (work.old + work.references) * log_prob_seconds(size, gpu, n, work, assume)
    update = update_seconds(size, gpu, n, work, assume)
    sent = publish_seconds(size, gpu, g + n, work, assume)
    learn = forwards + update
    endless = endless_seconds(size, gpu, g, tensor, work, assume)
    for name, seconds, step in (
        ("separate, lag 0", sampled.seconds, sampled.seconds + learn + sent),
        ("separate, lag 1", sampled.seconds, max(sampled.seconds, learn) + sent),
        ("separate, any lag", endless, max(endless, learn) + sent),
    ):
        yield GpuUse(
            name=name, tensor=tensor, sampling=g, learning=n, step=step, rollout=seconds, log_probs=forwards,
            update=update, weights=sent, slots=sampled.slots, here=here(size, gpu, n, work, assume),
        )  # fmt: skip


def breaks(
    size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions = Assumptions()
) -> list[str]:
    """What does not fit, and what would first if answers grew: a line each."""
    lines = list[str]()
    room = assume.memory * gpu.gb
    parts = learner_parts(size, gpus, work, assume)
    if sum(parts.values()) > room:
        most = max(parts, key=lambda k: parts[k])
        lines.append(
            f"the update does not fit: {sum(parts.values()):.1f} of {room:.1f} GB on each of {gpus} GPUs, most of "
            f"it {most}, {parts[most]:.1f} GB"
        )
    tensor = least_tensor(size, gpu, work, assume, gpus)
    if not tensor:
        whole = sampler_parts(size, min(gpus, TENSORS[-1]), work, assume)
        part = (
            "weights"
            if whole["weights"] > room - assume.context
            else "keys and values of one longest answer"
        )
        lines.append(f"sampling does not fit: {part} on {min(gpus, TENSORS[-1])} GPUs of a replica")
    longest = {
        "the update's activations": longest_row(size, gpu, gpus, work, assume),
        f"keys and values of a group on a replica of {tensor}": longest_group(
            size, gpu, gpus, work, assume
        ),
    }
    needed = first_rank_gb(size, gpus, work, assume)
    if needed > room and gpus > 1:
        lines.append(
            f"Palaestra's learner does not start: its first rank holds the whole model beside its share, "
            f"{needed:.1f} of {room:.1f} GB"
        )
    first, last = sorted(longest, key=lambda k: longest[k])
    if all(longest.values()) and not any(x.startswith("the update") for x in lines):
        lines.append(
            f"with longer answers {first} break first, above {longest[first]:,} tokens a row; {last} above "
            f"{longest[last]:,}"
        )
    return lines


def longest_row(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> int:
    """Tokens of the longest row that the learner's GPUs hold."""
    parts = learner_parts(size, gpus, work, assume)
    rest = assume.memory * gpu.gb - sum(v for k, v in parts.items() if k != "activations")
    logits = LOGITS * size.vocabulary * assume.chunk
    kept = BYTES * (size.layers * size.hidden + 12 * size.hidden + 4 * size.middle)
    return max(0, int((rest * GB - logits) / kept))


def longest_group(size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions) -> int:
    """Tokens of a row at which a replica of the fewest GPUs holds a whole group at once; longer
    answers of a group are sampled in turns.
    """
    tensor = least_tensor(size, gpu, work, assume, gpus)
    return answers_at_once(size, gpu, tensor, work.group, assume) if tensor else 0


def report(
    size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions = Assumptions(),
    tensor: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """All of a plan as plain data."""
    rows = ways(size, gpu, gpus, work, assume, tensor)
    learner = {"all": gpus}
    lagged = next((r for r in rows if r.name == "separate, lag 1"), None)
    if lagged:
        learner["separate"] = lagged.learning
    fewest = least_tensor(size, gpu, work, assume, gpus) or min(gpus, TENSORS[-1])
    chosen = tensor or (lagged.tensor if lagged else rows[0].tensor if rows else fewest)
    return {
        "model": size.name,
        "parameters": size.parameters,
        "active": size.active,
        "gpu": gpu.name,
        "gpus": gpus,
        "tensor": chosen,
        "answers": work.answers,
        "cache_bytes": size.cache_bytes,
        "at_once": answers_at_once(
            size, gpu, chosen, work.prompt_tokens + work.answer_tokens, assume
        ),
        "learner_gb": {k: learner_parts(size, n, work, assume) for k, n in learner.items()},
        "learner_gpus": learner,
        "sampler_gb": sampler_parts(size, chosen, work, assume),
        "least_learner": least_learner(size, gpu, work, assume, 1024),
        "breaks": breaks(size, gpu, gpus, work, assume),
        "ways": rows,
        "assumptions": assume.lines(gpu),
    }


def ladder(
    gpu: Gpu, gpus: int, work: Work, assume: Assumptions = Assumptions(), models: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """A line for each size: the fewest GPUs, the fastest way, what breaks."""
    return [report(size_named(name), gpu, gpus, work, assume) for name in models or SHORT]
