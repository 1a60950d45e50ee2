"""What the schedule does on many devices, from assumed speeds: colocated, separate with a barrier,
streaming, and with lag.

The schedule is that of `simulate` with a sequence as a ticket and a decoding slot as a worker. As
all slots are alike, a heap of the times at which they are free gives the same times without an
event for each, which a thousand devices need.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from palaestra.errors import UserError
from palaestra.types import rng_of, value_class

MICRO_BATCHES = 16  # that a streaming learner takes a step in
SHARES = (0.5, 0.625, 0.75, 0.8, 0.85, 0.9)  # of the devices that sample, tried


@value_class
class DeviceSpeeds:
    """One model on one kind of device: assumptions, of a dense model of 7 billion parameters in
    bfloat16 on devices of 80 GB, until measured ones are given.
    """

    decode: float = 2_500.0  # tokens/s of a device that decodes all its slots
    slots: int = 64  # sequences that a device decodes at a time
    learn: float = 11_000.0  # tokens/s of a device, forward and backward
    median: float = 2_000.0  # tokens of an answer, log-normal
    sigma: float = 1.0  # of its logarithm
    cap: float = 16_384.0
    sequences: int = 96  # a step, for each device
    weights_gb: float = 14.0
    link_gb: float = 50.0  # GB/s into a node
    hop: float = 0.05  # seconds of each level of the tree that weights are sent through
    per_node: int = 8
    switch: float = 4.0  # seconds a step: colocated devices sleep, wake and reshard

    def publish(self, sampling: int) -> float:
        """Seconds of sending weights to the devices that sample: one pass of the bytes and a chunk
        more for each level of the tree of nodes.
        """
        levels = math.log2(max(2.0, sampling / self.per_node))
        return self.weights_gb / self.link_gb + self.hop * levels

    def lengths(self, steps: int, sequences: int, seed: int) -> np.ndarray:
        """Tokens of every answer, [step, sequence]."""
        z_SN = rng_of((seed, "lengths")).standard_normal((steps, sequences))
        return np.minimum(self.median * np.exp(self.sigma * z_SN), self.cap)

    def assumptions(self) -> list[str]:
        """What a table of these speeds takes for granted, a line each."""
        return [
            f"a device decodes {self.decode:,.0f} tokens/s in {self.slots} slots, and learns from "
            f"{self.learn:,.0f} tokens/s",
            f"answers are log-normal, median {self.median:,.0f} tokens, sigma {self.sigma:g}, at "
            f"most {self.cap:,.0f}; {self.sequences} a device and step",
            f"weights of {self.weights_gb:g} GB over {self.link_gb:g} GB/s into a node; colocated "
            f"devices switch in {self.switch:g} s a step",
            "from lag 1 on, sending weights overlaps with sampling and costs nothing",
            f"separate devices are split at the best of {', '.join(f'{s:.1%}' for s in SHARES)}",
            "not modelled: decoding that speeds up as slots empty (it would favour arms that wait), "
            "failures, network contention, judging",
        ]


@value_class
class ScaleArm:
    """How devices are used: `lag` None = colocated, sampling and learning by turns."""

    name: str
    lag: int | None
    streaming: bool = False


ARMS = (
    ScaleArm(name="colocated", lag=None),
    ScaleArm(name="separate, barrier", lag=0),
    ScaleArm(name="streaming, lag 0", lag=0, streaming=True),
    ScaleArm(name="lag 1", lag=1, streaming=True),
    ScaleArm(name="lag 2", lag=2, streaming=True),
    ScaleArm(name="lag 4", lag=4, streaming=True),
)


@value_class
class ScaleRow:
    """One arm at one size."""

    devices: int
    arm: str
    sampling: int  # devices
    seconds: float  # a step
    tokens_per_second: float  # trained, of a device


def extrapolate(
    devices: Sequence[int] = (8, 64, 1024),
    speeds: DeviceSpeeds = DeviceSpeeds(),
    *,
    arms: Sequence[ScaleArm] = ARMS,
    steps: int = 10,
    seed: int = 0,
) -> list[ScaleRow]:
    """Every arm at every size, separate ones at their best split. All arms of a size share their
    answers' lengths. 1,024 devices take about a minute.

    Raises:
        UserError: for fewer than two devices, or no step.
    """
    if min(devices) < 2 or steps < 1:
        raise UserError("extrapolate: at least 2 devices and 1 step")
    rows: list[ScaleRow] = []
    for n in devices:
        ahead = max(arm.lag or 0 for arm in arms)
        length_SN = speeds.lengths(steps + ahead, speeds.sequences * n, seed)
        for arm in arms:
            splits = (
                [n] if arm.lag is None else sorted({max(1, min(n - 1, int(n * x))) for x in SHARES})
            )
            predictions = [(makespan(speeds, length_SN, steps, n, g, arm), g) for g in splits]
            seconds, sampling = min(predictions)
            rows.append(
                ScaleRow(
                    devices=n,
                    arm=arm.name,
                    sampling=sampling,
                    seconds=seconds / steps,
                    tokens_per_second=float(length_SN[:steps].sum()) / seconds / n,
                )
            )
    return rows


def scale_table(rows: Sequence[ScaleRow], speeds: DeviceSpeeds) -> str:
    """Trained tokens/s of a device as a Markdown table, a line for each size, and under it what was
    taken for granted, without which the numbers mean nothing.
    """
    arms = list(dict.fromkeys(r.arm for r in rows))
    at = {(r.devices, r.arm): f"{r.tokens_per_second:,.0f}" for r in rows}
    lines = [
        f"| {n:,} | " + " | ".join(at[n, arm] for arm in arms) + " |"
        for n in dict.fromkeys(r.devices for r in rows)
    ]
    head = ["| devices | " + " | ".join(arms) + " |", "| --- " * (len(arms) + 1) + "|"]
    return "\n".join([*head, *lines, "", *(f"- {line}" for line in speeds.assumptions()), ""])


def makespan(
    speeds: DeviceSpeeds,
    length_SN: np.ndarray,
    steps: int,
    devices: int,
    sampling: int,
    arm: ScaleArm,
) -> float:
    """Seconds of all steps, with `sampling` of the devices decoding; colocated, all do both."""
    learning = devices if arm.lag is None else devices - sampling
    between = speeds.switch if arm.lag is None else 0.0 if arm.lag else speeds.publish(sampling)
    lag, rate = arm.lag or 0, speeds.decode / speeds.slots
    free = [0.0] * (sampling * speeds.slots)
    landed: list[np.ndarray] = []
    now = 0.0
    for s in range(steps):
        while len(landed) <= s + lag:
            landed.append(land(free, length_SN[len(landed)] / rate, now))
        order_N = np.argsort(landed[s])
        for part in np.array_split(order_N, MICRO_BATCHES if arm.streaming else 1):
            begin = max(now, float(landed[s][part].max()))
            now = begin + float(length_SN[s][part].sum()) / (speeds.learn * learning)
        now += between
    return now


def land(free: list[float], seconds_N: np.ndarray, now: float) -> np.ndarray:
    """When each sequence of an attempt that is issued now ends, in the slot that is free first;
    `free` is a heap, and is moved on.
    """
    ends: list[float] = []
    for seconds in seconds_N.tolist():
        end = max(free[0], now) + seconds
        heapq.heapreplace(free, end)
        ends.append(end)
    return np.array(ends)
