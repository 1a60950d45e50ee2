"""InternBootcamp: many families of puzzles, each with a generator and a verifier, as one training
set.

The score of a reply (arXiv:2508.08636; InternLM/InternBootcamp, bootcamp/base.py), j what the
family's verifier says of the last answer in it:

    0                        where the thinking is not once in <think></think> at its start (`thinking`)
    0                        where no answer is found
    1                        j is the full score
    j                        j lies between
    form                     the answer is wrong
    min(s c / 256, s a / 128)     of a score s where the reply has c < 256 characters, or a < 128 behind
                             </think>   (`short`)

Training is GRPO on a mixture of families. With the defaults of the released code (`form` 0, no price of
brevity, no tags) the score is the verifier's own, and nothing else differs from GRPO: what is new is the
number of families, and what is measured of them. A family is a value of the column `domain` of a user's
file, or a part of a mixture, of reasoning-gym's (extra gym) or the built-in ones:

    palaestra train internbootcamp --model smollm2 --task 'rg:chain_sum+rg:letter_counting+rg:gcd'

Their verifiers know rules where many answers are right. The evaluation, before the first step and after the
last one, is of every family's held-out problems, of the mixture `unseen` of families that are not trained
on, and of the verifiers: each family is audited on `audited` of its problems, how many count as solved by
the reference answer, by what solves nothing (empty replies, the question again, talk to a judge), and by
the reference with one character changed. Of the last some may be right answers too, or near enough where
a verifier has a tolerance or pays by parts.

`scaling=[1,2,4]` trains from one start on that many families, each set within the next, for equal steps, and
then measures the start and all of these on held-out problems of the families that none was trained on: the
accuracy by the number of families, and its slope, the gain by doubling it:

    palaestra train internbootcamp --model DIR --data FILE.jsonl 'scaling=[1,2,4]' orders=3

With several `orders` of the families the gain has an interval, the order being the unit: which families come
first decides much of one order's gain.

Deviations: a verifier that fails is an error of the episode and never a score, where the released
code gives `form`; a verifier's number 0 and False are one thing here, and there only False earns
`form`. The released `short` reads a as 0 where no </think> stands, so such replies are worth nothing;
so here. Writing environments by language models is not built: the registry is the user's.
What SmolLM2 makes of it stands in docs/runs.md.

Long because the paper has a score and a scaling study: the score with its forms and its price of brevity,
and the runs on growing numbers of families in several orders, with the curve measured on families left out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="InternBootcamp: verifiable task scaling (1000+ environments)",
    paper="arXiv:2508.08636",
    claim="Training on more families of verifiable tasks raises accuracy on families that were not "
    "trained on.",
    source="released code (InternLM/InternBootcamp, bootcamp/base.py) and the abstract",
    size=pl.Size(
        setting="a 32B model on more than 1,000 environments; gains over two orders of magnitude of "
        "tasks",
        model="qwen2.5-32b",
    ),
    task="add(d=4)+bool(d=4)+sort(d=4)",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "domain",
                "text",
                ("sums", "puzzles"),
                "the family of a record",
                otherwise="all records are one family",
            ),
        ),
        shows="part/form",
        off={"form": 0.0},
        own={"form": 0.1, "audited": 2, "schedule.prompts": 4, "collect.links.0.n": 2},
    ),
    use="It helps to see whether more kinds of tasks carry over to kinds that were not trained on; on one "
    "family it is GRPO.",
    lacks=(
        "The 1,000 environments are not there; reasoning-gym has about a hundred.",
        "No agents write environments and their verifiers, and records of a file have no "
        "generator.",
        "Bootcamp-Eval, the benchmark of the paper, is not there; `unseen` measures families of your "
        "own choice.",
        "Task scaling (`scaling=`) goes as far as your families do: two orders of magnitude take a hundred of them.",
    ),
    grade="C",
)
SHORT, SHORT_ANSWER = 256, 128  # characters of a reply, and behind its thinking


def is_thought_once(text: str) -> bool:
    """Whether a reply begins with its thinking, once, and does not end with it."""
    once = text.count("<think>") == text.count("</think>") == 1
    return once and text.startswith("<think>") and not text.endswith("</think>")


def bootcamp_score(
    judged: float | None,
    text: str,
    *,
    form: float = 0.0,
    short: bool = False,
    thinking: bool = False,
) -> float:
    """The score of a reply; `judged` is the verifier's, in [0, 1], None where no answer is found."""
    if judged is None or (thinking and not is_thought_once(text)):
        return 0.0
    score = judged if judged > 0 else form
    answer = text.rpartition("</think>")[2] if "</think>" in text else ""
    if short and (len(text) < SHORT or len(answer) < SHORT_ANSWER):
        return min(score * len(text) / SHORT, score * len(answer) / SHORT_ANSWER)
    return score


