"""The plan that a language model writes, and the arms in which following it is compared."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.rmd_hoi.furniture import Furniture
from palaestra.recipes.llm4rl.rmd_hoi.goal import (
    HasRounds,
    MovementGoals,
    MovementSimulator,
    Places,
    plan_rewards,
)
from palaestra.recipes.llm4rl.rmd_hoi.parts import (
    MovementParts,
    spell_distances,
    spell_places,
)
from palaestra.recipes.llm4rl.rmd_hoi.plan import (
    TRENDS,
    MovementFile,
    MovementPlan,
    MovementScene,
    contacts_alone,
    shuffle_trends,
    spoil_trends,
)

Graph = Literal["movement", "contact", "none"]
SAMPLE = 64  # games of the start, which units are taken from
ASKS = 4  # a reply, and three repairs
QUESTION = """{about}

The task: {task}

Plan it as phases that follow one another. A phase is a graph: "edges" say how a part of the body moves \
relative to a part of an object, by a number:
{trends}
A pair that a phase does not name has no trend. A phase may have a "body_target" and an "object_target", \
{{"part": NAME, "place": NAME of another part, or coordinates}}: where a part of the body, or of an object, \
should be. The next phase begins when the graph and the targets of a phase hold. A trend is judged on one \
step, at any distance, so a phase of approaching or separating needs a target, which says how far. The last \
phase is how things should stay and is judged in every step that is left: contacts or targets, no approaching \
or separating. Parts that are apart can touch only after a phase in which they approach.

Parts of the body: {body}
Parts of objects: {objects}
Places that were seen: {low} to {high}

The scene at the start of a game:
{places}

