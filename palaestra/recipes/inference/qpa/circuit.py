"""A simulated circuit, and the map from its probabilities to weights.

N qubits, the first of which is the most significant bit of a basis state; L layers; M chunks of C
weights; H hidden units; S = 2^N basis states.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

import palaestra as pl

Features = Literal["circuit", "fixed", "sinusoidal", "direct"]
Rotations = Literal["y", "yz"]


def chain_of_cnots(n: int) -> Tensor:
    """[S] where each amplitude comes from when CNOT(0, 1), CNOT(1, 2), ... have acted in this order.

    CNOT(i, i + 1) turns bit i + 1 over where bit i is set, and is its own inverse.
    """
    source_S = torch.arange(1 << n)
    for i in reversed(range(n - 1)):
        control = source_S >> (n - 1 - i) & 1
        source_S = source_S ^ (control << (n - 2 - i))
    return source_S


def probabilities(angles: Tensor) -> Tensor:
    """p_b = |<b|psi(angles)>|^2 of every basis state b, [..., S], from |0...0>.

    A layer turns each qubit by R_y(a), and by R_z of a second angle where there is one, then chains
    the qubits by CNOTs. The state is exact; gradients flow to the angles.

    Args:
        angles: [..., L, N, 1] or [..., L, N, 2] in radians.
    """
    layers, n, kinds = angles.shape[-3:]
    batch = angles.shape[:-3]
    source_S = chain_of_cnots(n).to(angles.device)
    first = torch.zeros(1 << n, dtype=angles.dtype, device=angles.device)
    first[0] = 1
    state = torch.complex(first, torch.zeros_like(first)).expand(*batch, -1)
    for layer in range(layers):
        for i in range(n):
            a, b = state.reshape(*batch, 1 << i, 2, -1).unbind(-2)
            half = angles[..., layer, i, 0, None, None] / 2
            c, s = half.cos(), half.sin()
            a, b = c * a - s * b, s * a + c * b
            if kinds == 2:
                turn = angles[..., layer, i, 1, None, None] / 2
                a, b = a * torch.exp(-1j * turn), b * torch.exp(1j * turn)
            state = torch.stack([a, b], -2).reshape(*batch, -1)
        state = state[..., source_S]
    return state.real.square() + state.imag.square()


def sinusoids(angles_LNR: Tensor, bits_MN: Tensor) -> Tensor:
    """[M] mean over layers of 1 + sin(sum_i a_li b_i): a classical feature with as many angles."""
    return (1 + (bits_MN @ angles_LNR.sum(-1).T).sin()).mean(-1)


class Weights(nn.Module):
    """Gives `size` weights: `start`, and what a circuit adds to it, which is 0 at first.

    Raises UserError where there is nothing to generate.
    """

    def __init__(self, start: Tensor, generator: "Generator", key: pl.Key):
        super().__init__()
        size = len(start)
        if not size:
            raise pl.UserError("the model has no weight to adapt; leave some of them trainable")
        self.features = generator.features
        draw = torch.Generator().manual_seed(pl.seed_of((*key, "circuit")) % (1 << 31))
        self.register_buffer("start", start.detach().clone())
        self.start: Tensor
        if self.features == "direct":
            self.moved = nn.Parameter(torch.zeros_like(start))
            return
        chunks = math.ceil(size / generator.chunk)
        n = max(1, math.ceil(math.log2(chunks)))
        kinds = len(generator.rotations)
        angles = 2 * math.pi * torch.rand(generator.depth, n, kinds, generator=draw)
        number = torch.arange(chunks)[:, None]
        bits = number >> torch.arange(n - 1, -1, -1) & 1
        self.register_buffer("bits", bits.to(start))
        self.bits: Tensor
        if self.features == "fixed":
            p = -torch.rand(1 << n, generator=draw).clamp(min=1e-9).log()
            self.register_buffer("p", (p / p.sum()).to(start))
            self.p: Tensor
        else:
            self.angles = nn.Parameter(angles.to(start))
        wide, out = nn.Linear(n + 1, generator.hidden), nn.Linear(generator.hidden, generator.chunk)
        with torch.no_grad():
            wide.weight.copy_(torch.randn(wide.weight.shape, generator=draw) / (n + 1) ** 0.5)
            wide.bias.copy_(torch.randn(wide.bias.shape, generator=draw))
            nn.init.zeros_(out.weight)
            nn.init.zeros_(out.bias)
        self.map = nn.Sequential(wide, nn.Tanh(), out).to(start)

    def feature(self) -> Tensor:
        """[M] what the map reads of each chunk beside its bits, about 1 in the mean over states."""
        chunks, n = self.bits.shape
        if self.features == "sinusoidal":
            return sinusoids(self.angles, self.bits)
        p_S = self.p if self.features == "fixed" else probabilities(self.angles)
        return p_S[:chunks] * (1 << n)

    def forward(self) -> Tensor:
        """[size], chunk by chunk; what the last chunk has too many is cut off."""
        if self.features == "direct":
            return self.start + self.moved
        made_MC = self.map(torch.cat([self.bits, self.feature()[:, None]], 1))
        return self.start + made_MC.reshape(-1)[: len(self.start)]

    def trained(self) -> int:
        """How many numbers an optimiser moves."""
        return sum(p.numel() for p in self.parameters())


@pl.stage
class Generator:
    """How weights are generated.

    Args:
        chunk: weights that the map gives for a basis state.
        depth: layers of the circuit.
        hidden: units of the map.
        features: "circuit"; or a control: "fixed" probabilities that are drawn once, a
            "sinusoidal" feature with as many angles, or "direct", all weights by themselves.
        rotations: of each qubit in a layer.
        lr: of Adam, for angles and map.
    """

    chunk: int = 32
    depth: int = 4
    hidden: int = 16
    features: Features = "circuit"
    rotations: Rotations = "y"
    lr: float = 0.01

    def __post_init__(self) -> None:
        for name in ("chunk", "depth", "hidden"):
            pl.check_bounds(f"Generator.{name}", getattr(self, name), least=1)

    def begin(self, start: Tensor, key: pl.Key) -> "WeightFit":
        """The weights at their start [size], and what trains them."""
        return WeightFit(Weights(start, self, key), self.lr)


class WeightFit:
    """Weights in training, and how far they are."""

    def __init__(self, weights: Weights, lr: float):
        self.weights = weights
        self.optimiser = torch.optim.Adam(weights.parameters(), lr=lr)
        self.first = [a.detach().clone() for a in self.angles]

    @property
    def angles(self) -> list[Tensor]:
        """Of the circuit; [] in a control that has none."""
        return [self.weights.angles] if self.weights.features == "circuit" else []

    def step(self, loss: Tensor) -> dict[str, float]:
        """One step of Adam. Returns the loss, how many numbers are trained and spared, and how far
        the circuit's angles are from where they began, in radians on average.
        """
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return {"loss": float(loss.detach()), **self.counts()}

    def announce(self, ctx: pl.Context) -> None:
        """Says how many numbers are trained, and where that spares none."""
        counts = self.counts()
        ctx.say(
            f"{counts['trained']:,.0f} numbers are trained for {counts['generated']:,.0f} weights"
        )
        if counts["saved"] < 0:
            ctx.say(
                "note: that is more than the weights themselves, so nothing is spared; take a smaller "
                "map, chunk=8 hidden=4"
            )

    def counts(self) -> dict[str, float]:
        trained, size = self.weights.trained(), len(self.weights.start)
        far = [
            float((a - b).abs().mean().detach())
            for a, b in zip(self.angles, self.first, strict=True)
        ]
        return {
            "trained": float(trained),
            "generated": float(size),
            "saved": float(size - trained),
            "angles_moved": sum(far),
        }
