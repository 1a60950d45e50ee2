"""HybridFlow: a model trains and generates on the same devices, and its weights go from one layout
to the other with the least traffic; one controller runs the algorithm over the processes.

Training layout p, t, d (stages, tensor-parallel ranks, replicas), generation layout p_g, t_g on the
same ranks. Bytes that a rank receives, as a share of the model (arXiv:2409.19256, table 2):

    all ranks gather   (tpd - 1) / (tpd)          a replica gathers   (tp - 1) / (tp)
    grouped            (tp - t_g p_g) / (t_g p_g t p)

Grouped: ranks that generate together are at stride t / t_g, so that a rank's training shard lies in
its generation shard. It receives only what is missing, from its micro data-parallel group, and
keeps nothing twice.

The program has three parts, all of the run's model:
1. It moves the weights from `train` to `generate` in the three ways between processes of this
   machine, counts the bytes, and compares every tensor; every other generation layout of the same
   ranks stands beside, by the formula.
2. It searches placements of the models of the algorithm on `nodes` by a simulator: every way to put
   them into groups with devices of their own (of Safe RLHF without the two models of costs).
3. It trains by `algorithm`: "ppo", "remax", "grpo", or "safe-rlhf" (PPO with a second critic for a `cost`
   whose mean is held at `limit` by a multiplier, arXiv:2310.12773), each with a reference. Each is a
   recipe of its own, a script of one process, the controller; where the roles are (learner, rollout
   processes, judges) is said beside it, by `--cluster FILE`, or `workers` and `judges`, and changes no
   line of it. So all four run under every placement.

    palaestra train hybridflow --data FILE.jsonl --model DIR algorithm=remax
    palaestra train hybridflow --data FILE.jsonl --model DIR algorithm=safe-rlhf cost=FILE.py:NAME limit=0.1

Deviations: the weights are at rest in processes for the move, without an optimiser beside them, and
each process reads the model; in training, the weights go to the rollout processes as a whole.

Long because the paper is three programs about one model: moving its weights between layouts in three ways,
searching placements by a simulator, and training with one of four algorithms; the simulator is shared.
"""

from typing import Literal

import palaestra as pl
from palaestra.recipes.systems.hybridflow.safe import LongAnswer, safe_rlhf

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
    needs=pl.needs.Requirements(
        shows="resharded",
        off={"generate": (1, 2)},
        own={"nodes": (1,), "train": (1, 2, 1), "generate": (1, 1), "prompts": 2},
    ),
    use="It helps to see what a change of layout moves for your model, and to place the models of PPO "
    "before devices are rented; training places them by a cluster file.",
    lacks=(
        "Resharding, the 3D-HybridEngine of the paper, is a demonstration: it moves weights "
        "at rest between processes of one machine. In training, whole weights go from the "
        "learner to rollout processes.",
        "Placements of the search are simulated with assumed speeds and are not run: PPO runs "
        "where a cluster file says.",
        "Critics are value heads on the actor, and placements are searched as if they were models.",
        "Throughput, which the paper's experiments measure, is not measured.",
    ),
    grade="C",
)
ALGORITHMS = ("ppo", "remax", "grpo", "safe-rlhf")
WAYS: tuple[pl.planning.Way, ...] = ("grouped", "model group", "all ranks")
Algorithm = Literal["ppo", "remax", "grpo", "safe-rlhf"]
WORK = pl.planning.Workload(sequences=256, prompt=512, answer=512)
KL = 0.05  # of the reference in PPO's reward, as in RLHF (arXiv:2203.02155)


