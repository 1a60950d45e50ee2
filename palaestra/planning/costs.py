"""What the parts of a distributed run cost, as formulas: the split of devices between sampling and
learning, the traffic of resharding and of reallocation, pipelines, and how much may be admitted.

Times are in seconds, `devices` are counts, traffic is a fraction of the model's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from palaestra.errors import UserError
from palaestra.types import value_class

GIGABIT = 2**30  # bits, as ReaLHF counts bandwidth
BANDWIDTH_INSIDE, BANDWIDTH_ACROSS = 1800.0, 200.0  # gigabits/s, within a node and between nodes
REALLOCATION_SETUP = 0.03  # seconds of each set of parameter intervals


# ---- devices: LlamaRL


@value_class
class Split:
    """Devices that sample and devices that learn, and the seconds of a step."""

    sampling: int
    learning: int
    seconds: float


def colocated_seconds(sample: float, learn: float, devices: int) -> float:
    """Seconds of a step on devices that first sample, then learn: (Cg + Ct) / n.

    Source: LlamaRL, cost model of the synchronous step. With the work of the separate arms put in
    it is also what these reach at best, where devices could be split at will.

    Args:
        sample: Cg, device-seconds of sampling a step's batch.
        learn: Ct, device-seconds of learning from it.
        devices: n.
    """
    return (sample + learn) / devices


def separate_seconds(sample: float, learn: float, sampling: int, learning: int) -> float:
    """Seconds of a step where sampling and learning overlap: max(Cg' / g, Ct' / (n - g)).

    Source: LlamaRL, cost model of the asynchronous step; arguments as in `colocated_seconds`.
    """
    return max(sample / sampling, learn / learning)


def best_split(sample: float, learn: float, devices: int) -> Split:
    """The whole numbers of devices with the shortest step of `separate_seconds`; of equals the one
    with fewer sampling.

    Raises:
        UserError: for fewer than two devices.
    """
    if devices < 2:
        raise UserError(f"a split needs at least 2 devices, not {devices}")
    splits = (
        Split(sampling=g, learning=devices - g, seconds=seconds)
        for g in range(1, devices)
        for seconds in [separate_seconds(sample, learn, g, devices - g)]
    )
    return min(splits, key=lambda s: s.seconds)


# ---- resharding on the same devices: HybridFlow


@value_class
class Fetch:
    """Shard number `shard` of the training layout goes from rank `source` to rank `rank`."""

    rank: int
    shard: int
    source: int


def gather_all_traffic(pipeline: int, tensor: int, data: int) -> float:
    """Fraction of the model that a device receives where weights are gathered over all devices:
    (tpd - 1) / (tpd). Source: HybridFlow, table of transition overheads, DeepSpeed-Chat.
    """
    n = pipeline * tensor * data
    return (n - 1) / n


def gather_model_traffic(pipeline: int, tensor: int) -> float:
    """The same where a model-parallel group gathers: (tp - 1) / (tp). Source: HybridFlow, engine
    without grouping.
    """
    n = pipeline * tensor
    return (n - 1) / n


def grouped_traffic(pipeline: int, tensor: int, to_pipeline: int, to_tensor: int) -> float:
    """The same with generation ranks at stride: (tp - t_g p_g) / (t_g p_g t p). A device's training
    shard lies inside its generation shard, so it receives only the rest, from the
    t p / (t_g p_g) - 1 others of its micro data-parallel group, and keeps no second copy.
    Source: HybridFlow, 3D-HybridEngine.

    Raises:
        UserError: where the generation layout does not divide the training layout.
    """
    if pipeline % to_pipeline or tensor % to_tensor:
        raise UserError(
            f"a generation layout divides the training layout: {to_pipeline} x {to_tensor} does "
            f"not divide {pipeline} x {tensor}"
        )
    before, after = pipeline * tensor, to_pipeline * to_tensor
    return (before - after) / (before * after)


def fetches(tensor: int, to_tensor: int) -> list[Fetch]:
    """Who fetches what between the layouts t and t_g of one tensor-parallel group.

    Training rank r holds shard r of t. Generation ranks lie at stride t / t_g: rank r holds
    generation shard r // (t / t_g), which is made of t / t_g training shards in a row. Source:
    HybridFlow; at t = 4, t_g = 2 the generation pairs are {0, 2} and {1, 3}, and rank 0 fetches
    shard 1 from rank 1.
    """
    grouped_traffic(1, tensor, 1, to_tensor)
    size = tensor // to_tensor
    return [
        Fetch(rank=rank, shard=shard, source=shard)
        for rank in range(tensor)
        for shard in range(rank // size * size, rank // size * size + size)
        if shard != rank
    ]


# ---- pipelines and reallocation between meshes: ReaLHF


def pipeline_seconds(stage: float, stages: int, micro_batches: int) -> float:
    """Seconds of a pipeline: stage (pp + mb - 1). Source: ReaLHF, `estimate.py`, where mb is pp for
    inference and 2 pp for training.
    """
    return stage * (stages + micro_batches - 1)


def generation_seconds(prefill: float, decode: float, tokens: int, micro_batches: int) -> float:
    """Seconds of generating `tokens` an answer: prefill + (tokens - 1) decode mb. Source: ReaLHF,
    `estimate.py`.
    """
    return prefill + (tokens - 1) * decode * micro_batches


def broadcast_seconds(parameters: float, nodes: int = 0, bytes_each: int = 2) -> float:
    """Seconds of sending parameters: within their node (`nodes` 0) bits / 1,800 Gb/s; to other
    nodes bits / 200 Gb/s for each of them. A gigabit is 2**30 bits. Source: ReaLHF,
    `param_realloc.py`, without the seconds of setting up (`reallocation_seconds`).

    Args:
        parameters: their number.
        nodes: how many other nodes they go to.
        bytes_each: 2 for float16 and bfloat16.
    """
    gigabits = 8 * bytes_each * parameters / GIGABIT
    return gigabits * nodes / BANDWIDTH_ACROSS if nodes else gigabits / BANDWIDTH_INSIDE


def reallocation_seconds(parameters: float, nodes: int = 0, interval_sets: int = 1) -> float:
    """Seconds of moving a model to another mesh or layout: `broadcast_seconds` and 0.03 s for each
    set of parameter intervals. Source: ReaLHF, `param_realloc.py`.
    """
    return broadcast_seconds(parameters, nodes) + REALLOCATION_SETUP * interval_sets


# ---- admission: ASearcher, AReaL


def capacity(
    version: int, accepted: int, running: int, *, batch: int, eta: int, concurrent: int
) -> int:
    """How many more episodes may start: min(C - running, (eta + version + 1) B - (accepted +
    running)), and none where that is negative.

    Source: AReaL, `workflow_api.py`, as ASearcher runs it (C = 128, eta = 4, B = 128). An episode
    that is admitted now is trained on at most `eta` versions later, if none is rejected.

    Args:
        version: of the trainer's weights.
        accepted: episodes that have ended and count, since the start of the run.
        running: episodes under way.
        batch: B, episodes of a step.
        eta: versions that a trained episode may be old.
        concurrent: C, episodes that may run at a time.
    """
    return max(0, min(concurrent - running, (eta + version + 1) * batch - (accepted + running)))


# ---- pools of equal service time: AsyncFlow


def balanced_pools(work: Mapping[str, float], devices: int) -> dict[str, int]:
    """Devices of each role such that the slowest role's seconds, work / devices, are least.

    Every role starts with one device; the next always goes to the slowest, which is optimal since
    a role's seconds only fall with its devices. Source: AsyncFlow, pools sized for equal service
    time.

    Args:
        work: device-seconds of a step, by role.
        devices: of all roles together.

    Raises:
        UserError: for fewer devices than roles.
    """
    if devices < len(work):
        raise UserError(f"{len(work)} roles need at least {len(work)} devices, not {devices}")
    pools = dict.fromkeys(work, 1)
    for _ in range(devices - len(work)):
        pools[max(pools, key=lambda role: work[role] / pools[role])] += 1
    return pools