Distances at the start, on average:
{distances}
"""


@pl.stage
class FollowMovements:
    """A program: PPO on goal states and rewards that are made from a plan of relative movements, in arms
    of equally many environment steps.

    Args:
        asked: who writes the plan; None = nobody, which is refused.
        body, objects: where parts are, see `MovementParts.of`.
        goal: what is wanted, in words; "" = what the simulator says of itself.
        graph: of the guided arm: all trends, those of "contact" alone, or "none", no plan.
        wrong: share of trends that are exchanged for wrong ones, to see what a worse plan does.
        threshold: of r_G, above which the next phase begins.
        arrive: a phase without contact also ends where its targets are, however its parts move; else in motion alone.
        paid: weight of the simulator's own reward beside the plan's.
        games: on which a policy is measured, with its likeliest actions.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = Furniture()
    body: str = ""
    objects: str = ""
    goal: str = ""
    graph: Graph = "movement"
    wrong: float = 0.0
    threshold: float = 0.9
    arrive: bool = True
    paid: float = 1.0
    steps: int = 60_000
    games: int = 256
    learner: pl.control.PPO = pl.control.PPO(games=16, bootstrap=True)

    def __post_init__(self) -> None:
        if self.games < 2 or self.steps < 1 or self.paid < 0:
            raise pl.UserError("rmd-hoi: games are 2 or more, steps 1 or more, paid 0 or more")
        if not (0 <= self.wrong <= 1 and 0 < self.threshold < 1):
            raise pl.UserError("rmd-hoi: wrong is from 0 to 1, threshold between 0 and 1")

    @property
    def source(self) -> pl.Source:
        """Who writes the plan, the reply kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "rmd-hoi needs a language model that writes the plan: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("rmd-hoi", ctx.seed)
        parts = MovementParts.of(self.sim, self.body, self.objects)
        start = self.learner.start(self.sim, key).act
        games = pl.control.play_games(self.sim, start, SAMPLE, (*key, "sample"))
        scene, first = parts.scene(games), parts.places(games["obs"][:, 0, 0])
        plan = None if self.graph == "none" else await self.plans(ctx, scene, first)
        training = MovementTraining(program=self, ctx=ctx, parts=parts, scene=scene, key=key)
        results = await pl.control.compare_arms(ctx, training.arms(plan))
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", **{k: own[k] for k in ("plan_reward", "return", "phases")}})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "plan_reward": own["plan_reward"],
                "phases": own["phases"],
                "sampled_tokens": 0,
                "plans": None if plan is None else [p.model_dump() for p in plan],
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )

    @property
    def wanted(self) -> tuple[str, ...]:
        """What a plan is asked for, in words: of a simulator with several tasks one for each, unless `goal` names one for
        all.
        """
        several = self.sim.tasks if isinstance(self.sim, HasRounds) else ()
        return several if several and not self.goal else (self.goal or "as said above",)

    async def plans(
        self, ctx: pl.Context, scene: MovementScene, first: Places
    ) -> Sequence[MovementPlan]:
        """The model's plan of each task, asked for once in a run however often it is resumed.

        Raises Fault "chat-format" where it has a fault in all of four replies.
        """
        own = [
            await self.plan(ctx, self.question(scene, first, task), scene, i)
            for i, task in enumerate(self.wanted)
        ]
        tasks = len(self.sim.tasks) if isinstance(self.sim, HasRounds) else 1
        return own if len(own) == tasks else own * tasks

    async def plan(
        self, ctx: pl.Context, question: str, scene: MovementScene, number: int
    ) -> MovementPlan:
        messages = pl.services.question_messages(question)
        request = pl.ChatRequest(messages=messages, max_tokens=2048)

        async def ask() -> dict[str, Any]:
            reply = await ctx.ask_for(self.source, request, scene.form(), asks=ASKS)
            return reply.model_dump()

        name = f"plan {number + 1}" if number else "plan"
        return MovementPlan.model_validate(await ctx.once(name, ask))

    def question(self, scene: MovementScene, first: Places, task: str) -> str:
        """What the plan of a task is asked for with.

        Args:
            first: [n, d] by part, where it is at the start of games.
        """
        spell = lambda x: "(" + ", ".join(f"{v:.3g}" for v in x) + ")"
        about = str(getattr(self.sim, "about", "") or "A body acts in a simulator.")
        return QUESTION.format(
            about=about,
            task=task,
            trends="\n".join(f"- {number}: {text}" for number, text in TRENDS.items()),
            body=", ".join(scene.body),
            objects=", ".join(scene.objects),
            low=spell(scene.low),
            high=spell(scene.high),
            places=spell_places({k: first[k] for k in (*scene.body, *scene.objects)}),
            distances=spell_distances(first, scene.body, scene.objects),
        )


@pl.value_class
class MovementTraining:
    """Trains the policy of an arm."""

    program: FollowMovements
    ctx: pl.Context
    parts: MovementParts
    scene: MovementScene
    key: pl.Key

    def arms(self, plans: Sequence[MovementPlan] | None) -> dict[str, pl.control.ArmRun]:
        """none, guide, and where there are plans also contact and shuffled; script where the simulator has one."""
        arms = {"none": self.arm(None)}
        if isinstance(self.program.sim, pl.control.ShowsTask):
            arms["script"] = self.script
        if plans is None:
            return arms | {"guide": self.arm(None, save=True)}
        program, rng = self.program, pl.rng_of((*self.key, "wrong"))
        each: Callable[[Any], list[MovementPlan]] = lambda change: [change(p) for p in plans]
        contacts = each(contacts_alone)
        guided = contacts if program.graph == "contact" else list(plans)
        if not all(p.phases for p in guided):
            self.ctx.say("the plan has neither contacts nor targets: graph=contact follows no plan")
            return arms | {"guide": self.arm(None, save=True)}
        guided = [spoil_trends(p, program.wrong, rng) for p in guided]
        arms["guide"] = self.arm(guided, save=True)
        if all(p.phases for p in contacts) and program.graph != "contact":
            arms["contact"] = self.arm(contacts)
        rng = pl.rng_of((*self.key, "shuffled"))
        mixed = [shuffle_trends(p, rng) for p in guided]
        if mixed != guided:
            arms["shuffled"] = self.arm(mixed)
        else:
            self.ctx.say("all trends of the plan are the same, so there is no shuffled arm")
        return arms

    def arm(self, plans: Sequence[MovementPlan] | None, save: bool = False) -> pl.control.ArmRun:
        """What `compare_arms` runs; the policy is saved where there is a folder."""

        async def run() -> Mapping[str, Any]:
            return await self.learn(plans, save)

        return run

    async def script(self) -> Mapping[str, Any]:
        """An oracle: what the simulator's own script is paid, and nothing is learned."""
        numbers, played = pl.control.measure_arm(
            self.program.sim,
            pl.control.acting_script(self.program.sim),
            pl.control.as_paid,
            self.program.games,
            self.key,
        )
        none = {"plan_reward": 0.0, "phases": 0.0}
        return {**numbers, **none, "paid_at_end": paid_at_end(played), "env_steps": 0}

    async def learn(self, plans: Sequence[MovementPlan] | None, save: bool) -> dict[str, Any]:
        """The numbers of a policy, with those of `measure_arm`.

        "plan_reward" is what the plan adds to a step on average, "phases" the share of its phases that
        are done at the end of a game; both 0 without a plan.
        """
        program, lines = self.program, list[dict[str, Any]]()
        sim, shaping = program.sim, pl.control.as_paid
        if plans is not None:
            goals = [MovementGoals(plan=plan, scene=self.scene) for plan in plans]
            sim = MovementSimulator(
                sim, goals, self.parts.places, program.threshold, program.arrive
            )
            shaping = plan_rewards(program.paid, program.learner.gamma, sim.horizon)
        policy = await program.learner.learn(sim, self.cut(), self.key, shaping, log=lines.append)
        act: Any = lambda obs, legal, rng: policy.act(obs, legal, rng, greedy=True)
        numbers, played = pl.control.measure_arm(sim, act, shaping, program.games, self.key)
        if save and self.ctx.out is not None:
            pl.control.save_policy(policy, self.ctx.out / "policy")
            if plans is not None:
                text = {"body": program.body, "objects": program.objects}
                file = MovementFile(
                    plans=tuple(plans),
                    scene=self.scene,
                    threshold=program.threshold,
                    arrive=program.arrive,
                    **text,
                )
                file.save(self.ctx.out / "policy")
        alive = np.broadcast_to(played["alive"][:, None], played["reward"].shape)
        followed = {"plan_reward": 0.0, "phases": 0.0}
        if plans is not None:
            followed = {
                "plan_reward": float(played["plan_reward"][alive].mean()),
                "phases": float(played["plan_done"][last_steps(played)].mean()),
            }
        return {
            **numbers,
            **followed,
            "paid_at_end": paid_at_end(played),
            "env_steps": int(lines[-1]["env_steps"]),
            "curve": [{k: x[k] for k in ("env_steps", "reward")} for x in lines],
        }

    def cut(self) -> int:
        """Environment steps of an arm, by `--steps`."""
        if (most := self.ctx.budget.get("steps")) is None:
            return self.program.steps
        learner = self.program.learner
        return min(self.program.steps, int(most) * learner.games * self.program.sim.horizon)


def last_steps(paths: pl.control.Paths) -> tuple[Any, ...]:
    """Indices of the last step of each game, of columns [n, A, T]."""
    return (np.arange(len(paths["alive"])), slice(None), paths["alive"].sum(1) - 1)


def paid_at_end(paths: pl.control.Paths) -> float:
    """The share of games that are paid in their last step."""
    return float((paths["reward"][last_steps(paths)] > 0).mean())