@pl.stage
class HybridEngine:
    """A program: resharding, placements, and PPO, see the module.

    `train` is p, t, d, `generate` p_g, t_g. `nodes` of eight assumed devices each are planned for,
    with models of the size `decoder`. `cluster`: where the roles are; None = as the run says.
    """

    train: tuple[int, int, int]
    generate: tuple[int, int]
    nodes: tuple[int, ...]
    decoder: str
    prompts: int
    cluster: pl.Cluster | None = None
    algorithm: Algorithm = "ppo"
    cost: pl.RewardFn = LongAnswer()
    limit: float = 0.0

    async def run(self, ctx: pl.Context) -> pl.Result:
        moved = await ctx.once("resharding", lambda: self.reshard(ctx))
        ctx.log({"resharded": moved["grouped"]["received"]})
        size = pl.planning.decoder_named(self.decoder, ctx.model("policy").module)
        for line in pl.planning.Device().assumptions() if self.nodes else ():
            ctx.say(f"assumed: {line}")
        flow = (
            "ppo" if self.algorithm == "safe-rlhf" else self.algorithm
        )  # its models without the costs'
        placed = {str(n): best_placements(n, size, algorithm=flow) for n in self.nodes}
        for n, plans in placed.items():
            seconds = ", ".join(f"{name} {s:.3g} s" for name, s in plans.items())
            ctx.say(f"{n} nodes: {seconds}")
        trained = await ctx.once(self.algorithm, self.trainer()) if self.prompts else None
        return pl.Result(
            metrics={
                "ways": moved,
                "placements": placed,
                "algorithm": self.algorithm,
                "trained": dict(trained.metrics) if trained else {},
                "sampled_tokens": trained.metrics["sampled_tokens"] if trained else 0,
            }
        )

    def reshard(self, ctx: pl.Context) -> dict[str, dict[str, float]]:
        """What the three ways move, by way."""
        p, t, d = self.train
        train = pl.planning.Parallelism(data=d, tensor=t, pipeline=p)
        moves = [
            (before, pl.planning.generation_slots(way, train, *self.generate), gather)
            for way in WAYS
            for before, gather in [pl.planning.passing_slots(way, train)]
        ]
        each = pl.scale.run_ranks(
            p * t * d, pl.planning.reallocate, ctx.model("policy").source, moves, p * t * d
        )
        moved: dict[str, dict[str, float]] = {}
        for way, ranks in zip(WAYS, zip(*each, strict=True), strict=True):
            moved[way] = x = pl.planning.transition(ranks) | {
                "formula": pl.planning.transition_share(way, train, *self.generate)
            }
            ctx.say(f"{way}: a rank receives {x['received']:.4f} of the weights, by the formula "
                    f"{x['formula']:.4f}; {x['bytes']:,.0f} bytes in {x['seconds']:.2g} s; kept "
                    f"twice {x['kept_twice']:.2f}; {x['different']:.0f} of {x['tensors']:.0f} "
                    "tensors differ")  # fmt: skip
        for stages in (n for n in range(1, p + 1) if p % n == 0):
            for shards in (n for n in range(1, t + 1) if t % n == 0):
                shares = (pl.planning.transition_share(w, train, stages, shards) for w in WAYS)
                share_texts = ", ".join(f"{w} {s:.4f}" for w, s in zip(WAYS, shares, strict=True))
                ctx.say(f"p {p}, t {t}, d {d} to p_g {stages}, t_g {shards}: {share_texts}")
        return moved

    def trainer(self) -> pl.Runnable:
        """The algorithm with a reference, where the roles are placed."""
        safe = self.algorithm == "safe-rlhf"
        made = safe_rlhf(self.cost, self.limit, KL) if safe else pl.recipe(self.algorithm, kl=KL)
        recipe = pl.vary(made, schedule=pl.Schedule(prompts=self.prompts, steps=10))
        if self.cluster is None:
            return recipe
        return pl.scale.OnCluster(runnable=recipe, cluster=self.cluster)


def best_placements(
    nodes: int,
    size: pl.planning.DecoderSize,
    iterations: int = 3,
    algorithm: pl.planning.Algorithm = "ppo",
) -> dict[str, float]:
    """Seconds of an iteration of an algorithm, three times as many where memory is short: all models on all
    devices, the best of each number of groups, and the best of a search without groups.
    """
    device = pl.planning.Device()
    devices = device.per_node * nodes
    flow = pl.planning.DATAFLOWS[algorithm]
    sizes = {call.model: size for call in flow}
    calls = pl.planning.with_options(flow, sizes, WORK, device, nodes)
    step = device.per_node if nodes > 1 else 2  # devices that stay together
    units = [frozenset(range(at, at + step)) for at in range(0, devices, step)]
    moves, cap = pl.planning.moves_of(sizes, device), device.capacity_gb
    best: dict[str, float] = {}
    for placement in pl.planning.placements(
        calls, units, reallocation=moves, cap_gb=cap, iterations=iterations
    ):
        n = len(placement.groups)
        name = "colocated" if n == 1 else f"{n} groups"
        best[name] = min(best.get(name, float("inf")), placement.plan.score / iterations)
    searched = pl.planning.best_plan(calls, reallocation=moves, cap_gb=cap, iterations=iterations)
    return best | {"searched": searched.score / iterations}


def build(
    train: tuple[int, int, int] = (1, 4, 1),
    generate: tuple[int, int] = (1, 2),
    nodes: tuple[int, ...] = (1, 2, 4, 8),
    decoder: str = "7b",
    prompts: int = 8,
    workers: int = 0,
    judges: int = 0,
    algorithm: Algorithm = "ppo",
    cost: pl.RewardFn | None = None,
    limit: float = 0.1,
) -> HybridEngine:
    """`train`: stages, tensor-parallel ranks, replicas; `generate`: stages and tensor-parallel ranks
    that divide them. `nodes` of eight devices each are planned for, with models of the size
    `decoder`: 7b, 13b, 34b, "policy" or the folder of a model. `prompts` of a step of the
    `algorithm`, 0 = it is not trained. `workers` rollout processes and `judges`; 0 = as `--cluster` says. Of
    safe-rlhf the mean `cost`, a reward of yours such as FILE.py:NAME or else 1 for an answer of more than 16
    characters, is held at `limit`.
    """
    if algorithm not in ALGORITHMS:
        raise pl.UserError(
            f"hybridflow: algorithm is {algorithm!r}; it takes {', '.join(ALGORITHMS)}"
        )
    if cost is not None and algorithm != "safe-rlhf":
        raise pl.UserError("hybridflow: a cost is held at a limit by algorithm=safe-rlhf alone")
    sizes = (*train, *generate)
    if min(sizes) < 1:
        raise pl.UserError("hybridflow: the numbers of train and generate are at least 1")
    if judges and not workers:
        raise pl.UserError("hybridflow: judges reward what rollout processes collect; give workers")
    p, t, d = train
    layout = pl.planning.Parallelism(data=d, tensor=t, pipeline=p)
    pl.planning.generation_slots("grouped", layout, *generate)  # refuses what does not divide
    cluster = pl.Cluster(workers=workers, judges=judges) if workers else None
    given = (train, generate, nodes, decoder, prompts, cluster, algorithm)
    return HybridEngine(*given, cost=cost or LongAnswer(), limit=limit)
