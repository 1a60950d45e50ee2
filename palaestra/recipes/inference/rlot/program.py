"""The navigator as a program: it is trained on hard questions, kept, and compared with other ways to
choose blocks.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

import palaestra as pl

FOLDER = "navigator"  # in the run's folder
Choose: TypeAlias = Callable[[pl.worlds.PartialSolution, np.ndarray], int]
Pay: TypeAlias = Callable[[pl.worlds.PartialSolution, pl.Episode | None], Awaitable[float]]
TERMINATE = pl.worlds.BLOCKS.index("terminate")
REASON = pl.worlds.BLOCKS.index("reason")


@dataclass(frozen=True)
class Transition:
    """One block: the state before and after it, and what it paid."""

    before: pl.worlds.PartialSolution
    legal_K: np.ndarray
    block: int
    reward: float
    after: pl.worlds.PartialSolution
    next_legal_K: np.ndarray
    over: bool


@pl.stage
class TrainNavigator:
    """A program: which of the training questions are hard, a navigator that learns on these, and its
    accuracy on held-out problems beside three other ways to choose blocks.

    Args:
        learner: how the navigator learns; its `games` are solutions an iteration.
        iterations: of games and updates; 0 = the navigator stays as it is drawn.
        prm: scores each intermediate result, in [0, 1]; where it may be negative, by its sigmoid.
            None = the problem's checker pays the final answer, and no block before it.
        cost: taken from the reward of each block.
        questions: that the model answers directly, to see which are hard.
        tries: of these; a question is hard where none is right.
        limit: blocks of a solution, `terminate` included.
        plans: of a debate.
        streams: random streams of a question; what was said in one is not asked for again.
        temperature: of what the model says; grades are greedy.
        tasks: held-out problems.
    """

    learner: pl.control.DoubleQ
    iterations: int = 16
    prm: pl.RewardFn | None = None
    cost: float = 0.0
    questions: int = 64
    tries: int = 1
    limit: int = 6
    plans: int = 2
    streams: int = 4
    temperature: float = 1.0
    tasks: int = 32
    prompts: pl.worlds.BlockPrompts = pl.worlds.BlockPrompts()
    smallest: ClassVar[Mapping[str, float]] = {"iterations": 2, "questions": 4}

    async def run(self, ctx: pl.Context) -> pl.Result:
        hard = await ctx.once("hard questions", lambda: self._hard(ctx))
        ctx.say(f"{len(hard)} of {self.questions} questions are hard: answered directly, all wrong")
        folder = ctx.folder / FOLDER
        trained = await ctx.once("navigator", lambda: self._train(ctx, hard))
        arms = await ctx.once("arms", lambda: self._measure(ctx))
        direct, own = arms["direct"]["accuracy"], arms["navigator"]["accuracy"]
        return pl.Result(
            metrics={
                **pl.ends.at_ends(direct, own),
                "hard": len(hard),
                **trained,
                "arms": arms,
                "sampled_tokens": ctx.sampled_tokens,
            },
            artifacts={"navigator": str(folder)},
        )

    # ---- hard questions

    async def _hard(self, ctx: pl.Context) -> list[int]:
        """Training questions of which no direct answer is right.

        Raises:
            UserError: there is none.
        """
        size = ctx.bench.tasks.size
        rng = pl.rng_of(ctx.key("questions"))
        numbers = range(self.questions)
        if size is not None:
            numbers = [int(i) for i in rng.permutation(size)[: self.questions]]

        async def right(i: int) -> int | None:
            """Right direct answers; None where the model could not be asked."""
            task, key = self._task(ctx, "train", i), ctx.key("direct", i)
            scored = await self._answers(ctx, key, task, self.tries)
            return sum(e.solved for e in scored) if scored else None

        solved = await asyncio.gather(*map(right, numbers))
        hard = [i for i, n in zip(numbers, solved, strict=True) if n == 0]
        if all(n is None for n in solved):
            raise pl.Fault("rlot", "no question could be answered directly")
        if not hard:
            raise pl.UserError(
                f"the model answers all {len(solved)} questions directly, and a navigator learns on "
                "those that it fails; give harder ones, or more of them with --set questions=N"
            )
        return hard

    async def _answers(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, n: int
    ) -> tuple[pl.Episode, ...]:
        """Scored direct answers; those that infrastructure failed for are left out."""
        group = await pl.Sample(n=n, temperature=self.temperature)(ctx, key, pl.Group(task=task))
        return (await pl.Score()(ctx, key, group)).valid

    def _task(self, ctx: pl.Context, split: str, i: int) -> pl.Task:
        task = ctx.bench.tasks.task(split, i)
        if not task.prompt:
            raise pl.UserError(
                f"{ctx.bench.name} asks no question that a solution could be written behind; use a task "
                "of questions, or --data"
            )
        return task

    # ---- learning

    async def _train(self, ctx: pl.Context, hard: Sequence[int]) -> dict[str, Any]:
        """Trains the navigator and keeps it in the run's folder."""
        learner = self.learner.learner(pl.worlds.BlockSpaces(), ctx.key("navigator"))
        replies: dict[tuple[int, int], dict[Any, Any]] = {}
        states, updates, graded, unread = Counter[tuple[int, ...]](), 0, 0, 0
        for n in range(self.iterations):
            epsilon = self.learner.epsilon(n / self.iterations)
            act = self.learner.acting(learner.values, epsilon)
            rng = pl.rng_of(ctx.key("draw", n))
            picks = [
                (hard[int(rng.integers(len(hard)))], int(rng.integers(self.streams)))
                for _ in range(self.learner.games)
            ]
            games = [
                self._game(ctx, n, g, pick, act, replies.setdefault(pick, {}))
                for g, pick in enumerate(picks)
            ]
            played = [x for x in await asyncio.gather(*games) if not isinstance(x, pl.Fault)]
            if not played:
                raise pl.Fault("rlot", "no solution of an iteration could be judged")
            transitions = [t for game, _ in played for t in game]
            paths = paths_of(transitions)
            loss = learner.update(paths, paths["reward"], ctx.key("replay", n))
            updates += self.learner.updates
            states.update(t.before.grades for t in transitions)
            graded += sum(r.graded for _, r in played)
            unread += sum(r.unread for _, r in played)
            ctx.log(
                {
                    "reward": float(np.mean([sum(t.reward for t in g) for g, _ in played])),
                    "blocks": len(transitions) / len(played),
                    "dropped": len(games) - len(played),
                    "loss": loss,
                    "epsilon": epsilon,
                    "navigator_updates": updates,
                    "unread": unread / max(1, graded),
                }
            )
        if graded and unread:
            ctx.say(f"{unread} of {graded} grades could not be read and count as 2")
        pl.control.save_policy(learner.values, ctx.folder / FOLDER)
        return {
            "parameters": sum(p.numel() for p in learner.values.parameters()),
            "navigator_updates": updates,
            "unread_grades": unread / max(1, graded),
            "state_entropy": entropy(list(states.values())),
        }

    async def _game(
        self,
        ctx: pl.Context,
        n: int,
        game: int,
        pick: tuple[int, int],
        act: Callable[..., Any],
        replies: dict[Any, Any],
    ) -> tuple[list[Transition], pl.worlds.BlockRunner] | pl.Fault:
        """One solution of a hard question, explored; a fault of whoever judges it."""
        question, stream = pick
        task = self._task(ctx, "train", question)
        runner = self.runner(ctx, task, ("train", question), stream)
        runner.replies = replies
        rng = pl.rng_of(ctx.key("explore", n, game))

        def choose(state: pl.worlds.PartialSolution, legal_K: np.ndarray) -> int:
            obs = pl.worlds.state_of_grades(state.grades)[None, None]
            return int(act(obs, legal_K[None, None], rng)["act"][0, 0])

        async def pay(state: pl.worlds.PartialSolution, end: pl.Episode | None) -> float:
            return await self.reward(ctx, task, state, end)

        try:
            return (await solve(runner, choose, pay, self.cost))[0], runner
        except pl.Fatal:
            raise
        except pl.Fault as fault:
            return fault

    async def reward(
        self,
        ctx: pl.Context,
        task: pl.Task,
        state: pl.worlds.PartialSolution,
        end: pl.Episode | None,
    ) -> float:
        """What a block pays: the process reward model's score of the text so far, or 0 before the
        final answer and the checker's score of that. Raises the Fault of whoever judges.

        Args:
            end: the final answer; None = the block is not the last one.
        """
        if self.prm is None:
            if end is None:
                return 0.0
            scored = await pl.Score()(ctx, (), pl.Group(task=task, episodes=(end,)))
            (e,) = scored.episodes
            if e.reward is None:
                raise pl.Fault("rlot", f"the final answer was not judged: {e.status}")
            return e.total
        text = "\n".join((*state.steps, *((pl.response_text(end),) if end else ())))
        episode = pl.Demonstrate().episode(ctx, task, text, ())
        bare = replace(task, answer=None, meta={})
        group = pl.Group(task=bare, episodes=(replace(episode, reward=None),))
        (score,) = await pl.judge_group(ctx, self.prm, group)
        if isinstance(score, pl.Fault):
            raise score
        prm = self.prm
        positive = isinstance(prm, pl.abilities.KnowsBounds) and (prm.bounds or (-1,))[0] >= 0
        return score.total if positive else 1 / (1 + math.exp(-max(score.total, -700.0)))

    def runner(
        self,
        ctx: pl.Context,
        task: pl.Task,
        name: tuple[int | str, ...],
        stream: int = 0,
        *,
        grades: bool = True,
    ) -> pl.worlds.BlockRunner:
        """Solves a task in blocks by the run's own model."""

        async def ask(
            prompt: tuple[pl.Message, ...], at: str, temperature: float
        ) -> pl.Episode | None:
            asked = pl.Group(task=replace(task, prompt=prompt))
            sample = pl.Sample(n=1, temperature=temperature)
            (e,) = (await sample(ctx, ctx.key("blocks", *name, at), asked)).episodes
            if e.status == "error:context":
                return None
            if not e.ok:
                raise pl.Fault("rlot", f"a block could not be asked for: {e.status}")
            return e

        return pl.worlds.BlockRunner(
            task.prompt,
            ask,
            self.prompts,
            self.limit,
            self.plans,
            self.temperature,
            grades=grades,
            stream=stream,
        )

    # ---- held-out problems

    async def _measure(self, ctx: pl.Context) -> dict[str, Any]:
        """Accuracy, requests and blocks of each way to choose, on the same held-out problems."""
        values = pl.worlds.load_navigator(ctx.folder / FOLDER)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        rng = pl.rng_of(ctx.key("other ways"))
        grades = lambda: tuple(int(x) for x in rng.integers(1, 4, len(pl.worlds.GRADED)))
        navigate: Choose = lambda s, legal_K: pl.worlds.choose_block(values, s.grades, legal_K)
        ways: dict[str, tuple[Choose, bool]] = {
            "reason": (lambda s, legal_K: REASON if legal_K[REASON] else TERMINATE, False),
            "random": (lambda s, legal_K: int(rng.choice(np.flatnonzero(legal_K))), False),
            "shuffled grades": (
                lambda s, legal_K: pl.worlds.choose_block(values, grades(), legal_K),
                False,
            ),
            "navigator": (navigate, True),
        }
        arms: dict[str, Any] = {"direct": await self._direct(ctx, numbers)}
        for name, (choose, graded) in ways.items():
            arms[name] = await self._arm(ctx, numbers, name, choose, graded)
        ctx.log({f"accuracy/{name}": arm["accuracy"]["mean"] for name, arm in arms.items()})
        return arms

    async def _direct(self, ctx: pl.Context, numbers: Sequence[int]) -> dict[str, Any]:
        """One answer to each problem, without blocks."""
        answers = await asyncio.gather(
            *(
                self._answers(ctx, ctx.key("direct test", i), self._task(ctx, "test", i), 1)
                for i in numbers
            )
        )
        right = sum(any(e.solved for e in each) for each in answers)
        interval = pl.stats.proportion(right, len(numbers))
        return {"accuracy": {"of": "accuracy", **interval.json()}, "calls": 1.0}

    async def _arm(
        self, ctx: pl.Context, numbers: Sequence[int], name: str, choose: Choose, graded: bool
    ) -> dict[str, Any]:
        right, calls, blocks = list[bool](), list[int](), Counter[str]()
        for i in numbers:  # in order: what is drawn for a choice depends on nothing else
            task = self._task(ctx, "test", i)
            runner = self.runner(ctx, task, ("test", i), grades=graded)
            _, state, end = await solve(runner, choose)
            scored = await pl.Score()(
                ctx, (), pl.Group(task=task, episodes=() if end is None else (end,))
            )
            right.append(any(e.solved for e in scored.valid))
            calls.append(runner.calls)
            blocks.update(pl.worlds.BLOCKS[b] for b in state.blocks)
        interval = pl.stats.proportion(sum(right), len(right))
        return {
            "accuracy": {"of": "accuracy", **interval.json()},
            "calls": float(np.mean(calls)),
            "blocks": {name: blocks[name] / len(right) for name in pl.worlds.BLOCKS},
        }


