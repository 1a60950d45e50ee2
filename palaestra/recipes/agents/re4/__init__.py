"""Re4: test scripts are written from the most similar case of a bank, retrieved by an encoder that learns
from the scripts themselves.

A case is a pair of a test intent and its script. The cycle is retrieve, reuse, revise, retain:

    retrieve  an encoder finds the case; it learned from pseudo-labels: of the intents whose words are alike
              those with like scripts are positives, the others hard negatives (InfoNCE, see retriever.py)
    reuse     imitated: SFT on (intent, case) -> script; then RL, 4 scripts an intent, with RLOO and a KL
              of 0.05 to the SFT model in the reward
    revise    an engineer edits the script
    retain    and saves it in the folder, where it is a case of the next run; deleting the file forgets it

    r = F1(calls(y), calls(y*)) - 0.5 repeated(y) - 0.1 min(5, invented(y)),    -0.5 where y cannot be read

calls is a multiset, repeated the share of lines that are there once too often, and invented the number of
calls that are neither in a case nor in the bank or `api` (scripts.py). The paper (arXiv:2503.20576) has SFT, then
RL, for faithful reuse and less repetition; its reward could not be read, so this one is ours.

    palaestra train re4 --data FILE.jsonl --model DIR [cases=FOLDER] [api=FILE] [match=whole]

A row is an intent and the script that is right. The bank is the training rows and the folder; an item never
sees a case with its own intent. Take the newest tests as --test-data: near copies on both sides of a random
split leak. The evaluation `reuse` measures held-out intents with their cases; a run's own `accuracy` shows
none, and is what the model knows by heart.

Long because the bank of cases serves all stages: it is indexed once for a run, knows which calls exist and
reports on its retriever; imitation and RL then show its cases, and RL scores scripts against them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import palaestra as pl
from palaestra.recipes.agents.re4.bank import ScriptCase, read_cases
from palaestra.recipes.agents.re4.retriever import CaseIndex, Kind
from palaestra.recipes.agents.re4.scripts import Language, calls_of, judge_script, language_of

CARD = pl.Card(
    title="Re4: case-based reasoning test-script generation",
    paper="arXiv:2503.20576",
    claim="A retriever tuned by the likeness of scripts, and supervised then reinforcement finetuning of reuse, "
    "make better test scripts from a case bank, with less repetition.",
    source="the abstract and public reviews for the cycle, the pseudo-labels, SFT and RL; thresholds and the "
    "reward could not be read and are ours",
    size=pl.Size(
        setting="scripts of two product units of Huawei Datacom; models and numbers not known to us"
    ),
    model="tiny-agent",
    task="devices",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "log in at the router",
                    "log out of the router",
                    "ping the router",
                    "log in at the hub",
                ),
                "a test intent, in words",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                ("open()\nlogin()", "login()\nlogout()", "open()\nping()", "open()\nlogin()"),
                "the right script: Python, or a command a line",
            ),
        ),
        shows="part/case",
        off={"retriever": "none"},
        own={
            "model": "tiny-agent",
            "exam": 0,
            "samples": 2,
            "tune_steps": 4,
            "steps": 4,
            "sft_steps": 2,
            "rl.schedule.prompts": 4,
            "sft.schedule.prompts": 4,
        },
    ),
    use="It helps where new tests resemble old ones and their calls cannot be guessed; without like cases in "
    "the bank it is SFT and RL on scripts.",
    lacks=(
        "The retriever is a small encoder of words that begins as a random projection, not a pretrained one.",
        "Revising and retaining are yours, by saving a file in the folder; a run retains nothing itself.",
        "The data of the paper are not public; API versions are told apart only by your `api` list and "
        "your split in time.",
        "Scripts are compared by their calls and are not run.",
    ),
    grade="B",
)
WRITE_SCRIPT = "Write the test script alone. Reuse what fits of the example, and change what has to be changed."


@pl.stage
class CaseBank:
    """The cases that are shown, and the calls that exist.

    Args:
        folder: cases beside the training rows; "" = none.
        api: a file with the names of calls that exist beside those of the bank; "" = none.
        retriever: "tuned", "words" (BM25), or "none", which shows no case.
        k: cases that are shown.
        most: training rows that are in the bank.
        steps: of the encoder.
    """

    folder: str = ""
    api: str = ""
    retriever: Kind = "tuned"
    k: int = 1
    most: int = 512
    language: Language = "auto"
    steps: int = 100
    smallest: ClassVar[Mapping[str, float]] = {"steps": 4}

    def __post_init__(self) -> None:
        if self.k < 1 or self.most < 1 or self.steps < 0:
            raise pl.UserError(
                f"re4: k and most are 1 or more and tune_steps 0 or more, not {self.k}, {self.most}, {self.steps}"
            )

    def index(self, ctx: pl.Context) -> CaseIndex:
        """The index of a run's bank, made once from the same rows with the same seed."""
        tasks, held = ctx.bench.tasks, self._made
        if id(tasks) not in held:
            held[id(tasks)] = (tasks, self._index(ctx))
        return held[id(tasks)][1]

    def _index(self, ctx: pl.Context) -> CaseIndex:
        tasks = ctx.bench.tasks
        n = self.most if tasks.size is None else min(self.most, tasks.size)
        rows = [tasks.task("train", i) for i in range(n)]
        cases = [
            ScriptCase(name=t.id, intent=pl.tasks.plain_question(t), script=right_script(t))
            for t in rows
        ]
        cases += read_cases(self.folder)[0] if self.folder else []
        return CaseIndex(cases, self.retriever, self.language, ctx.seed, self.steps)

    def known(self, ctx: pl.Context) -> frozenset[str]:
        """The names of calls that exist."""
        at = id(ctx.bench.tasks)
        if at not in self._known:
            of_cases = (self._names(c.script) for c in self.index(ctx).cases)
            self._known[at] = frozenset(api_names(self.api)).union(*of_cases)
        return self._known[at]

    def _names(self, script: str) -> list[str]:
        return calls_of(script, language_of(script, self.language)) or []

    def shown(self, ctx: pl.Context, task: pl.Task) -> list[ScriptCase]:
        """The cases of an intent; none without a retriever."""
        if self.retriever == "none":
            return []
        return self.index(ctx).find(pl.tasks.plain_question(task), self.k)

    def check(self, ctx: pl.Context) -> None:
        """Makes the index, and says what there is to find. Raises UserError for a row without a script."""
        index = self.index(ctx)
        self.known(ctx)
        skipped = read_cases(self.folder)[1] if self.folder else []
        if skipped:
            ctx.say(
                f"note: {len(skipped)} files of {self.folder} are no cases, as nothing in them says what they test: "
                f"{', '.join(skipped[:3])}"
            )
        numbers = index.numbers
        if numbers and not numbers["pairs"]:
            ctx.say(
                "note: no two intents of the bank have like words and like scripts, so the retriever has nothing to "
                "learn from and goes by words; add cases"
            )
        elif numbers:
            ctx.say(
                f"retriever: over {len(index.cases)} cases the first case's calls are like the right ones by "
                f"{numbers['tuned']:.2f} (F1), by {numbers['words']:.2f} as BM25 finds them; "
                f"{numbers['pairs']:.0f} pairs to learn from"
            )

    @cached_property
    def _made(self) -> dict[int, tuple[pl.Tasks, CaseIndex]]:
        return {}

    @cached_property
    def _known(self) -> dict[int, frozenset[str]]:
        return {}


