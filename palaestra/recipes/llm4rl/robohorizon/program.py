"""Stages and rewards that language models write, and the arms in which they are compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.robohorizon.demos import (
    horizons_by_stage,
    read_demonstrations,
    segments_of,
)
from palaestra.recipes.llm4rl.robohorizon.dream import DreamLearner
from palaestra.recipes.llm4rl.robohorizon.lid import LidTask
from palaestra.recipes.llm4rl.robohorizon.stages import (
    StagedTask,
    StagePlan,
    StageRewards,
    draw_states,
    plan_form,
    reward_faults,
    rewards_form,
    spell_stages,
    staged_shaping,
)
from palaestra.recipes.llm4rl.robohorizon.views import HasCameras, MaskedViews, ViewLearner
from palaestra.recipes.llm4rl.robohorizon.world import WorldPlayer, prediction_error

Rewards = Literal["staged", "steps", "none"]
SAMPLE = 64  # games of the start
ASKS = 4  # a reply, and three repairs
UPDATES_A_STEP = 10  # of the autoencoder, at most, where `--steps` cuts a run
EXPRESSIONS = """An expression is a number, the name of a quantity, or {"op": ..., "args": [...]} with the \
operators add, subtract, multiply, minimum, maximum, less (two arguments), neg, abs, square, exp, tanh (one). \
less is 1 where the first is below the second, else 0."""
PLAN = """{about}

The task: {task}

Divide it into stages that follow one another. "stages" is a list of {{"name": TEXT, "done": EXPRESSION}}; a \
stage is done where its expression is above 0.5. {expressions}

Quantities:
{quantities}
"""
REWARD = """{about}

Stages:
{stages}

Write a reward for each stage, "rewards": a list of {{"step": EXPRESSION, "bonus": NUMBER}}. "step" is paid \
every step while the stage is not done: it is small, and grows towards the end of the stage. "bonus" is paid \
in every step after the stage is done: it is larger than step rewards ever are. {expressions}

