"""Two systems do errands: a fast policy where it remembers to be good at a goal, else a language model."""

import copy
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.dual import DualChooser
from palaestra.recipes.llm4rl.dsadf.errands import (
    PARTS,
    ErrandBook,
    done_errands,
    house_errands,
    house_goals,
    read_errands,
)
from palaestra.recipes.llm4rl.dsadf.familiar import SeenViews
from palaestra.recipes.llm4rl.dsadf.fast import FastSystem
from palaestra.recipes.llm4rl.dsadf.house import ErrandHouse
from palaestra.recipes.llm4rl.dsadf.memory import GateRule, SkillMemory, gate_of
from palaestra.recipes.llm4rl.dsadf.slow import (
    ModelSystem,
    OracleSystem,
    QuestionLimit,
    SlowSystem,
    TellsBestActions,
)

SAMPLE = 16  # games of the start, which bounds of quantities are taken from
ASKING = 6  # arms in which System 2 picks actions
LEAST = {
    "steps": 1,
    "timeout": 0,
    "replans": 0,
    "games": 2,
    "clone": 0,
    "questions": 0,
    "strange": 0,
}
PRACTICE = 0.4  # share of an arm's steps


@pl.stage
class TwoSystems:
    """A program: System 1 learns the goals of known errands; then errands are done in practice, which fills
    its memory and gives it System 2's ways as demonstrations; then all errands are done in a test.

    Args:
        asked: System 2; None = nobody, which is refused unless gate="fast".
        sim: of one agent with actions that can be counted.
        goals: FILE.jsonl, see `read_errands`; "" = those of the house.
        gate: which goals System 1 acts for in the arm "guide".
        tau: that the memory has to say at least.
        level: of the lower bound.
        clone: weight of System 2's demonstrations; 0 = nothing is distilled.
        steps: environment steps of an arm before its test; two fifths of them are practice.
        timeout: steps that each system has for a goal; 0 = those of a game over the goals of the longest errand.
        replans: of a game, after a goal that was not reached.
        trial: in practice, share of goals of System 2 that System 1 tries.
        games: of the test; errands take turns.
        questions: different ones that System 2 is asked at most, in all arms; a run that needs more ends. 0 = no
            limit.
        strange: an observation is unlike what System 1 was trained on where it is farther from all of it than so
            many times what training is from itself, see `SeenViews`; there System 2 takes over. 0 = nowhere.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = ErrandHouse()
    goals: str = ""
    about: str = ""
    gate: GateRule = "lcb"
    tau: float = 0.6
    level: float = 0.1
    clone: float = 1.0
    steps: int = 30_000
    timeout: int = 20
    replans: int = 2
    trial: float = 0.2
    games: int = 220
    questions: int = 0
    strange: float = 0.0
    learner: pl.control.DoubleQ = pl.control.DoubleQ(
        gamma=0.9,
        games=16,
        lr=2e-3,
        per_step=0.25,
        width=64,
        follow=0.05,
        explore_steps=0.7,
        keep=200_000,
    )

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise pl.UserError(f"dsadf: {name} is {least} or more")
        for name in ("tau", "level", "trial"):
            if not 0 <= getattr(self, name) <= 1 or (name == "level" and self.level in (0, 1)):
                raise pl.UserError(f"dsadf: {name} is a share, from 0 to 1")
        if self.gate == "random":
            raise pl.UserError(
                "dsadf: gate=random is an arm of every run; the gates are lcb, mean, fast, slow"
            )
        if self.sim.agents != 1:
            raise pl.UserError(f"dsadf: a simulator has one agent, not {self.sim.agents}")
        if isinstance(self.sim.actions, pl.control.Box):
            raise pl.UserError("dsadf: System 2 names actions, and the simulator's are continuous")
        if not self.goals and not isinstance(self.sim, ErrandHouse):
            raise pl.UserError(
                'dsadf needs goals=FILE.jsonl with lines {"goal": "...", "where": {QUANTITY: [LOW, HIGH]}} '
                "for a simulator of your own"
            )

    @property
    def source(self) -> pl.Source:
        """System 2, its replies kept. Raises UserError where nobody is asked."""
        if self.asked is None:
            raise pl.UserError(
                "dsadf needs a language model as System 2: --llm endpoint(url='...',model='...'), a folder, or "
                "transcript:FILE; or gate=fast"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("dsadf", ctx.seed)
        setting = DualLearning(self, ctx, self.book(key), key)
        folder = None if ctx.out is None else ctx.out / "policy"
        alone = self.gate == "fast"
        if not alone:
            ctx.say(self.spell_calls(setting.steps))
        guide = setting.arm(self.gate, clone=self.clone, folder=folder, planned=not alone)
        # by the name of its arm, so that a run that goes on knows what it gave to System 2
        own: Mapping[str, Any] = await ctx.once("arm-guide", guide)

        async def played() -> Mapping[str, Any]:
            return own

        arms: dict[str, pl.control.ArmRun] = {
            "none": setting.arm("fast", planned=False),
            "guide": played,
        }
        if not alone:
            arms |= {
                "without distilling": setting.arm(self.gate),
                "mean gate": setting.arm("mean", clone=self.clone),
                "random gate": setting.arm("random", clone=self.clone, share=own["slow_share"]),
                "fast alone": setting.arm("fast"),
                "slow alone": setting.arm("slow"),
                "shuffled": setting.arm(self.gate, clone=self.clone, slow="shuffled"),
            }
            if isinstance(self.sim, TellsBestActions):
                arms["oracle"] = setting.arm("slow", slow="oracle")
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        guide_numbers = results["guide"]
        slow_numbers = {k: guide_numbers[k] for k in ("slow_share", "slow_reached")}
        ctx.log({"arm": "guide", "return": guide_numbers["return"]} | slow_numbers)
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                **{k: guide_numbers[k] for k in guide_numbers if k.startswith("success_")},
                **slow_numbers,
                "calls_per_success": guide_numbers["calls_per_success"],
                "sampled_tokens": 0,
            },
            artifacts={} if folder is None else {"agent": str(folder)},
        )

    def book(self, key: pl.Key) -> ErrandBook:
        learner = self.learner.learner(self.sim, key)
        act = self.learner.acting(learner.values, 1.0)
        games = pl.control.play_games(self.sim, act, SAMPLE, (*key, "sample"))
        if self.goals:
            goals, errands = read_errands(self.goals)
        else:
            goals = house_goals()
            errands = house_errands(goals)
        if self.games < len(errands):
            raise pl.UserError(
                f"dsadf: games={self.games} is below the {len(errands)} errands, of which each is to be in the test"
            )
        return ErrandBook(
            goals=goals, errands=errands, view=pl.control.ViewWords.of(self.sim, games)
        )

    def spell_calls(self, steps: int) -> str:
        """How often System 2 may be asked, at most."""
        a_round = self.learner.games * self.sim.horizon
        most = int(PRACTICE * steps) + a_round + self.games * self.sim.horizon
        plans = 1 + self.replans
        return (
            f"System 2 picks up to {ASKING * most} actions, {most} in each of {ASKING} arms, and makes up to {plans} "
            "plans a game. What an arm asked before is not asked again, but where observations are continuous nearly "
            "every action is a new question. Fewer: steps, games, timeout; questions=N ends a run that asks more."
        )

    def cut(self, ctx: pl.Context) -> int:
        """Environment steps of an arm, by `--steps`."""
        if (most := ctx.budget.get("steps")) is None:
            return self.steps
        return min(self.steps, int(most) * self.learner.games * self.sim.horizon)


class DualLearning:
    """What the arms of a run share: the book, and System 1 as it is before practice."""

    def __init__(self, program: TwoSystems, ctx: pl.Context, book: ErrandBook, key: pl.Key):
        self.program, self.ctx, self.book, self.key = program, ctx, book, key
        self.steps = program.cut(ctx)
        self.limit = QuestionLimit(program.questions)
        longest = max(len(e.goals) for e in book.errands)
        self.timeout = program.timeout or max(1, program.sim.horizon // longest)
        self.trained: tuple[FastSystem, SkillMemory, int, list[dict[str, Any]]] | None = None

    async def start(self) -> tuple[FastSystem, SkillMemory, int, list[dict[str, Any]]]:
        """System 1 trained on the goals of known errands, its memory, the steps, and lines of training: the
        same for every arm, which gets a copy.
        """
        if self.trained is None:
            self.trained = await self._train()
        fast, memory, taken, lines = self.trained
        mine = copy.copy(fast)
        mine.learner, mine.demos = copy.deepcopy(fast.learner), {}
        mine.seen = copy.deepcopy(fast.seen)
        return mine, copy.deepcopy(memory), taken, copy.deepcopy(lines)

    async def _train(self) -> tuple[FastSystem, SkillMemory, int, list[dict[str, Any]]]:
        """Games in which trained goals are drawn one after another."""
        program, book = self.program, self.book
        key = (*self.key, "train")
        fast = FastSystem(program.sim, book, program.learner, self.timeout, key)
        memory, taken, lines = SkillMemory(), 0, list[dict[str, Any]]()
        most, tried, at = (1 - PRACTICE) * self.steps, Counter[int](), Counter[int]()
        views = list[np.ndarray]()
        while taken < most:
            epsilon = program.learner.epsilon(taken / most)
            options = fast.options(epsilon)
            games = await pl.control.play_options(
                program.sim, options, draw_goals(book), program.learner.games, (*key, len(lines))
            )
            need_steps(games)
            taken += games.env_steps
            tried.update(c.option for c in games.calls if c.steps)
            at.update(c.option for c in games.calls if c.end == pl.control.REACHED)
            if program.strange:
                paths = games.paths()
                views.append(paths["obs"][:, 0][paths["alive"]])
            ended = [c for c in games.calls if c.steps and c.end != pl.control.CUT]
            for call in ended:
                memory.note(book.code_KW[call.option], call.end == pl.control.REACHED)
            learned = fast.learn(games, 0.0, (*key, len(lines), "learn"))
            reached = sum(c.end == pl.control.REACHED for c in ended)
            lines.append(
                {
                    "phase": "training",
                    "reward": reached / max(1, len(ended)),
                    "env_steps": taken,
                    **learned,
                }
            )
        if program.strange:
            fast.seen = SeenViews(np.concatenate(views), program.strange, key)
        if never := [k for k in book.trained if tried[k] and not at[k]]:
            goals = ", ".join(f"{book.names[k]!r} (tried {tried[k]} times)" for k in never)
            self.ctx.say(
                f"dsadf: in training System 1 never reached {goals}, so it has learned nothing of that; goals on "
                f"the way to it, more steps, or a timeout above {self.timeout} may help"
            )
        return fast, memory, taken, lines

    def arm(
        self,
        rule: GateRule,
        clone: float = 0.0,
        share: float = 0.0,
        slow: str = "model",
        planned: bool = True,
        folder: Path | None = None,
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs.

        Args:
            planned: False = nobody plans: System 1 is told the errand's words as its goal.
            slow: who System 2 is: "model", "shuffled", "oracle".
        """

        async def run() -> Mapping[str, Any]:
            fast, memory, taken, lines = await self.start()
            system = self.system(slow) if planned else None
            doing = ErrandRounds(self, fast, memory, system, rule, share)
            lines += await doing.practise(taken, clone)
            result = await doing.measure()
            if folder is not None:
                save_fast(folder, fast, memory)
            last = lines[-1]["env_steps"] if lines else taken
            return {
                **result,
                "demos": len(fast.demos.get("act", ())),
                "env_steps": last,
                "curve": lines,
            }

        return run

    def system(self, which: str) -> SlowSystem:
        sim, book = self.program.sim, self.book
        if which == "oracle" and isinstance(sim, TellsBestActions):
            return OracleSystem(sim, book)
        about = self.program.about or str(
            getattr(sim, "about", "") or "An agent acts in a simulator."
        )
        shuffled = which == "shuffled"
        return ModelSystem(
            self.ctx,
            self.program.source,
            sim,
            book,
            about,
            (*self.key, which),
            shuffled=shuffled,
            limit=self.limit,
        )


