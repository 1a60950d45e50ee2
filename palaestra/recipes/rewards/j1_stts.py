"""J1-7B: a judge is trained by reinforcement on verdicts, after which it judges better when it is made
to think longer.

1. Supervised fine-tuning on judgements that reflect: think, doubt, think again, and end with the
   right verdict, whether the first thought was right or not (traces whose last verdict is wrong are
   rejected).
2. Reinforcement learning on verdicts: 1 right, 0 wrong, -1 unreadable; GRPO with 0.001 of the KL to
   the start.
3. Simple test-time scaling: a judge that wants to end its thinking is told to go on, n = 0, 1, 2,
   ... times (`Forced`), then to give its verdict. The slope of accuracy over n, by least squares,
   is what is compared.

arXiv:2505.11875 (abstract; rewards and rounds are inferred). Data are pairs, a file with prompt, chosen
and rejected, each shown in an order that a coin decides; a record that is no pair is a question with its
answer. Step 1 needs a `writer`, a model that judges the pairs and doubts its first verdict; of its traces
those with a doubt and the right last verdict are imitated. They lie in
RUN/sft/written/demonstration.jsonl. Without a writer the run is step 2 alone. Step 3 is the evaluation
`scaling` on held-out pairs, before and after training:

    palaestra train j1-stts --data PAIRS writer="endpoint(url='http://HOST:PORT/v1',model='NAME')"

Only a verdict on the last line counts, behind any thinking. Longer thinking may merely flip verdicts:
`corrected` and `spoilt` are the shares that change from wrong to right and back between the fewest and
the most rounds, `kept` that of verdicts that stay the same, `undecided` that of answers which are none,
or still a doubt, after the most. The cue is text of the environment, so it carries no gradient.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="J1-7B: simple test-time scaling for judges",
    paper="arXiv:2505.11875",
    claim="Judges scale with forced thinking at test time after reinforcement learning, and hardly "
    "after fine-tuning alone.",
    source="abstract; reward values, cue and rounds are inferred",
    size=pl.Size(
        setting="a 7B judge: reflection-enhanced fine-tuning, then RL; 4.8% over the best open "
        "judge, 5.1% steeper scaling",
        model="qwen2.5-7b",
    ),
    task="compare",
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.CHOSEN, pl.needs.REJECTED),
        models=(
            pl.needs.chat_model(
                "writer",
                "writer",
                "writes judgements that doubt their first verdict, of which the right ones are imitated",
                otherwise="the run is reinforcement learning alone",
            ),
        ),
        shows="groups_mixed",
        off={"collect.links.1.n": 1},
        own={"collect.links.1.n": 4, "schedule.prompts": 4},
    ),
    use="It helps where pairs with a known better response are there and a judge may think long at test "
    "time.",
    lacks=(
        "Reflections are asked of the writer in one reply; it is not made to go on after a "
        "verdict.",
        "Without `writer` fine-tuning on reflections, the first stage of the paper, is left out.",
        "Forced rounds are measured before and after the reinforcement; the model before "
        "fine-tuning is not measured.",
    ),
    grade="A",
)
INSTRUCTION = "Think first. End with a line `= A` or `= B`, the better one."


def ask_which(task: pl.Task, key: pl.Key) -> pl.Task:
    """The question which response of a pair is better, in the order that a coin decides."""
    good, bad = str(task.meta["chosen"]), str(task.meta["rejected"])
    first = pl.rng_of((*key, "order")).random() < 0.5
    a, b = (good, bad) if first else (bad, good)
    judge = pl.Pairwise()
    question = judge.template.format(
        question=pl.judges.defuse(pl.tasks.question_text(task)),
        a=pl.judges.defuse(a),
        b=pl.judges.defuse(b),
        rubric=judge.rubric,
        instruction=INSTRUCTION,
    )
    prompt = (pl.Message(role="user", content=question),)
    return replace(task, prompt=prompt, answer="A" if first else "B")


@pl.stage
class AskWhich:
    """Puts the question which response is better in the place of a pair."""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if "chosen" not in group.task.meta or "rejected" not in group.task.meta:
            return group
        return replace(group, task=ask_which(group.task, key))


def pair_verdict(text: str, task: pl.Task) -> float:
    """1 for the right verdict, 0 for another one, -1 for none on the last line behind
    the thinking.
    """
    reply = pl.judges.reply_after_thinking(text)
    return pl.tasks.exact_match(reply, task) if pl.tasks.final_answer(reply) else -1.0


def slope(accuracy: Sequence[float], rounds: Sequence[int]) -> float:
    """Least squares of accuracy over rounds."""
    return float(np.polyfit(rounds, accuracy, 1)[0]) if len(rounds) > 1 else 0.0


def scaling_numbers(
    attempts: Mapping[int, Sequence[pl.Group]],
) -> dict[str, float]:
    """What forced rounds change: accuracy by the number of rounds, its slope and gain, and what became
    of single verdicts. `attempts` are the same tasks in the same order for each number of rounds.
    """
    rounds = list(attempts)
    right = [[float(np.mean([e.total for e in g.valid])) for g in x] for x in attempts.values()]
    answers = [[e.facts.get("answer") for g in x for e in g.episodes] for x in attempts.values()]
    accuracy = [float(np.mean(x)) for x in right]
    first, last = np.array(right[0]), np.array(right[-1])
    numbers = {f"accuracy@{n}": x for n, x in zip(rounds, accuracy, strict=True)}
    numbers |= {"slope": slope(accuracy, rounds), "gain": accuracy[-1] - accuracy[0]}
    numbers |= {
        "corrected": float(np.mean(last > first)),
        "spoilt": float(np.mean(last < first)),
    }
    numbers["kept"] = float(np.mean([a == b for a, b in zip(answers[0], answers[-1], strict=True)]))
    numbers["undecided"] = float(np.mean([a in (None, "?") for a in answers[-1]]))
    return numbers


@pl.stage
class ScalingExam:
    """An evaluator: `scaling_numbers` of greedy verdicts on held-out pairs, with each number of forced
    rounds of thinking. The model goes on behind `cue` where it would have given its verdict.
    """

    forced: tuple[int, ...] = (0, 1, 2, 3)
    tasks: int = 64
    cue: str = "? Wait, let me check that again.\n"

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [pair_question(ctx.bench.tasks.task("test", i), ("exam",)) for i in numbers]
        attempts = {n: await self._attempt(ctx, n, tasks) for n in self.forced}
        return scaling_numbers(attempts) if tasks else {}

    async def _attempt(
        self, ctx: pl.Context, n: int, tasks: Sequence[pl.Task]
    ) -> Sequence[pl.Group]:
        world = pl.worlds.Forced(n, cue=self.cue)
        there = ctx.with_bench(replace(ctx.bench, world=world, reward=None))
        judge = pl.links(pl.Sample(n=1, temperature=0.0), pl.Score())
        keys = [(ctx.seed, "forced", i) for i in range(len(tasks))]
        pairs = zip(keys, tasks, strict=True)
        return await asyncio.gather(*(judge(there, key, pl.Group(task=t)) for key, t in pairs))


def pair_question(task: pl.Task, key: pl.Key) -> pl.Task:
    """The question which response is better, in an order that belongs to the pair; a task that is no
    pair stays as it is.
    """
    is_pair = "chosen" in task.meta and "rejected" in task.meta
    return ask_which(task, (*key, task.id)) if is_pair else task


@pl.stage
class PairQuestions:
    """Draws as `source` does, each pair as the question which response is better."""

    source: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, state = self.source(ctx, key, n, state)
        return [pair_question(t, (ctx.seed,)) for t in tasks], state


REFLECT = (
    "{prompt}\n\nWhen you have come to a verdict, do not give it yet: write a line that begins with "
    '"Wait", doubt your verdict and check it anew, at least once. A first verdict may be wrong.'
)


def right_reflection(reply: str, task: pl.Task) -> str | None:
    """A judgement that doubts and ends with the right verdict, however it began; else None."""
    doubts = any(line.strip().casefold().startswith("wait") for line in reply.splitlines())
    return reply.strip() if doubts and pair_verdict(reply, task) == 1 else None


def reflections(writer: pl.Source, tries: int, steps: int, lr: float) -> pl.Recipe:
    """Step 1: imitates the writer's reflections that end rightly."""
    draw = pl.curriculum.WrittenColumn(
        "demonstration",
        REFLECT,
        (writer,),
        read=right_reflection,
        tries=tries,
        source=PairQuestions(),
    )
    return pl.vary(
        pl.recipe("sft"),
        draw=draw,
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=16, steps=steps),
        references=pl.curriculum.frozen_starts(writer),
    )


def build(
    kl: float = 0.001,
    writer: pl.Source | None = None,
    tries: int = 4,
    steps: int = 40,
    lr: float = 1e-5,
    rounds: tuple[int, ...] = (0, 1, 2, 3),
) -> pl.Recipe | pl.Pipeline:
    """Args:
    writer: who reflects for step 1, `tries` times a pair at most; None = there is no such step.
    steps, lr: of step 1.
    rounds: forced ones of step 3; () = it is not measured.
    """
    learned = reinforce(kl, rounds)
    if writer is None:
        return learned
    first = reflections(writer, tries, steps, lr)
    return pl.Pipeline(
        parts={"sft": pl.Part(first), "rl": pl.Part(learned, model=pl.Output("sft"))}
    )


def reinforce(kl: float = 0.001, rounds: tuple[int, ...] = ()) -> pl.Recipe:
    """Step 2, with step 3 as its evaluation."""
    reward = pl.Verify(pair_verdict)
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(AskWhich(), pl.Sample(n=8), pl.Score(reward=reward)),
        evaluate={"scaling": ScalingExam(rounds)} if rounds else {},
    )
