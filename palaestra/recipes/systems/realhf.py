"""ReaLHF: every call of a model has devices and a layout of its own, found by a search.

An iteration is a graph of calls (generate, inference, train). A plan gives each a mesh of devices
and a layout (replicas, tensor-parallel devices, stages); where two calls of a model differ, its
parameters move (arXiv:2406.14088). The search walks from every call's fastest option, changes one
call to an option drawn uniformly, and takes what is dr worse with probability exp(-beta dr); a plan
that lacks memory counts three times.

The program plans for a cluster and models that the user names:

    palaestra train realhf nodes=2 devices=8 algorithm=ppo actor=DIR critic=7b reward=7b

It compares the searched plan with the best symmetric one (all calls on all devices in one layout),
and searches the plans that a cluster file can say (rollout processes, ranks of the learner, judges).
It writes plan.json and cluster.toml into the run folder; `palaestra train ppo --cluster
RUN/cluster.toml` runs the plan. Where this machine has as many devices, the program moves the run's
model from the layout that trains to the one that generates between real processes, counts the bytes
and compares every tensor, and trains a few steps by the cluster file.

Deviations: ReaLHF profiles layers on its devices, here the seconds of a layer are computed from
assumed speeds; it searches for two minutes, here for a number of proposals; its runtime runs any
plan, here `--cluster` runs the best that a cluster file can say. A critic of its own is planned for
PPO; the recipe `ppo`, which runs, has its value head on the policy.

Long because the program does all between a description of a cluster and a run on it: it compares
three plans, writes them, moves the weights between real processes, and trains a few steps.
"""

import importlib.util
import json
import os
from dataclasses import replace
from typing import Literal

import torch

import palaestra as pl

CARD = pl.Card(
    title="ReaLHF: parameter reallocation, execution-plan search",
    paper="arXiv:2406.14088",
    claim="Plans that are searched for, a mesh and a layout for every call, are faster than "
    "heuristic plans of all calls on all devices.",
    source="code of openpsi-project/ReaLHF: its simulator, search, estimator and reallocation",
    size=pl.Size(
        setting="four models of PPO, Llama 2 of 7B to 70B, 512 sequences of 2,048 tokens, 16 to "
        "128 GPUs; accuracies are not claimed"
    ),
    needs=pl.needs.Requirements(
        shows="reallocated", off={"devices": 1}, own={"on": "cores", "execute": False, "tries": 50}
    ),
    use="It helps before devices are rented: which roles get how many, and what a searched plan "
    "brings; gains are small where one call takes most of the time.",
    lacks=(
        "No parameters are reallocated in training: they are moved once, between processes of "
        "one machine, to be counted and compared.",
        "A plan with meshes that overlap, or with stages, is written and not run: --cluster "
        "runs the best plan of learner ranks, rollout processes and judges on devices of "
        "their own.",
        "Seconds are estimated from assumed speeds of devices, not profiled.",
        "A critic of its own is planned for PPO and does not run: the recipe has its value "
        "head on the policy.",
    ),
    grade="B",
)
SAME = "the layout that trains is the one that generates, so nothing moves"
NONE = "none"
ITERATIONS = 5  # that are unrolled, as in ReaLHF