Quantities:
{quantities}
"""
REFUSED = """
An earlier reply was refused: {fault}.
It was {reply}
"""


@pl.stage
class RewardStages:
    """A program: a learner with staged rewards, in arms of equally many environment steps.

    Args:
        asked: who writes the stages; None = nobody, which is refused.
        writer: who writes their rewards; None = `asked`.
        goal: the task in words; "" = what the simulator says of itself.
        rewards: of the guided arm: "staged", "steps" without bonuses, or "none".
        lint: whether rewards that `reward_faults` refuses are asked for again.
        paid: weight of the simulator's own reward beside the staged one.
        demos: a file of demonstrations, or "" for those of the simulator's `demonstrate`, if it has any.
        demonstrations: of the simulator's.
        speed: the quantity that is the body's speed, by which demonstrations have keyframes; "" = that of
            the observation.
        gripper: the quantity that is the gripper's state, "" = none.
        imagine: imagined steps, at most, and where no demonstration says how many.
        world: the world model's learner; its arms are left out where `dream` is false.
        views: of the autoencoder, by which a second world model sees what cameras show, where the simulator has some.
        games: on which a policy is measured, with its likeliest actions.
    """

    asked: pl.Source | None = None
    writer: pl.Source | None = None
    sim: pl.control.Simulator = LidTask()
    goal: str = ""
    rewards: Rewards = "staged"
    lint: bool = True
    paid: float = 1.0
    demos: str = ""
    demonstrations: int = 30
    speed: str = ""
    gripper: str = ""
    imagine: int = 15
    dream: bool = True
    steps: int = 30_000
    games: int = 256
    learner: pl.control.PPO = pl.control.PPO(games=16, epochs=8, bootstrap=True)
    world: DreamLearner = DreamLearner()
    views: ViewLearner = ViewLearner()
    smallest: ClassVar[Mapping[str, float]] = {"demonstrations": 2, "games": 8}

    def __post_init__(self) -> None:
        least = {"games": 2, "steps": 1, "imagine": 1, "demonstrations": 0, "paid": 0}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise pl.UserError(f"robohorizon: {name} is {number} or more")

    def source(self, role: Literal["asked", "writer"]) -> pl.Source:
        """Who writes, the replies kept. Raises UserError where nobody does."""
        source = self.writer if role == "writer" and self.writer is not None else self.asked
        if source is None:
            raise pl.UserError(
                "robohorizon needs a language model that writes stages: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        return pl.services.TranscribedSource(source)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("robohorizon", ctx.seed)
        # before anybody is asked, and before arms that do not need it are trained
        demonstrations = read_demonstrations(self.demos, self.sim) if self.demos else None
        start = self.learner.start(self.sim, key).act
        games = pl.control.play_games(self.sim, start, SAMPLE, (*key, "sample"))
        words = words_of(self.sim, games)
        for role, name in (("speed", self.speed), ("gripper", self.gripper)):
            if name and name not in words.declared:
                known = ", ".join(words.declared)
                raise pl.UserError(f"{role}={name}: there is no such quantity; there are {known}")
        written = None if self.rewards == "none" else await StageWriting(self, ctx, words).run()
        training = StageTraining(
            program=self, ctx=ctx, words=words, key=key, file_games=demonstrations
        )
        results = await pl.control.compare_arms(ctx, training.arms(written))
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", **{k: own[k] for k in ("staged", "return", "stages")}})
        record = {} if written is None else written.model_dump()
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "staged": own["staged"],
                "stages": own["stages"],
                "rejections": 0 if written is None else written.rejections,
                "sampled_tokens": 0,
                "written": record,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


def words_of(sim: pl.control.Simulator, games: pl.control.Paths) -> pl.control.SimulatorWords:
    """What may be read. Numbers of an observation that nobody declared may go twice as far beyond what
    games of the start saw as these are apart, for a task's end lies beyond its start; one x that never
    moved may go max(1, |x|) beyond.
    """
    words = pl.control.SimulatorWords.of(sim, games)
    if hasattr(sim, "declared"):
        return words
    wide = dict[str, pl.control.Quantity]()
    for name, q in words.declared.items():
        beyond = 2 * (q.high - q.low) or max(1.0, abs(q.low))
        wide[name] = replace(q, low=q.low - beyond, high=q.high + beyond)
    return pl.control.SimulatorWords(about=words.about, declared=wide, compute=words.compute)


class WrittenStages(StagePlan, StageRewards):
    """What the models wrote: stages, their rewards, those that the lint refused first, and how often."""

    refused: StageRewards | None = None
    rejections: int = 0


class StageWriting:
    """Asks for stages and for rewards, each once however often a run is resumed."""

    def __init__(self, program: RewardStages, ctx: pl.Context, words: pl.control.SimulatorWords):
        self.program, self.ctx, self.words = program, ctx, words
        # the same states for every reply, and for every seed
        self.states = draw_states(words.declared, pl.rng_of(("robohorizon", "states")))

    async def run(self) -> WrittenStages:
        """Raises Fault "chat-format" for replies that cannot be read, or that the lint refuses, four
        times.
        """

        async def write() -> dict[str, Any]:
            plan = await self.plan()
            return (await self.reward(plan)).model_dump()

        return WrittenStages.model_validate(await self.ctx.once("written", write))

    def told(self) -> dict[str, str]:
        return {
            "about": self.words.about,
            "expressions": EXPRESSIONS,
            "quantities": pl.control.spell_quantities(self.words.declared),
        }

    async def plan(self) -> StagePlan:
        question = PLAN.format(task=self.program.goal or "as said above", **self.told())
        form = plan_form(self.words.declared, self.states)
        return await self.ask("asked", question, form)

    async def reward(self, plan: StagePlan) -> WrittenStages:
        stages = "\n".join(spell_stages(plan))
        base = REWARD.format(stages=stages, **self.told())
        form = rewards_form(self.words.declared, len(plan.stages))
        question, refused, wrong = base, None, list[str]()
        for rejections in range(ASKS):
            rewards = await self.ask("writer", question, form)
            if self.program.lint:
                wrong = reward_faults(plan, rewards, self.words.declared, self.states)
            if not wrong:
                return WrittenStages(
                    stages=plan.stages,
                    rewards=rewards.rewards,
                    refused=refused,
                    rejections=rejections,
                )
            self.ctx.say(f"the lint refuses a reward: {wrong[0]}")
            refused = refused or StageRewards(rewards=rewards.rewards)
            question = base + REFUSED.format(fault=wrong[0], reply=rewards.model_dump_json())
        raise pl.Fault(
            "chat-format",
            f"rewards were refused {ASKS} times: {wrong[0]}; lint=false learns from them all the same",
        )

    async def ask(self, role: Literal["asked", "writer"], question: str, form: Any) -> Any:
        request = pl.ChatRequest(messages=pl.services.question_messages(question), max_tokens=4096)
        return await self.ctx.ask_for(self.program.source(role), request, form, asks=ASKS)


@pl.value_class
class StageTraining:
    """Trains the policy of an arm."""

    program: RewardStages
    ctx: pl.Context
    words: pl.control.SimulatorWords
    key: pl.Key
    file_games: pl.control.Paths | None = None  # the demonstrations of `demos`

    def task(self, plan: StagePlan, rewards: StageRewards) -> StagedTask:
        return StagedTask(plan=plan, rewards=rewards, words=self.words)

    def arms(self, written: WrittenStages | None) -> dict[str, pl.control.ArmRun]:
        """none, guide; and where stages are written unlinted, steps, shuffled, world and views."""
        program = self.program
        arms = {"none": self.arm(None)}
        if isinstance(program.sim, pl.control.ShowsTask):
            arms["script"] = self.script(None if written is None else self.task(written, written))
        if written is None:
            return arms | {"guide": self.arm(None, save=True)}
        task, bonuses = self.task(written, written), program.rewards == "staged"
        arms["guide"] = self.arm(task, bonuses, save=True)
        if written.refused is not None:
            arms["unlinted"] = self.arm(self.task(written, written.refused), bonuses)
        if bonuses:
            arms["steps"] = self.arm(task, bonuses=False)
        arms["shuffled"] = self.arm(task, bonuses, shuffled=True)
        if program.dream and program.sim.agents == 1:
            arms["world"] = self.dream(task, bonuses)
            if isinstance(program.sim, HasCameras):
                arms["views"] = self.dream(task, bonuses, seeing=True)
        elif program.dream:
            self.ctx.say("a world model is of one agent, so there is no arm of it")
        return arms

    def arm(
        self,
        task: StagedTask | None,
        bonuses: bool = True,
        shuffled: bool = False,
        save: bool = False,
    ) -> pl.control.ArmRun:
        """PPO; the policy is saved where there is a folder."""
        program = self.program

        async def run() -> Mapping[str, Any]:
            lines = list[dict[str, Any]]()
            shaping = self.shaping(task, program.learner.gamma, bonuses, shuffled)
            policy = await program.learner.learn(
                program.sim, self.cut(), self.key, shaping, log=lines.append
            )
            if save and self.ctx.out is not None:
                pl.control.save_policy(policy, self.ctx.out / "policy")
            act: Any = lambda o, legal, rng: policy.act(o, legal, rng, greedy=True)
            return self.measure(act, task, shaping, lines)

        return run

    def script(self, task: StagedTask | None) -> pl.control.ArmRun:
        """An oracle: what the simulator's own script is paid, and nothing is learned."""

        async def run() -> Mapping[str, Any]:
            act = pl.control.acting_script(self.program.sim)
            return self.measure(act, task, pl.control.as_paid, [{"env_steps": 0, "reward": 0.0}])

        return run

    def dream(self, task: StagedTask, bonuses: bool, seeing: bool = False) -> pl.control.ArmRun:
        """The same rewards, learned in a world model's imagination; one that sees has the code of the front camera alone in
        the place of the observation's numbers.
        """
        program = self.program

        async def run() -> Mapping[str, Any]:
            lines, sim = list[Mapping[str, Any]](), program.sim
            shaping = self.shaping(task, program.world.gamma, bonuses, False)
            demos, horizons = self.demonstrations(), self.horizons(task)
            stage = lambda paths: before(task.reached(paths))[:, 0]
            views, fitted = self.fit_views(shaping, demos) if seeing else (None, {})
            world = await program.world.learn(
                sim, self.cut(), self.key, shaping, stage, horizons, demos, lines.append, views
            )
            if self.ctx.out is not None:
                world.save(self.ctx.out / ("seeing" if seeing else "world"))
            numbers = self.measure(WorldPlayer(world, greedy=True), task, shaping, lines)
            error = prediction_error(world, sim, program.games, self.key)
            return {**numbers, **error, **fitted, "horizons": horizons.tolist()}

        return run

    def fit_views(
        self, shaping: pl.control.Shaping, demos: pl.control.Paths | None
    ) -> tuple[MaskedViews, dict[str, float]]:
        """An autoencoder of what cameras show in demonstrations, from keyframe to keyframe; without them, in games of the
        start, which count as steps of no arm.
        """
        program, key = self.program, (*self.key, "views")
        if demos is None:
            start = program.learner.start(program.sim, key).act
            demos = pl.control.play_games(program.sim, start, SAMPLE, key)
        segments = segments_of(demos, *self.motion(demos))
        views = program.views
        if (most := self.ctx.budget.get("steps")) is not None:
            views = replace(views, updates=min(views.updates, UPDATES_A_STEP * int(most)))
        return views.fit(program.sim, demos, shaping(demos)[:, 0], segments, key)

    def shaping(
        self, task: StagedTask | None, gamma: float, bonuses: bool, shuffled: bool
    ) -> pl.control.Shaping:
        if task is None:
            return pl.control.as_paid
        program, mixed = self.program, (*self.key, "reward") if shuffled else None
        return staged_shaping(task, program.sim.horizon, gamma, program.paid, bonuses, mixed)

    def demonstrations(self) -> pl.control.Paths | None:
        """Of the file, else of the simulator; None = there are none."""
        program, sim = self.program, self.program.sim
        if self.file_games is not None:
            return self.file_games
        if not isinstance(sim, pl.control.ShowsTask) or not program.demonstrations:
            return None
        act = pl.control.acting_script(sim)
        return pl.control.play_games(sim, act, program.demonstrations, (*self.key, "demos"))

    def horizons(self, task: StagedTask) -> np.ndarray:
        """[N + 1] imagined steps by stage: the key-horizons of demonstrations."""
        program, stages = self.program, len(task.plan.stages)
        demos = self.demonstrations()
        if demos is None:
            return np.full(stages + 1, program.imagine)
        stage = before(task.reached(demos))[:, 0]
        return horizons_by_stage(demos, stage, stages, program.imagine, *self.motion(demos))

    def motion(self, demos: pl.control.Paths) -> tuple[np.ndarray | None, np.ndarray | None]:
        """[n, T] speed and gripper of games, None where no quantity is named for it."""
        columns = {k: x[:, 0] for k, x in self.words.compute(demos).items()}
        grip = columns.get(self.program.gripper)
        if grip is not None:  # before a step: a keyframe is where it has not changed yet
            grip = np.concatenate([grip[:, :1], grip[:, :-1]], -1)
        return columns.get(self.program.speed), grip

    def measure(
        self,
        act: Any,
        task: StagedTask | None,
        shaping: pl.control.Shaping,
        lines: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """The numbers of `measure_arm`; "staged", how far rewards are from what is paid, on average
        over steps; "stages", the share of stages that are done at the end of a game.
        """
        numbers, played = pl.control.measure_arm(
            self.program.sim, act, shaping, self.program.games, self.key
        )
        alive = np.broadcast_to(played["alive"][:, None], played["reward"].shape)
        last = (np.arange(len(alive)), slice(None), played["alive"].sum(1) - 1)
        moved = np.abs(shaping(played) - played["reward"])[alive].mean()
        done = 0.0
        if task is not None:
            done = float(task.reached(played)[last].mean() / len(task.plan.stages))
        return {
            **numbers,
            "staged": float(moved),
            "stages": done,
            "paid_at_end": float((played["reward"][last] > 0).mean()),
            "env_steps": int(lines[-1]["env_steps"]),
            "curve": [{k: x[k] for k in ("env_steps", "reward")} for x in lines],
        }

    def cut(self) -> int:
        """Environment steps of an arm, by `--steps`."""
        program = self.program
        if (most := self.ctx.budget.get("steps")) is None:
            return program.steps
        return min(program.steps, int(most) * program.learner.games * program.sim.horizon)


def before(reached: np.ndarray) -> np.ndarray:
    """[n, A, T] the stage in which each step begins, of those that are done after it."""
    return np.concatenate([np.zeros_like(reached[..., :1]), reached[..., :-1]], -1)