async def free(state: pl.worlds.PartialSolution, end: pl.Episode | None) -> float:
    """No reward."""
    return 0.0


async def solve(
    runner: pl.worlds.BlockRunner, choose: Choose, pay: Pay = free, cost: float = 0.0
) -> tuple[list[Transition], pl.worlds.PartialSolution, pl.Episode | None]:
    """Blocks until `terminate`: the transitions, the solution and the final answer.

    Args:
        pay: the reward of the block that led to a state; the final answer stands beside it.
        cost: taken from each reward.
    """
    state, game = await runner.start(), list[Transition]()
    while True:
        legal_K = runner.legal(state)
        block = choose(state, legal_K)
        if block == TERMINATE:
            end = await runner.finish(state)
            done = replace(state, blocks=(*state.blocks, block))
            reward = (await pay(done, end) if end else 0.0) - cost
            game.append(Transition(state, legal_K, block, reward, done, legal_K, over=True))
            return game, done, end
        after = await runner.run(state, block)
        reward = (0.0 if after.stuck else await pay(after, None)) - cost
        next_K = runner.legal(after)
        game.append(Transition(state, legal_K, block, reward, after, next_K, over=False))
        state = after


def paths_of(transitions: Sequence[Transition]) -> dict[str, np.ndarray]:
    """Transitions as games of one agent and one step each: the columns that a learner stores."""
    column = lambda values: np.array(values)[:, None, None]
    state = lambda s: pl.worlds.state_of_grades(s.grades)
    return {
        "obs": column([state(t.before) for t in transitions]),
        "next_obs": column([state(t.after) for t in transitions]),
        "act": column([t.block for t in transitions]),
        "legal": column([t.legal_K for t in transitions]),
        "next_legal": column([t.next_legal_K for t in transitions]),
        "reward": column([t.reward for t in transitions]),
        "alive": np.ones((len(transitions), 1), bool),
        "over": np.array([[t.over] for t in transitions]),
    }


def entropy(counts: Sequence[int]) -> float:
    """-sum p log p of the shares of some counts, in nats; 0 where there are none."""
    shares = np.array(counts, float) / max(1, sum(counts))
    return float(-(shares * np.log(shares)).sum()) + 0.0
