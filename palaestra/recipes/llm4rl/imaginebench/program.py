"""Policies from recorded and imagined rollouts, without a step in the simulator, and the arms in which they
are compared.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.imaginebench.grid import RECORDED, ColourGrid, instructions
from palaestra.recipes.llm4rl.imaginebench.imagine import (
    DynamicsCheck,
    ImaginationLimits,
    imagine_rollouts,
    steps_of,
    training_rows,
)
from palaestra.recipes.llm4rl.imaginebench.rollouts import (
    TRAIN,
    InstructedSimulator,
    InstructionEncoder,
    OfflineTasks,
    TaskRollout,
    check_fits,
    embed_words,
    exchange_instructions,
    paths_of,
    read_tasks,
    repeat_smaller,
)

Learner = Literal["cql", "bc"]
Imagination = Literal["asked", "none"]
Simulators = Callable[[str], pl.control.Simulator]  # by instruction
ENCODER, TUNING = "encoder.json", "sft.jsonl"


@pl.value_class
class OfflineSpaces:
    """What a policy of instructions sees and does."""

    observation: int
    actions: int | pl.control.Box


@pl.stage
class LearnFromImagination:
    """A program: an offline learner on recorded rollouts, and on those with rollouts that a language
    model imagines of new instructions, in five arms.

    Args:
        asked: who imagines; None = nobody, which is refused where no rollouts are given either.
        sim: FILE.py:NAME, called with an instruction; "" = the grid with marks.
        rollouts: FILE.jsonl, see `read_tasks`; "" = the grid's expert.
        learner: conservative Q learning ("cql"), or behaviour cloning ("bc").
        each: rollouts that are imagined for an instruction.
        imagination: "none" = the guided arm has recorded rollouts alone.
        threshold: a game is a success that pays so much; None = the simulator's fact "success", else that
            it ended, not at its limit of time, in a step that paid more than 0.
        examples: recorded rollouts that a question shows.
        longest: steps of an imagined rollout; 0 = twice those of the longest recorded one.
        context: tokens of a question and its reply, which the model takes; longer ones are refused before
            anything is asked.
        embed: FILE.py:NAME, from an instruction to numbers; "" = `embed_words`.
        steps: of `updates` each.
        games: of a test, for every instruction.
    """

    asked: pl.Source | None = None
    sim: str = ""
    rollouts: str = ""
    learner: Learner = "cql"
    each: int = 15
    imagination: Imagination = "asked"
    threshold: float | None = None
    embed: str = ""
    steps: int = 30
    updates: int = 100
    games: int = 32
    examples: int = 2
    longest: int = 0
    context: int = 32_768
    alpha: float = 10.0
    lr: float = 5e-4
    gamma: float = 0.97
    batch: int = 128
    width: int = 128
    smallest: ClassVar[Mapping[str, float]] = {"each": 2, "updates": 2, "games": 4}

    def __post_init__(self) -> None:
        for name in ("each", "steps", "updates", "batch", "width"):
            if getattr(self, name) < 1:
                raise pl.UserError(f"imaginebench: {name} is 1 or more")
        if self.games < 2:
            raise pl.UserError("imaginebench: games is 2 or more")
        if min(self.examples, self.longest) < 0:
            raise pl.UserError("imaginebench: examples and longest are 0 or more")
        if bool(self.sim) != bool(self.rollouts):
            raise pl.UserError(
                "imaginebench: --env FILE.py:NAME and rollouts=FILE.jsonl belong together: rollouts that were "
                "recorded in the simulator, and the simulator that tests the policies"
            )

    @property
    def limits(self) -> ImaginationLimits:
        return ImaginationLimits(examples=self.examples, longest=self.longest, context=self.context)

    @property
    def source(self) -> pl.Source:
        """Who imagines, its replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "imaginebench needs a language model that imagines rollouts: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE; or rows of the file "
                'with "imagined": true'
            )
        return pl.services.TranscribedSource(self.asked)

    def simulators(self) -> Simulators:
        if not self.sim:
            return ColourGrid
        return partial(instructed, pl.tasks.load(self.sim, "simulator"), self.sim)

    def tasks(self, sims: Simulators, ctx: pl.Context | None, key: pl.Key) -> OfflineTasks:
        """The benchmark: the user's file, or the grid's."""
        if not self.rollouts:
            return recorded_tasks(self.each, key)
        tasks, cut = read_tasks(self.rollouts)
        if cut and ctx is not None:
            ctx.say(
                f"{cut} rollouts that did not end lost their last step: the observation after it is not in "
                "the file (T actions, T + 1 observations)"
            )
        return check_fits(tasks, sims(tasks.real[0].instruction))

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("imaginebench", ctx.seed)
        sims = self.simulators()
        tasks = self.tasks(sims, ctx, key)
        tested = {text: sims(text) for text in tasks.levels}
        if not tasks.unseen:
            raise pl.UserError(
                'imaginebench: no new instructions; add rows such as {"instruction": "...", "level": "hard"}'
            )
        actions = next(iter(tested.values())).actions
        if self.learner == "cql" and isinstance(actions, pl.control.Box):
            raise pl.UserError(
                "imaginebench: learner=cql needs actions that can be counted, and these are continuous: "
                "take learner=bc"
            )
        if why := why_no_success(tasks.real, next(iter(tested.values())), self.threshold):
            ctx.say(why)
        embed = pl.tasks.load(self.embed, "function") if self.embed else embed_words
        if ctx.out is not None:
            rows = training_rows(tested, tasks.real, (*key, "tuning"), self.limits)
            write_rows(ctx.out / TUNING, rows)
        imagined, refused = await self.imagined(ctx, tested, tasks, key)
        encoder = InstructionEncoder(tasks.real, embed)
        arms = OfflineArms(
            program=self,
            ctx=ctx,
            tasks=tasks,
            sims=tested,
            encoder=encoder,
            key=key,
            check=DynamicsCheck(tasks.real, actions, key) if imagined else None,
            first=[],
        )
        quality = arms.quality(imagined, refused)
        results = await pl.control.compare_arms(ctx, arms.all(imagined))
        guide = results["guide"]
        ctx.spend("env_steps", sum(len(r) for r in tasks.real))
        ctx.log({"arm": "guide", "moved": guide["moved"], "return": guide["return"], **quality})
        levels = [c for c in guide if c.startswith("success_")]
        gaps = {
            f"gap_{c.removeprefix('success_')}": results["oracle"][c] - guide[c]
            for c in (levels if "oracle" in results else ())
        }
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                **{c: guide[c] for c in levels},
                **{f"{c}_none": results["none"][c] for c in levels},
                **gaps,
                **quality,
                "moved": guide["moved"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )

    async def imagined(
        self,
        ctx: pl.Context,
        sims: Mapping[str, pl.control.Simulator],
        tasks: OfflineTasks,
        key: pl.Key,
    ) -> tuple[list[TaskRollout], int]:
        """Rollouts of the file and of the model, and the number of replies that did not fit."""
        if self.imagination == "none":
            return [], 0
        given = list(tasks.imagined)
        if self.asked is None and given:
            return given, 0
        unseen = {text: sims[text] for text in tasks.unseen}
        written, refused = await imagine_rollouts(
            ctx, self.source, unseen, tasks.real, self.each, (*key, "imagined"), self.limits
        )
        if refused:
            ctx.say(f"{refused} replies were no rollout that fits the simulator, and are left out")
        if not given and not written:
            raise pl.UserError(
                "imaginebench: no reply of the model is a rollout; its run folder has transcript.jsonl with "
                f"them, and {TUNING}, rows to fine-tune it on: palaestra train sft --data RUN/{TUNING}"
            )
        return given + written, refused

    def cut(self, ctx: pl.Context) -> int:
        """Steps of `updates` each, by `--steps`."""
        most = ctx.budget.get("steps")
        return self.steps if most is None else min(self.steps, int(most))


