"""UFO: a wrong answer is followed by "try again" and nothing else, and training is on whole episodes.

    R = sum_t r_t - penalty (1 - E / T),    r_t = gamma^t if attempt t (from 0) is right, else 0

A right answer ends the episode. T counts the answers that were given and E the different ones among
them; gamma = 0.5, penalty = 0.5, at most 5 messages. A message without an answer (cut, or nothing behind its
thoughts) costs 0.1 and is no attempt: t and T do not count it (arXiv:2507.14295; released code
lichengliu03/unary-feedback: ragen/env/metamathqa/env.py, es_manager.py). Only the policy's tokens are
trained, R stands at the last one. What the user says is the same for every wrong answer, so nothing of the
right one leaks but that it is another.

    palaestra train ufo --data F.jsonl --model DIR [reward=FILE.py:NAME] [attempts=5] [algorithm=grpo]

PPO with gamma = lambda = 1, clip 0.2 / 0.28, KL 0.001 and entropy 0.001, on the quarter of the questions whose
returns vary most; `algorithm=grpo` compares within a question instead. Each attempt is judged by the
reward of the data: any verifier, function or judge. With --tools an attempt may call tools first.

Answers are equal as verifiers compare them (0.5 and 1/2; released: letter by letter, which the
penalty can be gamed by). A reply that states no answer in a known form is compared as a whole.

The evaluation `retries` has Succ@k, the share that is solved in k messages of one episode, beside Pass@k of as
many independent single answers: the gap is what feedback is worth.

Long because its episodes are a conversation that ends at a right answer: the recipe wraps any reward into such
a world, pays for speed and for different answers, and keeps the questions whose returns vary most.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import palaestra as pl

CARD = pl.Card(
    title='UFO: a simple "try again" (unary feedback)',
    paper="arXiv:2507.14295",
    claim="Training on episodes in which a wrong answer is followed by nothing but a request to try "
    "again keeps single-turn accuracy and raises the accuracy over several turns.",
    source="released code (lichengliu03/unary-feedback: ragen/env/metamathqa/env.py, es_manager.py, "
    "ctx_manager.py, config) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B-Instruct, the MATH part of MetaMathQA, PPO, 8 questions x 16 episodes of at most 5 "
        "messages of 400 tokens, the 25% of questions with the highest standard deviation",
        model="qwen2.5-3b",
        prompts=8,
        samples=16,
        tokens=2000,
        arguments={"collect.links.0.max_tokens": 400},
    ),
    task="count",
    needs=pl.needs.Requirements(
        shows="part/shaped",
        off={"attempts": 1, "invalid": 0.0},
        own={"attempts": 2, "samples": 4, "schedule.prompts": 4, "keep": 1.0, "exam": 0},
    ),
    use="It helps where a question has many wrong answers and the model repeats itself; with few options, "
    "such as A to D, trying again finds the answer by elimination.",
    lacks=(
        "MetaMathQA and the other sets of the paper are yours to bring with --data.",
        "The single-turn baseline is a run of its own: `palaestra train ppo`, whose answers `palaestra eval "
        "--k 5` measures.",
    ),
    grade="A",
)
PROSE = 15  # words: longer answers are replies that no form was found in
AGAIN = "Incorrect. Please think again."
LEFT = "You have {left} attempts left."
NO_ANSWER = "No answer was found."
FORM = "Reason in <think></think>, then write the answer alone in <answer></answer>."
Outcome = Literal["right", "wrong", "invalid"]


@pl.value_class
class Retry:
    """Where an episode is: the world's own state, and what became of each message so far."""

    task: pl.Task
    inner: Any
    outcomes: tuple[Outcome, ...] = ()
    answers: tuple[str, ...] = ()  # those that were given