@pl.stage
class BootcampScore:
    """What the bench pays, as a score with a part for form and a price of brevity. Whether an answer
    is right is said by the bench alone.
    """

    form: float = 0.0
    short: bool = False
    thinking: bool = False

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        if ctx.bench.reward is None:
            raise pl.UserError(
                f"{ctx.bench.name} pays by itself, and a family of puzzles is judged by a verifier; use "
                "--task or --data with answers"
            )
        rewards = await pl.judge_group(ctx, ctx.bench.reward, group)
        pairs = zip(rewards, group.episodes, strict=True)
        return [
            r if isinstance(r, pl.Fault) else self.score(r, pl.response_text(e)) for r, e in pairs
        ]

    def score(self, verified: pl.Reward, text: str) -> pl.Reward:
        answered = verified.total > 0 or finds_answer(text)
        total = bootcamp_score(
            min(1.0, verified.total) if answered else None,
            text,
            form=self.form,
            short=self.short,
            thinking=self.thinking,
        )
        form = total if verified.total <= 0 else 0.0
        parts = {**verified.parts, "verified": verified.total, "form": form}
        return replace(verified, total=total, parts=parts)


def finds_answer(text: str) -> bool:
    """Whether a reply states an answer: in a box or in tags, announced, or on its last line."""
    return pl.stated_answer(text) is not None or pl.tasks.final_answer(text) is not None


