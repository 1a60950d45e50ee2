"""How much backtracking is enough? How many back-steps should worked solutions have that a model imitates
before reinforcement learning (arXiv:2505.24273)? A study that trains: from one start, for each arm,

    traces of b back-steps  ->  supervised fine-tuning  ->  reinforcement learning  ->  held-out problems

    trace       right steps up to step j, wrong steps from there, "back to step j", and so on b times, then
                the other right steps and the answer; without any where a problem has fewer branches
    equal       all arms imitate as many tokens: an arm with shorter traces has more steps
    shuffled    traces whose wrong steps are those of other problems: as many and as long, and senseless
    cold        reinforcement learning of the start
    drawdown    the worst fall of the running mean of the reward, over 5 steps
    difficulty  problems that the start solves always, at times or never

The arms have the same problems, steps and random numbers, and are compared with b = 0 on the same held-out
problems; the level of the intervals is that of all comparisons together.

    palaestra study backtracking --model M --data problems.jsonl
    palaestra study backtracking --model M --data F backs=[0,1,5] sft_steps=200 rl_steps=300

Where solutions come from: `steps` of a row (texts) and `wrong`, a list of {"back": 1, "steps": [...]};
or `numbers` that make the `answer`, as in Countdown; or neither: then the start answers each training problem
`tries` times, and its right and wrong answers serve, the wrong ones from the beginning.

Few steps show what costs, not what pays: on the built-in sums to reach, after 30 steps of imitation and 20 of
reinforcement learning, back-steps were worse than none (33% right with 0, 22% with 1, 16% with 2, of 128
problems with two answers each), and senseless ones as good as others. The paper trains far longer.

Long because the study makes its own training data: it finds or samples solutions, tests which last line the
reward accepts, and writes traces for each arm before it trains all arms on as many tokens.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.backtracking.results import Arm, Traces, report
from palaestra.recipes.analysis.backtracking.traces import (
    SolutionSearch,
    TraceForm,
    WrongBranch,
    imitation,
    search_from,
    search_of,
    swap_content,
)

CARD = pl.Card(
    title="How much backtracking is enough?",
    paper="arXiv:2505.24273",
    claim="Supervised fine-tuning on long traces with back-steps makes reinforcement learning better and more "
    "stable; harder problems need more back-steps; whether the content of the traces is right matters little.",
    source="abstract; traces, arms and reward as the catalogue has them from the released code; the "
    "name of the model from memory",
    size=pl.Size(
        setting="models of 3B parameters on eight reasoning tasks; 0, 1, 5 and more back-steps; GRPO with 8 "
        "answers and 256 problems a step",
        model="qwen2.5-3b",
        prompts=256,
        samples=8,
        lr=1e-6,
        arguments={"backs": (0, 1, 5)},
    ),
    task="count",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "steps",
                "texts",
                (["17 + 25 = 30 + 12", "30 + 12 = 42"], ["8 + 31 = 39"], ["40 + 9 = 49"]),
                "the right steps",
                otherwise="right answers of the start serve, or `numbers` to be combined",
            ),
            pl.needs.NeededColumn(
                "wrong",
                "any",
                (
                    [{"back": 0, "steps": ["17 + 25 = 32"]}],
                    [{"back": 0, "steps": ["8 + 31 = 38"]}],
                    [{"back": 0, "steps": ["40 + 9 = 94"]}],
                ),
                "wrong branches, each with its steps and the number of right ones before it",
                otherwise="wrong answers of the start serve",
            ),
        ),
        shows="moved",
        off={"backs": "[0]"},
        own={
            "backs": "[0,1]", "cold": False, "shuffled": 0, "problems": 4, "samples": 2, "traces": 8,
            "teach.schedule.prompts": 4, "train.schedule.prompts": 2, "train.collect.links.0.n": 2,
            "max_tokens": 96, "teach.learners.policy.optimiser.lr": 0.003,
        },
    ),
    use="It helps to choose the data of a warm start where solving is searching; where a problem is solved "
    "without search, back-steps only make answers longer.",
    lacks=(
        "Six of the paper's eight tasks are not built in: bring your rows, with steps and wrong branches.",
        "Its reward pays .1 for a wrong answer in the right form: that is a --reward of yours.",
        "Distilled traces with wrong final answers are not an arm; shuffled ones are.",
        "Problems of different size are one problem here: the table by difficulty splits it by how often the "
        "start is right, and two runs compare two problems.",
    ),
    grade="B",
)  # fmt: skip

FORMS = ("Answer: {answer}", "= {answer}", "<answer>{answer}</answer>", "\\boxed{{{answer}}}")
ASKED = 8  # traces that the reward is asked about


@pl.stage
class Backtracking:
    """The study; see the module.

    Args:
        teach: what imitates the traces; of its steps the arm with the longest traces has so many.
        train: the reinforcement learning.
        backs: numbers of back-steps, an arm each.
        cold: whether there is an arm without traces.
        shuffled: back-steps of the arm with senseless content; 0 = there is none.
        tasks: held-out problems.
        n: answers to each.
        temperature: of the answers.
        traces: training problems that traces are made of.
        tries: answers of the start to each of them, where its answers serve.
        back: what is said where a branch is left for a step.
        restart: what is said where it is left for the beginning.
        ends: the last line, around {answer}; "" = the first usual form that the reward takes.
        length: tokens of an answer; 0 = as the problem says.
    """

    teach: pl.Recipe
    train: pl.Recipe
    backs: tuple[int, ...] = (0, 1, 3)
    cold: bool = True
    shuffled: int = 1
    tasks: int = 128
    n: int = 4
    temperature: float = 1.0
    traces: int = 512
    tries: int = 8
    back: str = "That is wrong; back to step {step}."
    restart: str = "That is wrong; start again."
    ends: str = ""
    length: int = 0
    question: ClassVar[str] = "How many back-steps before RL are best for this model and problem?"
    check_up: ClassVar[bool] = False
    trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=1)
        pl.check_bounds("traces", self.traces, least=2)
        if 0 not in self.backs or min(self.backs) < 0 or len({*self.backs}) < len(self.backs):
            raise pl.UserError(
                f"backs={list(self.backs)}: different numbers of back-steps, 0 among them: all are "
                "compared with that"
            )
        if "{step}" not in self.back or (self.ends and "{answer}" not in self.ends):
            raise pl.UserError("back needs {step} in it, and ends {answer}")

    async def run(self, ctx: pl.Context) -> pl.Result:
        power = pl.studies.tell_power(ctx, self.tasks)
        if self.length:
            ctx = ctx.with_bench(replace(ctx.bench, max_tokens=self.length))
        asked = pl.studies.AnswerProblems(self.tasks, self.n, self.temperature)
        start = await pl.studies.answers_of(ctx, "start-answers", None, asked)
        pl.studies.right_shares(start)
        kept = await ctx.once("searches", lambda: self._searches(ctx))
        form = TraceForm(self.back, self.restart, kept["ends"])
        made = self._traces(ctx, kept, form)
        longest = max((t.tokens for t in made.values()), default=1)
        arms = list[Arm]()
        for name, trace in made.items():
            steps = max(1, round(self.teach.schedule.steps * longest / trace.tokens))
            teach = pl.vary(self.teach, schedule=replace(self.teach.schedule, steps=steps))
            # the run's reward judges answers, which imitated traces are not
            problem = {"data": trace.file, "test_data": "", "columns": "", "reward": ""}
            taught = await ctx.once(f"{name}-sft", teach, None, None, problem)
            model = taught.artifacts["policy"]
            before = await pl.studies.answers_of(ctx, f"{name}-sft-answers", model, asked)
            arms.append(await self._train(ctx, asked, trace, steps, before, model))
        if self.cold:
            arms.append(await self._train(ctx, asked, Traces("cold"), 0, start, None))
        teach, train = self.teach.schedule, self.train.schedule
        protocol = {
            "training": f"traces are imitated for {teach.steps} steps of {teach.prompts}, or longer where they "
            f"are shorter; then {train.steps} steps of RL on {train.prompts} problems",
            "answers": f"{self.n} to each of {len(start)} held-out problems at temperature {self.temperature:g}",
            "last line of a trace": form.ends,
            "power": power,
        }
        whole = report(start, arms, form)
        return pl.studies.publish(
            ctx, replace(whole, question=self.question, protocol={**protocol, **whole.protocol})
        )

    async def _train(
        self,
        ctx: pl.Context,
        asked: pl.studies.AnswerProblems,
        trace: Traces,
        steps: int,
        before: Sequence[pl.studies.Item],
        model: str | None,
    ) -> Arm:
        part = f"{trace.name}-rl"
        trained = await ctx.once(part, self.train, model)
        after = await pl.studies.answers_of(
            ctx, f"{part}-answers", trained.artifacts["policy"], asked
        )
        return Arm(trace, steps, before, after, pl.studies.curve_of(ctx, part))

    # ---- traces

    async def _searches(self, ctx: pl.Context) -> dict[str, Any]:
        """The solutions of training problems as plain data, by their numbers, and the form of last lines
        that the reward takes.
        """
        tasks, size = ctx.bench.tasks, ctx.bench.tasks.size
        numbers = range(min(self.traces, size) if size is not None else self.traces)
        most = max(*self.backs, self.shuffled)
        searches = {
            i: search_of(task, most, pl.rng_of(ctx.key("search", i)))
            for i in numbers
            for task in [tasks.task("train", i)]
        }
        if any(not s.steps or (most and not s.branches) for s in searches.values()):
            answered = await pl.studies.answers(
                ctx, "policy", len(numbers), self.tries, temperature=1.0, split="train"
            )
            searches = {
                i: with_answers(searches[i], x) for i, x in zip(numbers, answered, strict=True)
            }
        whole = {i: s for i, s in searches.items() if s.steps or s.end}
        if lost := len(searches) - len(whole):
            ctx.say(
                f"{lost} of {len(searches)} training problems have no solution to make a trace of, and are left out"
            )
        if len(whole) < 2:
            raise pl.UserError(
                "there are no two training problems with a solution: give rows `steps`, or `numbers` to "
                "be combined, or a model that solves some of them (tries=N answers are tried)"
            )
        ends = self.ends or await self._form(ctx, whole)
        return {"ends": ends, "searches": {str(i): s.json() for i, s in whole.items()}}

    async def _form(self, ctx: pl.Context, searches: Mapping[int, SolutionSearch]) -> str:
        """The first usual form of a last line in which the reward takes most of some traces as right."""
        some = [(i, s) for i, s in searches.items() if not s.end][:ASKED]
        rng = pl.rng_of(ctx.key("form"))

        async def right(form: str) -> int:
            write = TraceForm(self.back, self.restart, form)
            solved = await asyncio.gather(
                *(solves(ctx, i, write.trace(s, 0, rng)) for i, s in some)
            )
            return sum(solved)

        scores = [await right(form) for form in FORMS if some]
        if some and not max(scores):
            raise pl.UserError(
                "the reward takes no trace as right, however its answer is written; say how with "
                "ends='... {answer}', or look at the `steps` of your rows"
            )
        return FORMS[int(np.argmax(scores))] if some else FORMS[0]

    def _traces(
        self, ctx: pl.Context, kept: Mapping[str, Any], form: TraceForm
    ) -> dict[str, Traces]:
        """A file of conversations for each arm. Problems whose longest trace does not fit are left out of
        all of them.
        """
        numbers = [int(i) for i in kept["searches"]]
        searches = [search_from(x) for x in kept["searches"].values()]
        swapped = swap_content(searches, pl.rng_of(ctx.key("swap")))
        arms = {f"back-{b}": (b, searches) for b in self.backs}
        if self.shuffled and sum(bool(s.branches) for s in searches) < 2:
            ctx.say("no two problems have wrong branches: there is no arm of senseless ones")
        elif self.shuffled:
            arms[f"shuffled-{self.shuffled}"] = (self.shuffled, swapped)
        texts = {
            name: [
                form.trace(s, b, pl.rng_of(ctx.key("trace", i)))
                for i, s in zip(numbers, some, strict=True)
            ]
            for name, (b, some) in arms.items()
        }
        encode = ctx.model("policy").tokenizer.encode
        size = {
            n: [len(encode(t, add_special_tokens=False)) for t in each] for n, each in texts.items()
        }
        room = self.length or ctx.bench.max_tokens
        longest = [max(each) for each in zip(*size.values(), strict=True)]
        fit = [k for k, n in enumerate(longest) if n < room]
        if len(fit) < len(longest):
            ctx.say(
                f"{len(longest) - len(fit)} of {len(longest)} traces are longer than the {room} tokens of an "
                "answer, and are left out of all arms; --max-tokens makes room"
            )
        if len(fit) < 2:
            raise pl.UserError(
                f"traces have up to {max(longest)} tokens, and an answer {room}: give --max-tokens {max(longest) + 1}"
            )
        made = dict[str, Traces]()
        for name, each in texts.items():
            file = ctx.folder / f"traces-{name}.jsonl"
            rows = [conversation(ctx.bench.tasks.task("train", numbers[k]), each[k]) for k in fit]
            pl.tasks.write_records(file, rows)
            with_backs = [form.count(each[k]) for k in fit]
            mean = float(np.mean([size[name][k] for k in fit]))
            made[name] = Traces(name, arms[name][0], str(file), mean, float(np.mean(with_backs)))
        if short := [t for t in made.values() if t.written < t.back_steps]:
            ctx.say(
                "; ".join(f"{t.name}: {t.written:.1f} back-steps a trace" for t in short)
                + ": problems with fewer wrong branches have none"
            )
        return made


def with_answers(search: SolutionSearch, item: pl.studies.Item) -> SolutionSearch:
    """A search with the start's own answers in the place of what is missing: a right one, and wrong ones
    from the beginning.
    """
    lines = [[y for y in t.splitlines() if y.strip()] for t in item["texts"]]
    right = [x for x, good in zip(lines, item["right"], strict=True) if good and x]
    wrong = [x for x, good in zip(lines, item["right"], strict=True) if not good and x]
    steps, end = search.steps, search.end
    if not steps and right:
        steps, end = right[0][:-1], right[0][-1]
    branches = search.branches or [WrongBranch(0, x) for x in dict.fromkeys(map(tuple, wrong))]
    return replace(search, steps=steps, branches=branches, end=end)


async def solves(ctx: pl.Context, number: int, text: str) -> bool:
    """Whether a text is a right answer to a training problem."""
    task = ctx.bench.tasks.task("train", number)
    episode = replace(pl.Demonstrate().episode(ctx, task, text, ()), reward=None)
    group = await pl.Score()(ctx, ctx.key("form", number), pl.Group(task=task, episodes=(episode,)))
    return any(e.solved for e in group.valid)


def conversation(task: pl.Task, text: str) -> dict[str, Any]:
    """A row of data in which a text is imitated as the reply to a task. Raises UserError for pictures."""
    if any(m.pictures for m in task.prompt):
        raise pl.UserError(
            f"row {task.id!r} shows a picture, and traces are conversations of text; leave it out"
        )
    prompt = [{"role": m.role, "content": m.content} for m in task.prompt]
    return {"messages": [*prompt, {"role": "assistant", "content": text}]}


def build(
    backs: tuple[int, ...] = (0, 1, 3),
    cold: bool = True,
    shuffled: int = 1,
    problems: int = 128,
    samples: int = 4,
    temperature: float = 1.0,
    traces: int = 512,
    tries: int = 8,
    sft_steps: int = 50,
    rl_steps: int = 50,
    rl: str = "grpo",
    back: str = "That is wrong; back to step {step}.",
    restart: str = "That is wrong; start again.",
    ends: str = "",
) -> Backtracking:
    """Arms with `backs` back-steps, one without traces (`cold`), and one with `shuffled` senseless ones; of
    `traces` training problems, `sft_steps` of imitation and `rl_steps` of the method `rl`. `samples` answers
    to each of `problems` held-out problems."""
    return Backtracking(
        teach=imitation(sft_steps),
        train=pl.vary(pl.recipe(rl), schedule=pl.Schedule(prompts=16, steps=rl_steps)),
        backs=backs,
        cold=cold,
        shuffled=shuffled,
        tasks=problems,
        n=samples,
        temperature=temperature,
        traces=traces,
        tries=tries,
        back=back,
        restart=restart,
        ends=ends,
    )


def embedded(sft_steps: int = 20, rl_steps: int = 12, problems: int = 96) -> Backtracking:
    """The built-in model and sums to reach; back-steps in few letters."""
    short = build((0, 1, 2), problems=problems, samples=2, sft_steps=sft_steps, rl_steps=rl_steps)
    return replace(
        short,
        teach=pl.vary(short.teach, optimiser=pl.AdamW(lr=1e-3, warmup=5)),
        back="no, back to {step}",
        restart="no, again",
        length=128,
    )
