"""HybridFlow: a model trains and generates on the same devices, and its weights go from one layout
to the other with the least traffic.

Training layout p, t, d (stages, tensor-parallel ranks, replicas), generation layout p_g, t_g on the
same ranks. Bytes that a rank receives, as a share of the model (arXiv:2409.19256, table 2):

    all ranks gather   (tpd - 1) / (tpd)          a replica gathers   (tp - 1) / (tp)
    grouped            (tp - t_g p_g) / (t_g p_g t p)

Grouped: ranks that generate together are at stride t / t_g, so that a rank's training shard lies in
its generation shard. It receives only what is missing, from its micro data-parallel group, and
keeps nothing twice.

Two programs. `Resharding` does one of the three with DTensor on processes of this machine, counts
what arrives, and compares logits. `HybridEngine`, which `palaestra train hybridflow` runs, does all
three, and then searches placements by the simulator: every way to put the models of PPO into groups
with devices of their own. One controller over worker groups is the engine itself: where a recipe's
parts run is said by a cluster file alone (docs/cluster.md).

Deviations: p = 1; the embedded model in float64; weights at rest, no optimiser beside them.
"""

import palaestra as pl

CARD = pl.Card(
    title="HybridFlow (verl): hybrid controller, resharding",
    paper="arXiv:2409.19256",
    claim="Generation groups at stride let each rank receive the least of the model, and keep no "
    "weight twice.",
    source="the paper's table of transition overheads, and verl, from memory and consistent with "
    "each other",
    size=pl.Size(
        setting="Llama models of 7B to 70B, PPO, ReMax and Safe-RLHF, 8 to 128 GPUs, 1,024 prompts "
        "and answers of 1,024 tokens"
    ),
    needs=pl.needs.Requirements(columns=(), own={"nodes": (1,), "layout": (2, 1, 1)}),
    use="It helps to place the models of PPO on devices before renting them; training itself places "
    "models by a cluster file.",
    lacks=(
        "Resharding runs on the embedded model between processes of one machine, without an optimiser.",
        "Placements are simulated with assumed speeds, not run.",
    ),
)
WAYS: tuple[pl.planning.Way, ...] = ("grouped", "model group", "all ranks")
WORK = pl.planning.Workload(sequences=256, prompt=512, answer=512)


@pl.stage
class Resharding:
    """A program: the share of the linear weights that a rank receives, the most of any rank."""

    way: pl.planning.Way = "grouped"
    train: int = 4  # ranks of a tensor-parallel group
    generate: int = 2
    data: int = 2  # replicas

    async def run(self, ctx: pl.Context) -> pl.Result:
        return pl.Result(metrics={**self.measure(ctx.seed), "sampled_tokens": 0})

    def measure(self, seed: int) -> dict[str, float]:
        layout = pl.planning.TensorLayout(train=self.train, generate=self.generate, data=self.data)
        found = pl.scale.run_ranks(layout.ranks, pl.planning.reshard, self.way, layout, seed)
        arrived = [x.arrived / x.model for x in found if x.arrived is not None]
        return {
            "received": max(x.received / x.model for x in found),
            "least_received": min(x.received / x.model for x in found),
            "arrived": max(arrived, default=float("nan")),
            "formula": layout.traffic(self.way),
            "kept_twice": max(x.kept / x.model for x in found),
            "logits": max(x.logits for x in found),
        }


@pl.stage
class HybridEngine:
    """A program: the three ways of resharding in a `layout`, and the best placements for so many `nodes` of eight
    assumed devices, with all four models of the size `decoder`.
    """

    nodes: tuple[int, ...] = (1, 2, 4, 8)
    decoder: str = "7b"
    layout: tuple[int, int, int] = (4, 2, 2)

    async def run(self, ctx: pl.Context) -> pl.Result:
        moved = {way: Resharding(way, *self.layout).measure(ctx.seed) for way in WAYS}
        for way, found in moved.items():
            ctx.say(f"{way}: a rank receives {found['received']:.4f} of the weights, by the formula "
                    f"{found['formula']:.4f}; logits differ by {found['logits']:.1e}")  # fmt: skip
        for line in pl.planning.Device().assumptions():
            ctx.say(f"assumed: {line}")
        placed = {str(n): best_placements(n, self.decoder) for n in self.nodes}
        for n, found in placed.items():
            said = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.items())
            ctx.say(f"{n} nodes: {said}")
        return pl.Result(metrics={"ways": moved, "placements": placed, "sampled_tokens": 0})


def best_placements(nodes: int, decoder: str = "7b", iterations: int = 3) -> dict[str, float]:
    """Seconds of an iteration of PPO, three times as many where memory is short: all models on all
    devices, the best of each number of groups, and the best of a search without groups.
    """
    device = pl.planning.Device()
    size = device.per_node * nodes
    models = ("actor", "critic", "reference", "reward")
    sizes = {model: pl.planning.DECODERS[decoder] for model in models}  # noqa: C420  (keys stay strings)
    calls = pl.planning.calls_of("ppo", sizes, WORK, device, nodes)
    step = device.per_node if nodes > 1 else 2  # devices that stay together
    units = [frozenset(range(at, at + step)) for at in range(0, size, step)]
    moves, cap = pl.planning.moves_of(sizes, device), device.capacity_gb
    found: dict[str, float] = {}
    for placement in pl.planning.placements(
        calls, units, reallocation=moves, cap_gb=cap, iterations=iterations
    ):
        n = len(placement.groups)
        name = "colocated" if n == 1 else f"{n} groups"
        found[name] = min(found.get(name, float("inf")), placement.plan.score / iterations)
    searched = pl.planning.best_plan(calls, reallocation=moves, cap_gb=cap, iterations=iterations)
    return found | {"searched": searched.score / iterations}


def build(
    nodes: tuple[int, ...] = (1, 2, 4, 8),
    decoder: str = "7b",
    layout: tuple[int, int, int] = (4, 2, 2),
) -> HybridEngine:
    """`nodes` of eight devices each are planned for, with models of the size `decoder`. `layout`:
    tensor-parallel ranks that train together, those that generate together, and replicas.
    """
    if decoder not in pl.planning.DECODERS:
        raise pl.UserError(f"decoder {decoder!r} is not one of {', '.join(pl.planning.DECODERS)}")
    return HybridEngine(nodes, decoder, layout)