def right_script(task: pl.Task) -> str:
    """The script of a task. Raises UserError where it has none."""
    if not isinstance(task.answer, str) or not task.answer.strip():
        raise pl.UserError(
            f"re4: task {task.id!r} has no script; write it as a text in the column 'answer'"
        )
    return task.answer.strip()


def api_names(file: str) -> list[str]:
    """The names in a file, a word each; of a file in Python those that it defines."""
    if not file:
        return []
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"api={file} cannot be read: {error}") from None
    if not file.endswith(".py"):
        return text.split()
    words = [line.split() for line in text.replace("(", " ").replace(":", " ").splitlines()]
    return [w[i + 1] for w in words for i in range(len(w) - 1) if w[i] in ("def", "class")]


def with_cases(task: pl.Task, cases: Sequence[ScriptCase]) -> pl.Task:
    """The intent behind its cases, the best one next to it."""
    examples = [
        (pl.Task(id=c.name, prompt=(pl.Message(role="user", content=c.intent),)), c.script)
        for c in reversed(cases)
    ]
    return pl.tasks.add_examples(task, examples)


@pl.declare(facts=(("cases", tuple, "names of the cases that were shown, the best first"),))
@pl.stage
class ReuseCases(pl.Sample):
    """Writes `n` scripts for an intent behind its cases, and rewards them. Parts of the reward: those of
    `scripts.judge_script`.

    Args:
        whole: calls are compared with their arguments.
        repeat: what a script of nothing but repeated lines costs.
    """

    bank: CaseBank = CaseBank()
    whole: bool = False
    repeat: float = 0.5
    brings_reward: ClassVar[bool] = True

    async def check_start(self, ctx: pl.Context) -> None:
        self.bank.check(ctx)

    async def play(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, pl.Player],
    ) -> pl.Group:
        task, cases = group.task, self.bank.shown(ctx, group.task)
        asked = replace(group, task=with_cases(task, cases))
        played = await super().play(ctx, key, asked, players)
        known = self.bank.known(ctx)
        episodes = (self._judged(e, right_script(task), cases, known) for e in played.episodes)
        return replace(played, task=task, episodes=tuple(episodes))

    def _judged(
        self, e: pl.Episode, right: str, cases: Sequence[ScriptCase], known: frozenset[str]
    ) -> pl.Episode:
        if not e.ok or e.reward is not None:
            return e
        parts = judge_script(
            pl.response_text(e),
            right,
            [c.script for c in cases],
            known,
            self.bank.language,
            self.whole,
            self.repeat,
        )
        total = parts.pop("total")
        reward = pl.Reward(total=total, parts=parts, solved=total >= pl.SOLVED_TOTAL)
        facts = {**e.facts, "cases": tuple(c.name for c in cases)}
        return replace(e, reward=reward, facts=facts)