@pl.declare(
    facts=(
        ("outcomes", tuple, "by turn, what became of it"),
        ("answers", tuple, "by attempt, the answer that was given"),
        "answered",
        "correct",
    )
)
@dataclass(frozen=True)
class UnaryFeedback:
    """A world: a question that is asked until the answer is right, in at most `attempts` messages.

    Args:
        ctx: of the step, whose world asks the question.
        judge: says whether an answer is right.
        attempts: messages that answer, or try to.
        again: is said of every wrong answer.
        left: is said before each attempt, with {left} for their number; "" = nothing.
    """

    ctx: pl.Context
    judge: pl.RewardFn
    attempts: int
    again: str
    left: str
    seats: ClassVar[tuple[str, ...]] = ("policy",)

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        frame = await settle(self.ctx.bench.world.reset(task, key))
        (ask,) = frame.asks
        if self.left and ask.say and ask.say[-1].role == "user":
            *before, last = ask.say
            content = f"{last.content}\n{self._left(self.attempts)}"
            ask = replace(ask, say=(*before, replace(last, content=content)))
        return self._frame(Retry(task=task, inner=frame.state), frame.facts, (ask,))

    async def step(self, state: Retry, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        frame = await settle(self.ctx.bench.world.step(state.inner, acts, key))
        if frame.asks:  # a call of a tool
            return self._frame(replace(state, inner=frame.state), frame.facts, frame.asks)
        answer = "" if acts[0].finish == "length" else given_answer(acts[0].text)
        if frame.facts.get("answered") is False:
            answer = ""
        if not answer:
            outcome: Outcome = "invalid"
        else:
            outcome = "right" if await self._is_right(state.task, acts[0]) else "wrong"
        now = replace(
            state,
            inner=frame.state,
            outcomes=(*state.outcomes, outcome),
            answers=(*state.answers, answer) if answer else state.answers,
        )
        cut = frame.status not in ("finished", "truncated:length")
        if outcome == "right" or cut or len(now.outcomes) >= self.attempts:
            return self._frame(now, frame.facts, (), frame.status if cut else "finished")
        feedback = self.again if outcome == "wrong" else f"{NO_ANSWER} {self.again}".strip()
        left = self._left(self.attempts - len(now.outcomes))
        say = pl.Message(role="user", content=f"{feedback} {left}".strip())
        return self._frame(
            now, frame.facts, (pl.Ask(seat="policy", say=(say,), tools=acts[0].ask.tools),)
        )

    def oracle(self, state: Retry) -> str:
        """The right answer."""
        return f"<answer>{state.task.answer}</answer>"

    def _left(self, attempts: int) -> str:
        return self.left.replace("{left}", str(attempts))

    async def _is_right(self, task: pl.Task, act: pl.Act) -> bool:
        """Whether the reward of the problem calls a message right. Raises Fault where it fails."""
        ids, logp = (act.sample.ids, act.sample.logp) if act.sample else ((), ())
        segment = pl.Segment(
            ids=ids, logp=logp, author="policy", trained=True, text=act.text, finish="eos"
        )
        alone = pl.Episode(rows=(pl.Row(segments=(segment,), seat="policy"),), status="finished")
        (reward,) = await pl.judge_group(
            self.ctx, self.judge, pl.Group(task=task, episodes=(alone,))
        )
        if isinstance(reward, pl.Fault):
            raise reward
        return replace(alone, reward=reward).is_right()

    def _frame(
        self,
        state: Retry,
        facts: Mapping[str, Any],
        asks: tuple[pl.Ask, ...],
        status: str = "finished",
    ) -> pl.Frame:
        counts = {
            "outcomes": state.outcomes,
            "answers": state.answers,
            "answered": bool(state.answers),
            "correct": "right" in state.outcomes,
        }
        return pl.Frame(state=state, asks=asks, facts={**facts, **counts}, status=status)


async def settle(frame: Any) -> pl.Frame:
    """What a world's method gives, which may be async."""
    return await frame if asyncio.iscoroutine(frame) else frame


def given_answer(text: str) -> str:
    """What a message gives as its answer: what it states, else all of it behind its thoughts; "" = it
    gives none.
    """
    reply = pl.verifiers.strip_thinking(text).strip()
    # what follows a tag that is not closed
    behind = reply.rpartition("<answer>")[2].removesuffix("</answer>")
    return (pl.rewards.read_answer(reply) or behind).strip()


def count_distinct(answers: Sequence[str]) -> int:
    """E: how many different answers there are. Two are the same where they differ by case and white
    space alone, or where verifiers call them equal.
    """
    kept = list[str]()
    for answer in answers:
        if not any(plain(answer) == plain(k) or pl.verifiers.same_answer(answer, k) for k in kept):
            kept.append(answer)
    return len(kept)


def plain(answer: str) -> str:
    return re.sub(r"\s", "", answer).lower()


@pl.stage
class SampleRetries(pl.Sample):
    """Plays `n` episodes of at most `attempts` messages, with `again` behind each wrong one.

    Raises UserError where the problem is no question that a reward judges.
    """

    attempts: int = 5
    again: str = AGAIN
    left: str = LEFT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attempts < 1:
            raise pl.UserError(f"ufo: attempts is 1 or more, not {self.attempts}")

    async def play(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, pl.Player],
    ) -> pl.Group:
        bench = ctx.bench
        asks_one = isinstance(bench.world, pl.worlds.Question | pl.worlds.WithTools)
        if bench.reward is None or not asks_one:
            raise pl.UserError(
                f"ufo asks a question again until a reward calls the answer right, and {bench.name} is a "
                "world of its own; give questions with --data F.jsonl, or a task such as count"
            )
        world = UnaryFeedback(ctx, bench.reward, self.attempts, self.again, self.left)
        there = replace(bench, world=world, max_turns=bench.max_turns + self.attempts)
        return await super().play(ctx.with_bench(there), key, group, players)