def change_one(answer: str, rng: np.random.Generator) -> str:
    """The answer with one of its letters or digits changed into another one; one more digit where
    it has none.
    """
    places = [i for i, c in enumerate(answer) if c.isascii() and c.isalnum()]
    if not places:
        return f"{answer}1"
    at = places[int(rng.integers(len(places)))]
    alphabet = "0123456789" if answer[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    others = [c for c in alphabet if c != answer[at].lower()]
    return answer[:at] + str(rng.choice(others)) + answer[at + 1 :]


@pl.stage
class VerifierAudit:
    """An evaluator: what each family's verifier pays. Nothing is sampled.

    By domain the shares of `tasks` held-out problems that count as solved by the reference ("gold"),
    by the reference with a character changed ("changed"), and by a reply that solves nothing, the
    most of these ("nothing").
    """

    tasks: int = 8

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        if ctx.bench.reward is None:
            return {}
        parts = pl.curriculum.arms_of(ctx.bench.tasks)
        audits = {part.name: await self.audit(ctx, part, len(parts) > 1) for part in parts}
        return {name: shares for name, shares in audits.items() if shares}

    async def audit(self, ctx: pl.Context, part: pl.Tasks, mixed: bool) -> dict[str, float]:
        size = part.test_size if isinstance(part, pl.abilities.HeldOutSize) else None
        numbers = range(self.tasks if size is None else min(self.tasks, size))
        if not numbers:  # no record of this family is held out
            return {}
        tasks = [
            pl.tasks.part_task(part, "test", i) if mixed else part.task("test", i) for i in numbers
        ]

        def gold(task: pl.Task) -> str:
            return pl.tasks.demonstration(part, task, pl.rng_of(("audit", task.id)), "guess")

        def changed(task: pl.Task) -> str:
            wrong = change_one(str(task.answer), pl.rng_of(("audit", task.id, "changed")))
            return gold(replace(task, answer=wrong))

        assert ctx.bench.reward is not None
        paid = await pl.judges.attack_reward(
            ctx.bench.reward,
            tasks,
            gold=gold,
            above=pl.SOLVED_TOTAL - 1e-9,
            also={"changed": changed},
            ctx=ctx,
        )
        nothing = [v for k, v in paid.items() if k not in ("gold", "changed")]
        return {"gold": paid["gold"], "changed": paid["changed"], "nothing": max(nothing)}


# ---- task scaling


def families_in_order(ctx: pl.Context, number: int = 0) -> list[pl.Tasks]:
    """The families of a run's problem, in one of the orders of its seed."""
    parts = pl.curriculum.arms_of(ctx.bench.tasks)
    key = (ctx.seed, "families", number) if number else (ctx.seed, "families")
    return [parts[i] for i in pl.rng_of(key).permutation(len(parts))]


@pl.stage
class SomeFamilies:
    """Draws from the first `families` in an order of the run's seed, each as often. Raises UserError
    where none of all is left to be measured on behind the first `most`.
    """

    families: int
    most: int
    order: int = 0

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        parts = families_in_order(ctx, self.order)
        check_left(ctx, parts, self.most)
        own = {p.name for p in parts[: self.families]}
        arms = {p.name: {"value": 0.0 if p.name in own else -np.inf, "count": 0} for p in parts}
        drawn, after = pl.curriculum.Bandit(tau=1.0)(ctx, key, n, {**state, "arms": arms})
        return drawn, {"given": after["given"]}


def check_left(ctx: pl.Context, parts: Sequence[pl.Tasks], most: int) -> None:
    """Raises UserError where all families are trained on."""
    if len(parts) <= most:
        raise pl.UserError(
            f"scaling up to {most} families takes more than {most}, to measure on what is left, and "
            f"{ctx.bench.name!r} has {len(parts)}; give smaller sets, or more values of the column `domain`"
        )


@pl.stage
class ScalingCurve:
    """A program: the accuracy of the models "families 1", "families 2", ... of each order on held-out problems of
    the families that none of these was trained on, and of the policy, which was trained on none.

    Its summary has "scaling", a record for each order and number of families with the accuracy; "slope", the
    least-squares gain of the accuracy by doubling the number of families, the mean over orders; of several
    orders "slopes", its interval, with the order as the unit; and "unseen", the names of the families that
    are measured on, by order where there are several.

    Args:
        sizes: the numbers of families.
        tasks: held-out problems, in equal shares of the families, as far as they have so many.
        samples: answers to each.
        orders: of the families.
    """

    sizes: tuple[int, ...]
    tasks: int = 64
    samples: int = 4
    orders: int = 1

    async def run(self, ctx: pl.Context) -> pl.Result:
        curves = [await self.curve(ctx, order) for order in range(self.orders)]
        slopes = [gain_by_doubling(self.sizes, [x["mean"] for x in c[1:]]) for c, _ in curves]
        slope = float(np.mean(slopes))
        records = [x for curve, _ in curves for x in curve]
        metrics: dict[str, Any] = {"scaling": records, "slope": slope}
        ctx.say(f"the accuracy rises by {slope:.3f} where the number of families doubles")
        means = {m: [x["mean"] for x in records if x["families"] == m] for m in (0, *self.sizes)}
        ctx.log({"slope": slope, **{f"scaling/{m}": float(np.mean(x)) for m, x in means.items()}})
        if self.orders > 1:
            interval = pl.stats.mean_interval(slopes)
            metrics |= {"slopes": {"of": "reward", **interval.json()}}
            ctx.say(
                f"over {self.orders} orders of the families its 95% interval is {interval.low:.3f} to "
                f"{interval.high:.3f}"
            )
        unseen = [names for _, names in curves]
        metrics |= {"unseen": unseen[0] if self.orders == 1 else unseen}
        return pl.Result(metrics={**metrics, "sampled_tokens": ctx.sampled_tokens})

    async def curve(self, ctx: pl.Context, order: int) -> tuple[list[dict[str, Any]], list[str]]:
        """The records of an order, and the names of the families that they are measured on."""
        parts = families_in_order(ctx, order)
        check_left(ctx, parts, self.sizes[-1])
        unseen = parts[self.sizes[-1] :]
        tasks, names = self.held_out(unseen), [p.name for p in unseen]
        curve = list[dict[str, Any]]()
        for m in (0, *self.sizes):
            scores = await self.measure(ctx, tasks, trained_on(m, order) if m else "policy")
            curve.append({"families": m, **scores, **({"order": order} if self.orders > 1 else {})})
            ctx.say(f"trained on {m} families: accuracy {scores['mean']:.3f} on {', '.join(names)}")
        return curve, names

    def held_out(self, unseen: Sequence[pl.Tasks]) -> list[pl.Task]:
        """Problems of all these families. Raises UserError where none is held out."""
        share = -(-self.tasks // len(unseen))
        sizes = [p.test_size if isinstance(p, pl.abilities.HeldOutSize) else None for p in unseen]
        tasks = [
            pl.tasks.part_task(part, "test", i)
            for part, size in zip(unseen, sizes, strict=True)
            for i in range(share if size is None else min(share, size))
        ]
        if not tasks:
            names = ", ".join(p.name for p in unseen)
            raise pl.UserError(
                f"no problem of {names} is held out; mark some by a column `split`, or give more records"
            )
        return tasks

    async def measure(
        self, ctx: pl.Context, tasks: Sequence[pl.Task], model: str
    ) -> dict[str, Any]:
        sample, score = pl.Sample(n=self.samples, model=model), pl.Score()

        async def one(i: int, task: pl.Task) -> pl.Group:
            key = (ctx.seed, "scaling", i)  # of every model the same
            return await score(ctx, key, await sample(ctx, key, pl.Group(task=task)))

        groups = await asyncio.gather(*(one(i, t) for i, t in enumerate(tasks)))
        return dict(pl.run.judge_held_out(list(groups)).json())


def gain_by_doubling(sizes: Sequence[int], means: Sequence[float]) -> float:
    """The least-squares slope over log2 of the sizes; 0 of one size."""
    x = np.log2(np.asarray(sizes, float))
    x = x - x.mean()
    return float(x @ np.asarray(means, float) / (x @ x)) if len(sizes) > 1 else 0.0


def trained_on(families: int, order: int) -> str:
    """The name of the part that trains on so many families of an order."""
    return f"families {families}" + (f", order {order + 1}" if order else "")


def scaled(recipe: pl.Recipe, sizes: tuple[int, ...], n: int, orders: int) -> pl.Pipeline:
    """Training on each number of families from the run's model, in each order, and the curve."""
    pl.check_bounds("orders", orders, least=1)
    if not all(isinstance(m, int) and m > 0 for m in sizes) or sorted({*sizes}) != [*sizes]:
        raise pl.UserError(f"scaling is {sizes}; give numbers of families that rise, as in [1,2,4]")
    trained = {
        trained_on(m, order): pl.Part(pl.vary(recipe, draw=SomeFamilies(m, sizes[-1], order)))
        for order in range(orders)
        for m in sizes
    }
    models = {name: pl.Output(name) for name in trained}
    curve = ScalingCurve(sizes, n, orders=orders)
    return pl.Pipeline(parts={**trained, "curve": pl.Part(curve, models=models)})


def build(
    form: float = 0.0,
    short: bool = False,
    thinking: bool = False,
    audited: int = 8,
    unseen: str = "",
    n: int = 64,
    scaling: tuple[int, ...] = (),
    orders: int = 1,
) -> Any:
    """`form` is paid for a wrong answer in its place, `short` lowers the pay of brief replies. `unseen`
    are families that `n` held-out problems are taken of and none is trained on, as --task names them.
    `scaling`: numbers of families that are trained on one after the other, each from the start; the
    others of the data or the mixture are measured on. `orders` of the families are trained on in turn, for an
    interval of what more families bring.
    """
    score = pl.Score(reward=BootcampScore(form, short, thinking))
    audit = {"audit": VerifierAudit(audited)} if audited else {}
    recipe = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), score),
        evaluate=audit | ({"unseen": pl.run.Exam(unseen, n)} if unseen else {}),
    )
    if orders != 1 and not scaling:
        raise pl.UserError("orders are those of the families of scaling; give scaling=[1,2,4]")
    return scaled(recipe, tuple(scaling), n, orders) if scaling else recipe


def embedded(unseen: str = "chain(modulo=9)", **options: Any) -> pl.Recipe:
    """On the embedded problem: ten steps of eight prompts, and a family that is not trained on."""
    return pl.vary(build(unseen=unseen, **options), schedule=pl.Schedule(prompts=8, steps=10))