@pl.stage
class PlanForCluster:
    """A program: the plans of an algorithm's calls on `nodes` of `devices`, see the module.

    `models` are dimensions by role, as `build` takes them. `work` is what an iteration works on,
    `device` what is assumed of devices, `tries` the proposals of the search.
    """

    algorithm: pl.planning.Algorithm
    nodes: int
    models: tuple[tuple[str, str], ...]
    work: pl.planning.Workload
    device: pl.planning.Device
    on: Literal["gpus", "cores"] = "gpus"
    tries: int = 1_500
    execute: bool = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        sizes = {
            role: pl.planning.decoder_named(text, ctx.model("policy").module)
            for role, text in self.models
            if text != NONE
        }
        calls = pl.planning.calls_without(
            pl.planning.DATAFLOWS[self.algorithm], {r for r, text in self.models if text == NONE}
        )
        plans, deployed = self.plans(calls, sizes)
        numbers = self.report(ctx, plans, deployed)
        file = deployed.toml(self.on == "gpus")
        if ctx.out is not None:
            (ctx.out / "cluster.toml").write_text(file)
            (ctx.out / "plan.json").write_text(json.dumps(plans["searched"].table(), indent=1))
        ctx.say("cluster.toml:\n" + file + f"run it: palaestra train {self.algorithm} --cluster "
                f"{ctx.out or 'RUN'}/cluster.toml (schedule.lag=1: one step ahead)")  # fmt: skip
        moved = await ctx.once("reallocation", lambda: self.move(ctx, deployed))
        ctx.log({**numbers, "reallocated": moved.get("received_most", 0.0)})
        ran = await self.train(ctx, deployed)
        return pl.Result(
            metrics={"plan": numbers, "reallocation": moved, "run": ran, "sampled_tokens": 0}
        )

    def plans(
        self, calls: list[pl.planning.ModelCall], sizes: dict[str, pl.planning.DecoderSize]
    ) -> tuple[dict[str, pl.planning.ExecutionPlan], pl.planning.Deployment]:
        """The searched plan, the best symmetric one, and the best that a cluster file can say."""
        moves, cap = pl.planning.moves_of(sizes, self.device), self.device.capacity_gb
        given = pl.planning.with_options(calls, sizes, self.work, self.device, self.nodes)
        pl.planning.check_room(given, self.device)
        plans = {
            "searched": pl.planning.best_plan(
                given, reallocation=moves, cap_gb=cap, tries=self.tries, iterations=ITERATIONS
            ),
            "symmetric": pl.planning.plan_of(
                given,
                pl.planning.symmetric_choice(given, cap),
                reallocation=moves,
                cap_gb=cap,
                iterations=ITERATIONS,
            ),
        }
        deployed = pl.planning.deployments(
            calls, sizes, self.work, self.device, self.nodes * self.device.per_node,
            reallocation=moves, iterations=ITERATIONS,
        )  # fmt: skip
        return plans, pl.planning.best_deployment(list(deployed))

    def report(
        self, ctx: pl.Context, plans: dict[str, pl.planning.ExecutionPlan],
        deployed: pl.planning.Deployment,
    ) -> dict[str, float]:  # fmt: skip
        for line in self.device.assumptions():
            ctx.say(f"assumed: {line}")
        for name, plan in {**plans, "cluster file": deployed.plan}.items():
            lacks = "" if plan.fits else ", and devices lack memory"
            ctx.say(f"{name}: {plan.makespan / ITERATIONS:.3g} s an iteration{lacks}")
            for row in plan.table():
                ctx.say("    {call}: devices {devices}, {layout}, {seconds:.3g} s".format(**row))
        ctx.say(f"cluster file with schedule.lag=1: {deployed.overlapped:.3g} s an iteration")
        return {
            "searched_seconds": plans["searched"].makespan / ITERATIONS,
            "symmetric_seconds": plans["symmetric"].makespan / ITERATIONS,
            "cluster_seconds": deployed.plan.makespan / ITERATIONS,
            "cluster_lag_seconds": deployed.overlapped,
            "speed": plans["symmetric"].score / plans["searched"].score,
        }

    def fits_here(self) -> bool:
        """Whether this machine has the devices that are planned for."""
        here = torch.cuda.device_count() if self.on == "gpus" else os.cpu_count() or 1
        return self.nodes * self.device.per_node <= here

    def move(self, ctx: pl.Context, deployed: pl.planning.Deployment) -> dict[str, float]:
        """The run's model from the ranks of the learner to the rollout processes."""
        if not self.fits_here() or not deployed.workers:
            ctx.say("no parameters are moved here: " + (
                SAME if not deployed.workers else f"this machine has fewer {self.on} than planned"
            ))  # fmt: skip
            return {}
        before, after = deployed.slots()
        ranks = pl.scale.run_ranks(
            len(before) + len(after), pl.planning.reallocate, ctx.model("policy").source,
            [(before, after, False)], self.device.per_node,
        )  # fmt: skip
        moved_bytes = pl.planning.transition([moved for (moved,) in ranks])
        ctx.say(f"learner to rollout processes: {moved_bytes['bytes']:,.0f} bytes in "
                f"{moved_bytes['seconds']:.2g} s, {moved_bytes['different']:.0f} of {moved_bytes['tensors']:.0f} "
                "tensors differ")  # fmt: skip
        return moved_bytes

    async def train(self, ctx: pl.Context, deployed: pl.planning.Deployment) -> dict[str, object]:
        """A few steps by the cluster file, where this machine has the devices."""
        if not self.execute or not self.fits_here() or deployed.learners > 1:
            return {}
        if importlib.util.find_spec("ray") is None:
            ctx.say("the plan is not run: it needs Ray, pip install 'palaestra[ray]'")
            return {}
        recipe = pl.recipe(self.algorithm)
        recipe = pl.vary(recipe, schedule=replace(recipe.schedule, prompts=8, steps=3))
        share = 1.0 * (self.on == "gpus")
        cluster = pl.Cluster(workers=deployed.workers, gpus=share * deployed.tensor)
        result = await ctx.once("run", pl.scale.OnCluster(runnable=recipe, cluster=cluster))
        return {k: result.metrics.get(k) for k in ("steps", "seconds", "phase_seconds")}


def build(
    algorithm: pl.planning.Algorithm = "ppo",
    nodes: int = 1,
    devices: int = 2,
    actor: str = "policy",
    critic: str = "policy",
    reference: str = "policy",
    reward: str = NONE,
    sequences: int = 64,
    prompt: int = 512,
    answer: int = 512,
    memory_gb: float = 80.0,
    tflops: float = 150.0,
    on: Literal["gpus", "cores"] = "gpus",
    tries: int = 1_500,
    execute: bool = True,
) -> PlanForCluster:
    """`nodes` of so many `devices`. Roles are "policy" (the run's model), the folder of a model or
    its config.json, 7b, 13b or 34b, four numbers "parameters,layers,hidden,key_values", or none.
    `sequences` of `prompt` and `answer` tokens are an iteration. `on`: devices are GPUs or cores.
    """
    models = {"actor": actor, "critic": critic, "reference": reference, "reward": reward}
    if actor == NONE:
        raise pl.UserError("actor=none: a plan needs the model that is trained")
    if min(nodes, devices, sequences, prompt, answer, tries) < 1:
        raise pl.UserError(
            "realhf: nodes, devices, sequences, prompt, answer and tries are above 0"
        )
    return PlanForCluster(
        algorithm=algorithm,
        nodes=nodes,
        models=tuple((r, m) for r, m in models.items() if r != "critic" or algorithm == "ppo"),
        work=pl.planning.Workload(
            sequences=sequences, prompt=prompt, answer=answer, minibatches=min(4, sequences)
        ),
        device=pl.planning.Device(flops=tflops * 1e12, capacity_gb=memory_gb, per_node=devices),
        on=on,
        tries=tries,
        execute=execute,
    )


def embedded(**options: object) -> PlanForCluster:
    """On the cores of this machine, with the embedded model."""
    return build(**{"on": "cores", **options})  # pyright: ignore[reportArgumentType]