@pl.stage
class RetryReward:
    """A link after `SampleRetries`: R from the facts "outcomes" and "answers". Parts: "right"; "recovered",
    right after a wrong answer; "attempts"; "distinct", E / T; "shaped", what gamma, repetitions and messages without an
    answer took off 1 for a right answer and 0 for none.
    """

    gamma: float = 0.5
    penalty: float = 0.5
    invalid: float = 0.1

    def __post_init__(self) -> None:
        if not (0 <= self.gamma <= 1 and self.penalty >= 0 and self.invalid >= 0):
            raise pl.UserError(
                "ufo: gamma is 0 to 1, penalty and invalid are 0 or more, not "
                f"{self.gamma}, {self.penalty} and {self.invalid}"
            )

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where answers are whole replies, of which hardly two are the same."""
        given = [a for g in groups for e in g.valid for a in e.facts.get("answers", ())]
        whole = sum(len(a.split()) > PROSE for a in given)
        if not self.penalty or 2 * whole <= len(given):
            return ""
        return (
            f"{whole} of {len(given)} answers state nothing in a box, a tag or behind 'answer:', so whole replies were "
            "compared, and repetitions are hardly seen; say in the prompts how an answer is to be written"
        )

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not e.ok:
            return e
        outcomes, answers = e.facts["outcomes"], e.facts["answers"]
        right = "right" in outcomes
        distinct = count_distinct(answers) / len(answers) if answers else 1.0
        decayed = self.gamma ** (len(answers) - 1) if right else 0.0
        total = decayed - self.penalty * (1 - distinct) - self.invalid * outcomes.count("invalid")
        parts = {
            "right": float(right),
            "recovered": float(right and len(answers) > 1),
            "attempts": float(len(answers)),
            "distinct": distinct,
            "shaped": float(right) - total,
        }
        return replace(e, reward=pl.Reward(total=total, parts=parts, solved=right))


@pl.stage
class MostVaried:
    """A pool: the share `keep` of the questions whose returns have the highest standard deviation, one at
    least; of equal ones the first drawn.
    """

    keep: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise pl.UserError(f"ufo: keep is above 0 and at most 1, not {self.keep}")

    async def __call__(
        self, ctx: pl.Context | None, groups: list[pl.Group], state: pl.State
    ) -> tuple[list[pl.Group] | None, list[pl.Group], pl.State]:
        order = sorted(range(len(groups)), key=lambda i: -spread(groups[i]))
        kept = sorted(order[: max(1, round(self.keep * len(groups)))])
        return [groups[i] for i in kept], [], state


def spread(group: pl.Group) -> float:
    """The standard deviation of a question's returns; 0 where there is none."""
    totals = [e.total for e in group.valid if e.reward is not None]
    mean = sum(totals) / max(len(totals), 1)
    return (sum((x - mean) ** 2 for x in totals) / max(len(totals), 1)) ** 0.5