@pl.stage
class ImitateCases:
    """Demonstrates the right script behind its cases; the column `demonstration` goes before `answer`."""

    bank: CaseBank = CaseBank()

    async def check_start(self, ctx: pl.Context) -> None:
        self.bank.check(ctx)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = group.task
        own = {"demonstration": right_script(task), **task.meta}
        with_examples = with_cases(replace(task, meta=own), self.bank.shown(ctx, task))
        made = await pl.Demonstrate()(ctx, key, replace(group, task=with_examples))
        return replace(made, task=task)


@pl.stage
class ReuseExam:
    """An evaluator: held-out intents with their cases, greedily. "reward", "calls" (F1), "repeated", and
    "invented" a script; "case", the F1 of the case alone.
    """

    sample: ReuseCases
    tasks: int = 32

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        sample = replace(self.sample, n=1, temperature=0.0)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        keys = [(ctx.seed, "reuse", i) for i in range(len(tasks))]
        pairs = zip(keys, tasks, strict=True)
        groups = await asyncio.gather(*(sample(ctx, key, pl.Group(task=t)) for key, t in pairs))
        return exam_numbers([e for g in groups for e in g.valid])


def exam_numbers(episodes: Sequence[pl.Episode]) -> dict[str, float]:
    """What `ReuseExam` says: means; nothing without an episode."""
    rewards = [e.reward for e in episodes if e.reward is not None]
    if not rewards:
        return {}
    names = ("calls", "repeated", "invented", "case", "reused")
    means = {name: sum(r.parts[name] for r in rewards) / len(rewards) for name in names}
    return {"reward": sum(r.total for r in rewards) / len(rewards), **means}


def build(
    cases: str = "",
    api: str = "",
    retriever: Kind = "tuned",
    k: int = 1,
    bank: int = 512,
    language: Language = "auto",
    match: Literal["names", "whole"] = "names",
    repeat: float = 0.5,
    kl: float = 0.05,
    samples: int = 4,
    temperature: float = 1.0,
    sft_steps: int = 100,
    tune_steps: int = 100,
    exam: int = 32,
) -> pl.Pipeline:
    """`cases` is a folder, `bank` how many training rows are cases as well. `match` says whether calls are
    compared with their arguments. `exam` held-out intents are measured before and after RL; 0 = none.
    """
    held = CaseBank(cases, api, retriever, k, bank, language, tune_steps)
    reuse = ReuseCases(
        n=samples, temperature=temperature, bank=held, whole=match == "whole", repeat=repeat
    )
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ImitateCases(held)),
        schedule=pl.Schedule(prompts=16, steps=sft_steps),
        instruction=WRITE_SCRIPT,
    )
    rl = pl.vary(
        pl.recipe("rloo", kl=kl),
        collect=pl.links(reuse),
        evaluate={"reuse": ReuseExam(reuse, exam)} if exam else {},
        instruction=WRITE_SCRIPT,
    )
    return pl.Pipeline(parts={"sft": pl.warm(sft), "rl": pl.Part(rl, model=pl.Output("sft"))})


def embedded(
    sft_steps: int = 22, match: Literal["names", "whole"] = "whole", **options: Any
) -> pl.Pipeline:
    """On made-up devices. The small model has never written a script, so it imitates at a high rate."""
    made = build(sft_steps=sft_steps, match=match, **options)
    made = pl.override(made, "sft.optimiser", pl.AdamW(lr=2e-3, warmup=10))
    return pl.override(made, "rl.schedule", pl.Schedule(prompts=16, steps=20))
