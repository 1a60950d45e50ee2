"""From f(x) and g(x) to f(g(x)): does RL teach a model to compose functions that it knows, and imitation not
(arXiv:2509.25123)? A study that trains, from one start:

    stage 1    the model imitates worked calls of single functions, under names without a meaning
    stage 2    from there each arm trains on compositions of one half of the functions, as long as the others:
        rl-1       reinforcement learning on single calls
        rl-2       on calls of depth 2, f(g(x))
        rl-1+2     on both
        rft-2      rejection fine-tuning on depth 2: in each round the model answers the same problems, and
                   imitates its right answers
    test       compositions of the other half of the functions, of depth 1 to 5, none of which is in the training data
    transfer   the same arms on a second set of functions, of which stage 1 taught single calls alone
    reach      pass@k of stage 1 at depth 2: where it is 0 there is nothing that a reward could single out
    written    the share of answers at depth 3 and more that contain the value of every inner call

    palaestra study compose-skills --model M functions=FILE.py
    palaestra study compose-skills --model M functions=FILE.py other=OTHER.py teach_steps=200 rl_steps=300

FILE.py defines four functions or more that take a text and return one, and may have a list INPUTS of texts to
begin with; else inputs are random letters. It runs with your rights. `teach_steps=0` leaves stage 1 out, for
a model that knows the functions: then give `named=true`, so that they have their own names. Depth is of
nesting: with a chance of `binary` two expressions are joined by + at a depth, which adds calls.

On the built-in model (no argument; 16 steps of stage 2, 32 problems of each depth) stage 1 solved 41% of held-out
compositions of two, rl-2 53%, rl-1+2 and rl-1 50%, rft-2 16%: RL on depth 2 gave more than imitation (+37.5
points, 8.2 to 62.3), and not more than RL on single calls (+3.1, -17.9 to 23.8). Deeper ones, whose length the
model never saw, stayed at 6%, and those of the other task at 2%: so small a run shows nothing of them.

Long because the study compares four ways to train from one taught start, each on problems composed of the same
functions; the class draws the disjoint training and test sets and holds the rounds of rejection fine-tuning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import palaestra as pl
from palaestra.recipes.analysis.compose_skills.functions import (
    NUMBERS,
    STRINGS,
    ComposedProblem,
    ProblemDraw,
    SkillSet,
    draw_number,
    imitation,
    inputs_of,
    skill_set,
)
from palaestra.recipes.analysis.compose_skills.results import ComposeArm, report

ARMS = ("rl-1", "rl-2", "rl-1+2", "rft-2")
CARD = pl.Card(
    title="From f(x) and g(x) to f(g(x))",
    paper="arXiv:2509.25123",
    claim="A model that knows f and g learns by RL on compositions of two to compose functions that it never saw "
    "composed, and more than two of them; this carries over to another task whose single skills it knows, and "
    "imitation of the same problems' right answers shows none of it.",
    source="abstract; functions, arms and test as the catalogue has them from the released code "
    "(PRIME-RL/RL-Compositionality)",
    size=pl.Size(
        setting="Llama-3.1-8B-Instruct; 25 string functions, GRPO with 16 prompts and 16 answers, depth 1 to 8 with 256 "
        "problems each; transfer to Countdown",
        model="llama-3.1-8b",
        prompts=16,
        samples=16,
        lr=1e-6,
    ),
    task="chain",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "four functions of a text or more, which are called in one another",
                flag="functions=FILE.py",
                otherwise="built-in functions of strings are called",
            ),
        ),
        shows="moved",
        off={"arms": ""},
        own={  # two steps teach too little for a reward to be above 0, so the arm is one that imitates
            "arms": "rl-2", "rl": "sft", "functions": "reverse,first,last,sort", "other": "none", "shown": 0.5,
            "letters": "[1,1]", "alphabet": "ab", "depths": "[2,3]", "problems": 4, "samples": 2, "taught": 8,
            "drawn": 4, "binary": 0.0, "prompt": "{expression}?", "teach.schedule.prompts": 8,
            "train.schedule.prompts": 4, "max_tokens": 40, "teach.learners.policy.optimiser.lr": 0.003,
            "train.learners.policy.optimiser.lr": 0.003,
        },
    ),
    use="It helps to decide whether single skills need composed training data, and whether imitation would do; where "
    "the model composes already, all arms are alike.",
    lacks=(
        "Stage 1 imitates worked calls; the paper filters the model's own answers to prompts that show the code.",
        "Functions have one argument; parameters that are written in the call are not here.",
        "Countdown is not the second task; numbers of two digits are, or a file of yours.",
        "How RL changes reasoning is told by one number, the share of answers that write every inner value.",
        "On the built-in model compositions deeper than two and those of the other task are not learned by any arm.",
    ),
    grade="B",
)  # fmt: skip

PROMPT = (
    "What is {expression}? Write the value of each call, the innermost first, a line each, and on the last line "
    "Answer: and the result."
)


@dataclass(frozen=True, slots=True)
class ComposedData:
    """Files of the study: what stage 1 imitates, training problems by arm, and held-out problems with the
    compositions behind them, in one order.
    """

    taught: str
    training: Mapping[str, str]
    test: str
    problems: Sequence[ComposedProblem]


@pl.stage
class ComposeSkills:
    """The study; see the module.

    Args:
        teach: stage 1, and a round of rejection fine-tuning; no steps = stage 1 is left out.
        train: the reinforcement learning.
        functions: a file, or built-in string functions by name; "" = all of those.
        other: of the second task, a file; "" = built-in functions of numbers; "none" = there is none.
        arms: with commas between them.
        depths: of held-out problems.
        tasks: held-out problems of each depth and set of functions.
        n: answers to each.
        temperature: of the answers.
        taught: rows of stage 1.
        shown: share of these that are of depth 2, so that their form is known; of functions composed in training.
        drawn: training problems of stage 2.
        rounds: of rejection fine-tuning, which shares the steps of the other arms.
        tries: answers to each problem in a round.
        binary: chance that two expressions are joined.
        letters: of a random input, at least and at most.
        alphabet: of random inputs.
        prompt: with {expression} in it.
        named: functions keep their own names.
    """

    teach: pl.Recipe
    train: pl.Recipe
    functions: str = ""
    other: str = ""
    arms: str = ",".join(ARMS)
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    tasks: int = 64
    n: int = 4
    temperature: float = 1.0
    taught: int = 4000
    shown: float = 0.0
    drawn: int = 512
    rounds: int = 2
    tries: int = 8
    binary: float = 0.2
    letters: tuple[int, int] = (3, 10)
    alphabet: str = "abcdefghijklmnopqrstuvwxyz"
    prompt: str = PROMPT
    named: bool = False
    question: ClassVar[str] = "Does RL teach the model to compose functions that it knows?"
    check_up: ClassVar[bool] = False
    trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=1)
        pl.check_bounds("taught", self.taught, least=1)
        pl.check_bounds("drawn", self.drawn, least=1)
        pl.check_bounds("rounds", self.rounds, least=1)
        if unknown := [a for a in pl.studies.listed(self.arms) if a not in ARMS]:
            raise pl.UserError(f"arms={unknown[0]}: the arms are {', '.join(ARMS)}")
        if not self.depths or min(self.depths) < 1 or "{expression}" not in self.prompt:
            raise pl.UserError("depths are 1 and more, and prompt has {expression} in it")

    async def run(self, ctx: pl.Context) -> pl.Result:
        if isinstance(ctx.bench.tasks, pl.tasks.FileTasks):
            ctx.say(
                "problems are made of functions (functions=FILE.py); the rows of --data are not used"
            )
        skills = self._skills()
        data = self._data(ctx, skills)
        start: str | None = None
        if self.teach.schedule.steps:
            done = await ctx.once("stage-1", self.teach, None, None, problem_of(data.taught))
            start = done.artifacts["policy"]
        arms = [ComposeArm("stage 1", await self._answers(ctx, data, "stage-1", start))]
        for name in pl.studies.listed(self.arms):
            model = await (self._rft if name == "rft-2" else self._rl)(ctx, data, name, start)
            arms.append(ComposeArm(name, await self._answers(ctx, data, name, model)))
        whole = report(arms, data.problems, skills[0].name, self.n)
        protocol = {
            "functions": f"{len(skills[0].functions)}, of which {len(skills[0].names(True))} are composed in training",
            "stage 1": f"{self.teach.schedule.steps} steps of {self.teach.schedule.prompts} worked calls"
            + (f", {100 * self.shown:.0f}% of them of depth 2" if self.shown else ""),
            "stage 2": f"{self.train.schedule.steps} steps of {self.train.schedule.prompts} of {self.drawn} problems; "
            f"rejection fine-tuning: {self.rounds} rounds of {self.tries} answers to each",
            "answers": f"{self.n} to each of {self.tasks} problems of a depth at temperature {self.temperature:g}",
        }
        return pl.studies.publish(
            ctx, replace(whole, question=self.question, protocol={**protocol, **whole.protocol})
        )

    # ---- problems

    def _skills(self) -> list[SkillSet]:
        draw = lambda file: inputs_of(file, self.letters, self.alphabet)
        sets = [skill_set("f", self.functions, STRINGS, draw(self.functions), self.named)]
        if self.other.endswith(".py"):
            sets.append(skill_set("g", self.other, {}, draw(self.other), self.named))
        elif self.other != "none":
            sets.append(skill_set("g", self.other, NUMBERS, draw_number, self.named))
        return sets

    def _data(self, ctx: pl.Context, skills: Sequence[SkillSet]) -> ComposedData:
        """Draws all problems, the held-out ones first, and writes them as files of the study."""
        rng, draw = pl.rng_of((ctx.seed, "compose")), ProblemDraw(self.binary)
        first, problems = skills[0], list[ComposedProblem]()
        for each in skills:
            every = range(len(each.functions))
            for depth in self.depths:
                some = list(every) if depth == 1 else each.names(False)
                problems += draw.take(each, depth, some, self.tasks, rng)
        few = round(self.taught * self.shown)
        single = [
            p
            for each in skills
            for p in draw.take(
                each,
                1,
                range(len(each.functions)),
                max(1, (self.taught - few) // len(skills)),
                rng,
            )
        ]
        pairs = draw.take(first, 2, first.names(True), few, rng)
        deep = draw.take(first, 2, first.names(True), self.drawn, rng)
        training = {
            "rl-1": single[: self.drawn],
            "rl-2": deep,
            "rl-1+2": [*single[: self.drawn // 2], *deep[: self.drawn // 2]],
            "rft-2": deep,
        }
        if not deep or not single:
            raise pl.UserError(
                "there are no expressions left to train on: give the file more INPUTS, or functions"
            )
        conversations = [p.conversation(i, self.prompt) for i, p in enumerate([*single, *pairs])]
        order = rng.permutation(len(conversations)).tolist()
        rows = lambda some: [p.row(i, self.prompt) for i, p in enumerate(some)]
        return ComposedData(
            keep(ctx, "taught", [conversations[i] for i in order]),
            {n: keep(ctx, f"train-{n}", rows(some)) for n, some in training.items()},
            keep(ctx, "test", rows(problems)),
            problems,
        )

    # ---- arms

    async def _rl(self, ctx: pl.Context, data: ComposedData, name: str, start: str | None) -> Any:
        done = await ctx.once(name, self.train, start, None, problem_of(data.training[name]))
        return done.artifacts["policy"]

    async def _rft(self, ctx: pl.Context, data: ComposedData, name: str, start: str | None) -> Any:
        """Rounds of answers to the training problems and of imitation of the right ones. The start, where
        there is none.
        """
        model, file = start, data.training[name]
        asked = pl.studies.AnswerProblems(self.drawn, self.tries)
        steps = max(1, self.train.schedule.steps // self.rounds)
        teach = pl.vary(self.teach, schedule=replace(self.teach.schedule, steps=steps))
        for k in range(self.rounds):
            part = f"{name}-{k + 1}"
            items = await pl.studies.answers_of(
                ctx, f"{part}-tries", model, asked, problem_of(file, measured=True)
            )
            right = [
                {"messages": [{"role": "user", "content": x["prompt"]}, {"role": "assistant", "content": text}]}
                for x in items
                for text, good in zip(x["texts"], x["right"], strict=True)
                if good
            ]  # fmt: skip
            if len(right) < 2:
                ctx.say(f"{part}: {len(right)} right answers, so nothing is imitated")
                break
            kept = keep(ctx, part, right)
            done = await ctx.once(f"{part}-sft", teach, model, None, problem_of(kept))
            model = done.artifacts["policy"]
        return model

    async def _answers(
        self, ctx: pl.Context, data: ComposedData, name: str, model: str | None
    ) -> list[pl.studies.Item]:
        asked = pl.studies.AnswerProblems(len(data.problems), self.n, self.temperature)
        return await pl.studies.answers_of(
            ctx, f"{name}-answers", model, asked, problem_of(data.test, measured=True)
        )


def problem_of(file: str, *, measured: bool = False) -> dict[str, str]:
    """The settings of a part on a file of the study: all of its rows are measured, or trained on."""
    return {"data": file, "test_data": file if measured else "", "columns": "", "reward": ""}


def keep(ctx: pl.Context, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    return pl.tasks.write_records(ctx.folder / f"{name}.jsonl", rows)


def build(
    functions: str = "",
    other: str = "",
    arms: str = ",".join(ARMS),
    depths: tuple[int, ...] = (1, 2, 3, 4, 5),
    problems: int = 64,
    samples: int = 4,
    temperature: float = 1.0,
    taught: int = 4000,
    shown: float = 0.0,
    drawn: int = 512,
    rounds: int = 2,
    binary: float = 0.2,
    prompt: str = PROMPT,
    named: bool = False,
    teach_steps: int = 100,
    rl_steps: int = 50,
    rl: str = "grpo",
) -> ComposeSkills:
    """`functions` is FILE.py, of which all public functions of one text are taken, or built-in ones by name;
    `other` likewise for the task to transfer to ("none" = there is none); `named` = they keep their names.
    `taught` worked calls are imitated for `teach_steps` steps (0 = the model knows the functions), of which a share
    `shown` is of depth 2. `arms` then train for `rl_steps` on `drawn` problems; `samples` answers to each of
    `problems` problems of each of the `depths`."""
    return ComposeSkills(
        teach=imitation(teach_steps),
        train=pl.vary(pl.recipe(rl), schedule=pl.Schedule(prompts=16, steps=rl_steps)),
        functions=functions,
        other=other,
        arms=arms,
        depths=depths,
        tasks=problems,
        n=samples,
        temperature=temperature,
        taught=taught,
        shown=shown,
        drawn=drawn,
        rounds=rounds,
        binary=binary,
        prompt=prompt,
        named=named,
    )


def embedded(teach_steps: int = 220, rl_steps: int = 16, problems: int = 32) -> ComposeSkills:
    """The built-in model, eight functions of three letters that keep their number, and short prompts. A few
    worked compositions show it the form."""
    short = build(
        "reverse,first,rotate,last,back,sort,swap,permute",
        depths=(1, 2, 3, 4),
        problems=problems,
        samples=1,
        shown=0.05,
        taught=1200,
        drawn=96,
        binary=0.0,
        prompt="{expression}?",
        teach_steps=teach_steps,
    )
    return replace(
        short,
        teach=pl.vary(short.teach, optimiser=pl.AdamW(lr=2e-3, warmup=5)),
        train=pl.vary(short.train, schedule=pl.Schedule(prompts=12, steps=rl_steps)),
        tries=4,
        letters=(3, 3),
        alphabet="abcd",
    )