@pl.stage
class RetryExam:
    """An evaluator: on held-out problems, "succ@k", the share solved in k messages of one episode, and
    "pass@k", the share solved by one of k single answers, for each k; and of the episodes "turns", "distinct" and
    tokens an episode, beside those of as many single answers.
    """

    sample: SampleRetries
    tasks: int = 64

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        most = self.sample.attempts
        again = replace(self.sample, n=1)
        alone = replace(self.sample, n=most, attempts=1, left="")
        both = await asyncio.gather(self._attempt(ctx, again), self._attempt(ctx, alone))
        pairs = [(g, h) for g, h in zip(*both, strict=True) if g.valid and len(h.valid) == most]
        if not pairs:
            return {}
        answers = {str(g.task.answer) for g, _ in pairs}
        if len(answers) <= most < len(pairs):
            ctx.say(
                f"note: only {len(answers)} of the answers differ, which {most} attempts find by elimination; "
                "compare succ@k with pass@k"
            )
        episodes = [g.valid[0] for g, _ in pairs]
        return retry_numbers(episodes, [h.valid for _, h in pairs], most)

    async def _attempt(self, ctx: pl.Context, sample: SampleRetries) -> Sequence[pl.Group]:
        judge = pl.links(sample, RetryReward())
        tasks = [
            ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.tasks)
        ]
        keys = [(ctx.seed, "retries", sample.attempts, i) for i in range(len(tasks))]
        pairs = zip(keys, tasks, strict=True)
        return await asyncio.gather(*(judge(ctx, key, pl.Group(task=t)) for key, t in pairs))


def retry_numbers(
    episodes: Sequence[pl.Episode], singles: Sequence[Sequence[pl.Episode]], most: int
) -> dict[str, Any]:
    """Of problems that were each tried in one episode of at most `most` messages and in `most` single
    answers, what `RetryExam` says.
    """
    needed = [len(e.facts["outcomes"]) if e.solved else most + 1 for e in episodes]
    solved = [[e.solved for e in tries] for tries in singles]
    n = len(episodes)
    return {
        **{f"succ@{k}": accuracy([x <= k for x in needed]) for k in range(1, most + 1)},
        **{f"pass@{k}": accuracy([any(s[:k]) for s in solved]) for k in range(1, most + 1)},
        "turns": sum(len(e.facts["outcomes"]) for e in episodes) / n,
        "distinct": sum(e.reward.parts["distinct"] for e in episodes if e.reward) / n,
        "tokens": sum(e.n_sampled for e in episodes) / n,
        "single_tokens": sum(e.n_sampled for tries in singles for e in tries) / n,
    }


def accuracy(solved: Sequence[bool]) -> Mapping[str, Any]:
    """A share with its interval, as a run's evaluation has it."""
    return {"of": "accuracy"} | pl.stats.proportion(sum(solved), len(solved)).json()


def build(
    attempts: int = 5,
    gamma: float = 0.5,
    penalty: float = 0.5,
    invalid: float = 0.1,
    algorithm: Literal["ppo", "grpo"] = "ppo",
    samples: int = 16,
    keep: float = 0.25,
    kl: float = 0.001,
    entropy: float = 0.001,
    again: str = AGAIN,
    left: str = LEFT,
    exam: int = 64,
) -> pl.Recipe:
    """`exam` held-out problems are tried several times, before and after training; 0 = none. The run's
    own evaluation answers once.
    """
    sample = SampleRetries(n=samples, attempts=attempts, again=again, left=left)
    loss: Any = pl.Clipped(low=0.2, high=0.28, reduce="tokens")
    if algorithm == "ppo":
        loss = loss + 0.5 * pl.ValueLoss(clip=0.2)
        credit = pl.chain(pl.Gae(gamma=1.0, lam=1.0), pl.Center("batch"), pl.Scale("batch"))
    else:
        credit = pl.chain(pl.Center("group"), pl.Scale("group", ddof=1))
    loss = loss + kl * pl.KL("k3", reduce="tokens") if kl else loss
    parent = pl.recipe(algorithm)
    return pl.vary(
        parent,
        collect=pl.links(sample, RetryReward(gamma, penalty, invalid)),
        pool=MostVaried(keep),
        credit=credit,
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        needs=(*parent.learners["policy"].needs, *((("ref", "logp"),) if kl else ())),
        references={"ref": "policy"} if kl else {},
        schedule=replace(parent.schedule, prompts=8),
        evaluate={"retries": RetryExam(sample, exam)} if exam else {},
        instruction=FORM,
    )


def embedded(
    again: str = "wrong, try again",
    left: str = "",
    algorithm: Literal["ppo", "grpo"] = "grpo",
    samples: int = 8,
    keep: float = 1.0,
    **options: Any,
) -> pl.Recipe:
    """On targets to be made of three numbers, in the words that the small model knows."""
    made: pl.Recipe = build(
        again=again, left=left, algorithm=algorithm, samples=samples, keep=keep, **options
    )
    return pl.vary(made, schedule=pl.Schedule(prompts=8, steps=40))