class ErrandRounds:
    """Games of an arm in which errands are done: practice, and the test."""

    def __init__(
        self,
        setting: DualLearning,
        fast: FastSystem,
        memory: SkillMemory,
        slow: SlowSystem | None,
        rule: GateRule,
        share: float,
    ):
        self.setting, self.fast, self.memory, self.slow = setting, fast, memory, slow
        self.program, self.book, self.rule = setting.program, setting.book, rule
        # controls of the gate have no other reason to ask System 2
        self.strange = fast.seen if rule in ("lcb", "mean") else None
        self.gate = gate_of(rule, memory, self.program.tau, self.program.level, share)

    async def play(
        self, errands: np.ndarray, epsilon: float, key: pl.Key, trial: float = 0.0
    ) -> tuple[pl.control.OptionGames, DualChooser | None]:
        sim, n = self.program.sim, len(errands)
        if self.slow is None:
            options = [self.fast.whole(e.task) for e in self.book.errands]
            follower = pl.control.PlanFollower([[int(e)] for e in errands])
            games = await pl.control.play_options(sim, options, follower, n, key)
            need_steps(games)
            return games, None
        chooser = DualChooser(
            self.book, self.slow, self.gate, [int(e) for e in errands], self.setting.timeout,
            replans=self.program.replans, trial=trial if self.rule in ("lcb", "mean") else 0.0,
            alone=self.rule == "fast", strange=self.strange,
        )  # fmt: skip
        names = pl.control.action_words(sim)
        single = [pl.control.primitive_option(a, k) for k, a in enumerate(names)]
        options = [*self.fast.options(epsilon, self.strange), *single]
        games = await pl.control.play_options(sim, options, chooser, n, key)
        need_steps(games)
        chooser.finish(games)
        return games, chooser

    async def practise(self, taken: int, clone: float) -> list[dict[str, Any]]:
        """Rounds until the arm's steps are taken; errands of the part "unseen" are none of them."""
        program, lines = self.program, list[dict[str, Any]]()
        met = [i for i, e in enumerate(self.book.errands) if e.part != "unseen"]
        while taken < self.setting.steps:
            key = (*self.setting.key, "practice", len(lines))
            errands = pl.rng_of((*key, "errands")).choice(met, program.learner.games)
            games, chooser = await self.play(
                errands, program.learner.explore_end, key, program.trial
            )
            taken += games.env_steps
            paths = games.paths()
            demos = 0
            if chooser is not None:
                for goal, success in chooser.outcomes:
                    self.memory.note(self.book.code_KW[goal], success)
                demos = self.fast.keep(paths, chooser.ways) if clone else 0
            learned = self.fast.learn(games, clone, (*key, "learn"))
            done = done_errands(self.book, paths, errands)
            lines.append(
                {
                    "phase": "practice",
                    "reward": float(done.mean()),
                    "env_steps": taken,
                    "new_demos": demos,
                }
                | learned
            )
        return lines

    async def measure(self) -> dict[str, Any]:
        """The share of errands that were done, by part, and what they cost in calls of System 2."""
        numbers = {"calls": 0} if self.slow is None else self.slow.numbers
        before = numbers["calls"]
        each = np.arange(self.program.games) % len(self.book.errands)
        games, chooser = await self.play(each, 0.0, (*self.setting.key, "test"))
        done = done_errands(self.book, games.paths(), each)
        calls, routed = numbers["calls"] - before, {} if chooser is None else chooser.routed
        parts = {
            f"success_{part}": float(done[mine].mean())
            for part in PARTS
            if (mine := np.array([self.book.errands[e].part == part for e in each])).any()
        }
        return {
            "return": float(done.mean()),
            "error": pl.stats.standard_error(done.astype(float)),
            **parts,
            "calls": calls / len(each),
            "calls_per_success": calls / max(1, int(done.sum())),
            "slow_reached": (
                0.0 if chooser is None else len(chooser.ways) / max(1, sum(routed.values()))
            ),
            "slow_share": routed.get("slow", 0) / max(1, sum(routed.values())),
            "handed_over": 0.0
            if chooser is None
            else chooser.handed / max(1, sum(routed.values())),
            "length": games.env_steps / len(each),
            "asked": numbers.get("asked", 0),
            "fallbacks": numbers.get("fallbacks", 0),
        }