def instructed(make: Callable[[str], Any], spec: str, instruction: str) -> pl.control.Simulator:
    """A user's simulator under an instruction. Raises UserError for what does not take one."""
    if not callable(make) or (hasattr(make, "reset") and not isinstance(make, type)):
        raise pl.UserError(f"{spec}: name a class or a function that takes the instruction, a text")
    try:
        sim = pl.control.simulator_from(partial(make, instruction), spec)
    except TypeError as error:
        raise pl.UserError(
            f"{spec} is called with the instruction, a text, and makes a simulator: {error}"
        ) from None
    if sim.agents != 1:
        raise pl.UserError(f"{spec}: imaginebench is for one agent, not {sim.agents}")
    return sim


def recorded_tasks(each: int, key: pl.Key) -> OfflineTasks:
    """The grid's instructions with rollouts of its expert: `RECORDED` of the level "train" to learn from, and
    for the oracle `each` of every other instruction, as many as are imagined.
    """
    levels = instructions()
    trained = RECORDED // sum(level == TRAIN for level in levels.values())
    play = lambda text, n: play_expert(ColourGrid(text), n, (*key, "expert"))
    return OfflineTasks(
        levels=levels,
        real=[r for text, level in levels.items() if level == TRAIN for r in play(text, trained)],
        other=[r for text, level in levels.items() if level != TRAIN for r in play(text, each)],
    )