def need_steps(games: pl.control.OptionGames) -> None:
    """Raises UserError where every game was at an end before its first step."""
    if not games.steps:
        raise pl.UserError(
            "dsadf: in every game all goals that are wanted are reached at the start; name goals in which games "
            "do not begin"
        )


def draw_goals(book: ErrandBook) -> pl.control.Chooser:
    """A trained goal that is not reached yet, each as likely; STOP where all are."""

    async def choose(games: pl.control.OptionGames, rows: np.ndarray) -> np.ndarray:
        open_mK = ~book.holds(games.obs[rows][:, 0])[:, list(book.trained)]
        pick = np.where(open_mK, games.rng.random(open_mK.shape), -1.0).argmax(1)
        goal = np.array(book.trained)[pick]
        return np.where(open_mK.any(1), goal, pl.control.STOP)

    return choose


def save_fast(folder: Path, fast: FastSystem, memory: SkillMemory) -> None:
    """Writes System 1, and memory.json: goals, their words, and what is remembered."""
    pl.control.save_policy(fast.learner.values, folder)
    find: Callable[[str], Any] = lambda name: memory.record(fast.book.encode(name))
    record = {
        name: {"successes": r.successes, "failures": r.failures}
        for name in fast.book.names
        if (r := find(name)) is not None
    }
    (folder / "memory.json").write_text(json.dumps(record, indent=1) + "\n")