def play_expert(sim: ColourGrid, n: int, key: pl.Key) -> list[TaskRollout]:
    """Games of the expert as rollouts."""
    paths = pl.control.play_games(sim, sim.expert, n, (*key, sim.instruction))
    lengths = paths["alive"].sum(1)
    return [
        TaskRollout(
            instruction=sim.instruction,
            obs=paths["obs"][i, 0, :T],
            act=paths["act"][i, 0, :T],
            next_obs=paths["next_obs"][i, 0, :T],
            reward=paths["reward"][i, 0, :T],
            over=bool(paths["over"][i].any()),
        )
        for i, T in enumerate(lengths)
    ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pl.value_class
class OfflineArms:
    """What the arms of a run share."""

    program: LearnFromImagination
    ctx: pl.Context
    tasks: OfflineTasks
    sims: Mapping[str, pl.control.Simulator]
    encoder: InstructionEncoder
    key: pl.Key
    check: DynamicsCheck | None  # None = nothing is imagined
    first: list[Any]  # what the policy of the arm "none" does, see `choices`

    @property
    def spaces(self) -> OfflineSpaces:
        sim = next(iter(self.sims.values()))
        return OfflineSpaces(observation=self.encoder.width, actions=sim.actions)

    def quality(self, imagined: Sequence[TaskRollout], refused: int) -> dict[str, float]:
        """How good imagined rollouts are, as they are: the share of replies that fit, the share of
        steps that the check keeps, their mean error over that of recorded steps, and of a simulator that
        can say so (`follows`) the share of steps that are possible.
        """
        if (check := self.check) is None:
            return {}
        kept = np.concatenate([check.keeps(r) for r in imagined])
        numbers = {
            "imagined": len(imagined),
            "valid": len(imagined) / (len(imagined) + refused),
            "kept": float(kept.mean()),
            "dynamics_error": float(
                check.errors(*steps_of(imagined)).mean() / max(check.held, 1e-9)
            ),
        }
        possible = [
            self.sims[r.instruction].follows(*steps_of([r]))  # type: ignore[attr-defined]
            for r in imagined
            if hasattr(self.sims[r.instruction], "follows")
        ]
        return numbers | ({"possible": float(np.concatenate(possible).mean())} if possible else {})

    def all(self, imagined: Sequence[TaskRollout]) -> dict[str, pl.control.ArmRun]:
        """The arms, those that cannot be left out with a word."""
        arms = {
            "none": self.arm("none", lambda: self.mixed(())),
            "guide": self.arm("guide", lambda: self.mixed(imagined)),
        }
        if self.check is not None:
            keeps = self.check.keeps
            arms["filtered"] = self.arm("filtered", lambda: self.mixed(imagined, keeps))
            if len({r.instruction for r in imagined}) > 1:
                rng = pl.rng_of((*self.key, "shuffled"))
                mixed = exchange_instructions(imagined, rng)
                arms["shuffled"] = self.arm("shuffled", lambda: self.mixed(mixed))
            else:
                self.ctx.say(
                    "one imagined instruction has no other to be exchanged with: no arm shuffled"
                )
        if self.tasks.other:
            arms["oracle"] = self.arm("oracle", lambda: self.mixed(self.tasks.other))
        else:
            self.ctx.say(
                "no recorded rollouts of new instructions: no arm oracle, and no gap to it"
            )
        return arms

    def mixed(
        self,
        other: Sequence[TaskRollout],
        keeps: Callable[[TaskRollout], np.ndarray] | None = None,
    ) -> pl.control.Paths:
        """Recorded rollouts of trained instructions, and as many steps of other ones."""
        return paths_of(repeat_smaller(self.tasks.real, other), self.encoder, keeps)

    def folder(self, name: str) -> Path | None:
        if self.ctx.out is None:
            return None
        return self.ctx.out / ("policy" if name == "guide" else f"policies/{name}")

    def arm(self, name: str, data: Callable[[], pl.control.Paths]) -> pl.control.ArmRun:
        """What `compare_arms` runs. Every arm starts from the same weights and makes as many updates."""

        async def run() -> Mapping[str, Any]:
            paths = data()
            act, lines, policy = self.learn(paths)
            if (folder := self.folder(name)) is not None:
                pl.control.save_policy(policy, folder)
                save_encoder(self.encoder, folder)
            choices = self.choices(act)
            if name == "none":
                self.first.extend(choices.tolist())
            # of a run that goes on behind its first arm they are in the run folder
            first = await self.ctx.once("choices", lambda: self.first)
            return {
                **self.measure(act),
                "moved": self.distance(np.array(self.first or first), choices),
                "env_steps": sum(map(len, self.tasks.real)),
                "steps_learned_from": int(paths["alive"].sum()),  # repeated ones too
                "curve": lines,
            }

        return run

    def learn(
        self, paths: pl.control.Paths
    ) -> tuple[pl.control.Acting, list[dict[str, float]], Any]:
        """A policy that acts greedily, the loss of every step, and its network."""
        program, key = self.program, (*self.key, "learn")
        iterations, lines = program.cut(self.ctx), list[dict[str, float]]()
        if program.learner == "cql":
            settings = pl.control.DoubleQ(
                lr=program.lr,
                gamma=program.gamma,
                updates=program.updates,
                batch=program.batch,
                keep=int(paths["alive"].sum()),
                cql=program.alpha,
                width=program.width,
            )
            learner = settings.learner(self.spaces, key)
            learner.stored.add(paths, paths["reward"])
            nothing = {k: v[:0] for k, v in paths.items()}
            for i in range(iterations):
                loss = learner.update(nothing, nothing["reward"], (*key, i))
                lines.append({"step": i + 1, "loss": loss})
            return settings.acting(learner.values), lines, learner.values
        policy, lines = clone_behaviour(program, self.spaces, paths, iterations, key)
        return partial(policy.act, greedy=True), lines, policy

    def choices(self, act: pl.control.Acting) -> np.ndarray:
        """[X, ...] what a policy does at the start of test games of every new instruction."""
        out: list[np.ndarray] = []
        for text in self.tasks.unseen:
            sim = InstructedSimulator(self.sims[text], text, self.encoder)
            rng = pl.rng_of((*self.key, "choices", text))
            state = sim.reset(rng, self.program.games)
            out.append(np.asarray(act(sim.observe(state), sim.legal(state), rng)["act"])[:, 0])
        return np.concatenate(out)

    def distance(self, one: np.ndarray, other: np.ndarray) -> float:
        """How far two policies' actions are apart: the share that differs, or of continuous ones the mean
        difference over the width of the bounds.
        """
        box = self.spaces.actions
        if isinstance(box, pl.control.Box):
            wide = np.subtract(box.high, box.low)
            return float(np.abs((one - other) / np.where(np.isfinite(wide), wide, 1.0)).mean())
        return float((one != other).mean())

    def measure(self, act: pl.control.Acting) -> dict[str, float]:
        """What the simulator pays in test games of every instruction, and the share of successes of each
        level, games of an instruction weighing as much as those of another.
        """
        paid, won = list[np.ndarray](), dict[str, list[float]]()
        for text, level in self.tasks.levels.items():
            sim = InstructedSimulator(self.sims[text], text, self.encoder)
            paths = pl.control.play_games(sim, act, self.program.games, (*self.key, "test", text))
            paid.append(pl.control.returns_of(paths))
            good = successes(paths, self.program.threshold)
            won.setdefault(level, []).append(float(good.mean()))
        means = np.concatenate(paid)
        return {
            "return": float(means.mean()),
            "error": pl.stats.standard_error(means),
            **{f"success_{level}": float(np.mean(x)) for level, x in won.items()},
        }


def successes(paths: pl.control.Paths, threshold: float | None) -> np.ndarray:
    """[n] which games were a success, see `LearnFromImagination`."""
    if threshold is not None:
        return pl.control.returns_of(paths) >= threshold
    good = paths["over"][:, None] & (paths["reward"] > 0)
    if "success" in paths:
        good = (paths["success"] > 0) & paths["alive"][:, None]
    return np.asarray(good.any((1, 2)))


def why_no_success(
    real: Sequence[TaskRollout], sim: pl.control.Simulator, threshold: float | None
) -> str:
    """What to say where not one recorded rollout is a success by the rule of `successes`, so that the share
    of successes may be 0 whatever is learned; "" where one is, or the simulator has the fact "success".
    """
    if threshold is None:
        facts = pl.control.TellsFacts
        if isinstance(sim, facts) and "success" in sim.facts(sim.reset(pl.rng_of(("facts",)), 1)):
            return ""
        won, rule = [r.over and r.reward[-1] > 0 for r in real], 'is "over" and pays above 0 last'
    else:
        won, rule = [r.reward.sum() >= threshold for r in real], f"pays threshold={threshold:g}"
    if any(won):
        return ""
    paid = [float(r.reward.sum()) for r in real]
    return (
        f"no recorded rollout {rule}, so none counts as a success, and a policy that does as well has 0% in "
        f"every level; they pay {min(paid):.4g} to {max(paid):.4g}: say what a success pays, threshold=RETURN"
    )


def clone_behaviour(
    program: LearnFromImagination,
    spaces: OfflineSpaces,
    paths: pl.control.Paths,
    iterations: int,
    key: pl.Key,
) -> tuple[Any, list[dict[str, float]]]:
    """A policy that makes the recorded actions likely: the mean of -log pi(a | s, instruction)."""
    learner = pl.control.PPO(width=program.width, lr=program.lr)
    policy = learner.start(spaces, key)  # type: ignore[arg-type]
    optimiser = torch.optim.Adam(policy.parameters(), program.lr)
    alive = paths["alive"][:, None]
    obs, act = (torch.from_numpy(paths[k][alive]).float() for k in ("obs", "act"))
    lines: list[dict[str, float]] = []
    for i in range(iterations):
        rng, losses = pl.rng_of((*key, i)), list[float]()
        for _ in range(program.updates):
            rows = torch.from_numpy(rng.integers(len(obs), size=program.batch))
            loss = -policy({"obs": obs[rows], "act": act[rows]})["logp"].mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        lines.append({"step": i + 1, "loss": float(np.mean(losses))})
    return policy, lines


def save_encoder(encoder: InstructionEncoder, folder: Path) -> None:
    """Writes encoder.json beside a policy: how observations are scaled before it sees them."""
    record = {"mean": encoder.mean.tolist(), "deviation": encoder.deviation.tolist()}
    (folder / ENCODER).write_text(json.dumps(record) + "\n")


def load_encoder(
    folder: Path | str, embed: Callable[[str], Any] = embed_words
) -> InstructionEncoder:
    """The encoder of a saved policy. Raises UserError for a folder without one."""
    try:
        record = json.loads((Path(folder) / ENCODER).read_text())
        mean, deviation = (np.array(record[k], float) for k in ("mean", "deviation"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pl.UserError(f"{folder} holds no policy of imaginebench: {error}") from None
    one = TaskRollout(
        instruction="",
        obs=mean[None],
        act=np.zeros(1),
        next_obs=mean[None],
        reward=np.zeros(1),
        over=False,
    )
    encoder = InstructionEncoder([one], embed)
    encoder.deviation = deviation
    return encoder
