"""DiaLLM: records become dialogues. The model asks for one finding after the other and then states a class; what is
said again or cannot be answered is rejected, tests that the record confirms are rewarded, and rare classes count more.

    reference (CTR)    a column has a name in words, and a value is shown as "normal" or "abnormal" by its range
    reject sampling    pi_A(a) = pi(a) / sum_{b in A} pi(b),   A the valid actions, pi_A in PPO's ratio
    interpretation     r(meaning) = 0 where a result is called "normal" or "abnormal" as its range has it, else -meaning
    confirmation       r(test) = confirm [ordered and there] + abnormal [its result is abnormal] - cost,
                       or -unconfirmed - cost
    class-sensitive    r(diagnosis) = w_y if it is y, else -wrong,   w_c = N / (K n_c) between 0.2 and 5
                       (N training records, n_c of class c, K classes)

First dialogues are imitated, which ask for tests of a record in a random order, say what their results mean, and state
its class; then PPO with a
value head learns from what each turn is paid (arXiv:2506.20059). Drawing until an action is valid has the
distribution pi_A, so the valid ones are scored and one is drawn: 1 / sum_{b in A} pi(b) draws are saved. A is what
`pl.worlds.AskFindings` says; answers=all keeps tests in it that the record has no result of, whose choice tells
what its author suspected. reject=False lets the model write what it likes.

    palaestra train diallm --data records.csv --model DIR
      --env "findings(label=diagnosis,known='age,sex',reference='tests.csv')"

A result with a range is shown as "HbA1c: 6.8 (normal <5.7)", and the next message says what it means, `result abnormal`;
then the record says it. Such messages are no turns of those for tests. interpret=false shows what it means at once. The
exam has the share of results that are interpreted rightly, beside that of calling all of them what most are; and
recall@1, 3 and 5 of the tests that the model asks for, all of them being valid, when it may not yet state a class: among
those that were ordered, or where no row says so, those whose results are abnormal; beside chance, and one order of tests
for everybody, by how often they are so in training records.

A row is one record; `tests.csv` has the columns code, name and normal, such as `a1c,HbA1c,<5.7` (docs/environments.md).

Constants are not published; these are ours. With a weight for the right class whatever is guessed always has a positive
part of 1 / K; a wrong guess costs the same for all classes, so that the commonest is still the best blind guess. Tests
that are normal and read rightly earn confirm - cost = 0 by default; with cost=0 asking pays by itself.

Deviation: PPO on pi_A says nothing of how likely a valid action is without the restriction, and what is prevented may
drift: from 11% of the probability to 35% within 25 steps in a longer run. `legal` adds -log sum_{b in A} pi(b), where a
turn begins, to the loss.

`palaestra train diallm --seed 0 interpret=false shown=100 exam=200 rl.schedule.prompts=32 rl.schedule.steps=50` (longer
than the default, which takes about a minute and a half), on 200 held-out synthetic records of three classes: the
imitation has an accuracy of 0.71, a mean recall of 0.47 and a recall of 0 for the rarest class, after 1.1 tests; 50
steps of PPO come to 0.79, 0.78 and 0.76 after 2.2 tests. With balance=False and legal=0, which is two changes at once,
they are 0.79, 0.55 and 0 after 1.5 tests; neither alone was run, so that this does not say what class weights do. What
is prevented goes from 15% of the probability to 13% (means of the first five and last ten steps), there to 23%. One
seed, no claim: settings of the default run were chosen after a first run of this seed. Held-out records are asked for
tests that they answer alone, so that which tests there are may help; with answers=all it cannot.

This is a benchmark of a training method on records. It makes no clinical claim, and nothing that a model says here is
medical advice.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.domains.diallm.exam import RECALL_AT, DiagnosisExam
from palaestra.recipes.domains.diallm.reward import DiagnosisReward, findings_world

CARD = pl.Card(
    title="DiaLLM: EHR-grounded dialogue, reject sampling, class-sensitive reward",
    paper="arXiv:2506.20059",
    claim="A language model that is trained on dialogues over health records, with reject sampling, a confirmation reward "
    "and a class-sensitive diagnosis reward, recommends tests and predicts diagnoses better than baselines.",
    source="abstract; the released code (WeijieyingRen/DiaLLMs: ppo_run.py, sft_tune.py) has an earlier reward, the "
    "similarity of embeddings, and lacks its trainer; constants of the rewards and what a valid action is are inferred",
    size=pl.Size(
        setting="Llama-7B or like it, PPO with target KL 0.1 and KL coefficient 0.2; TriNetX (metabolic, respiratory and "
        "circulatory) and NHANES",
        model="llama-2-7b",
        samples=1,
        lr=1e-5,
    ),
    model="tiny",
    task="patients",
    world="findings",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "diagnosis",
                "text",
                ("none", "diabetes", "none", "none", "borderline", "none"),
                "the class of the record; label=COLUMN in --env findings(...) names another column",
            ),
            pl.needs.NeededColumn(
                "HbA1c",
                "any",
                (5.1, 7.2, 5.4, None, 6.0, 5.3),
                "a finding: every column that is neither class nor known is one, under a name of its own",
                otherwise="the other columns are the findings",
            ),
            pl.needs.NeededColumn(
                "glucose",
                "any",
                ("normal", "abnormal", None, "normal", "abnormal", "normal"),
                "another finding",
                otherwise="the other columns are the findings",
            ),
            pl.needs.NeededColumn(
                "ordered",
                "texts",
                (["HbA1c"], ["HbA1c", "glucose"], ["glucose"]),
                "the tests that were ordered",
                otherwise="all tests of which the record has a result were",
            ),
        ),
        shows="part/prevented",
        off={"reject": False},
        own={
            "model": "tiny",
            "env": "findings(told=0,turns=3)",
            "shown": 12,
            "exam": 0,
            "steps": 2,
            "rl.schedule.prompts": 4,
            "shown.schedule.prompts": 8,
            "shown.optimiser.lr": 0.005,
            "shown.optimiser.warmup": 0,
        },
    ),
    use="It helps where records have a class and many findings of which few are asked for, and classes that are rare count; "
    "where all findings can be read at once, a classifier of tables is simpler and should stand beside it.",
    lacks=(
        "The dialogues are made of columns by a template: no language model rewrites records as conversations, and visits "
        "over time, symptoms and a physician's notes are not there.",
        "No table of the paper is repeated: TriNetX is closed. The meaning of a result is its range's, and no physician's.",
        "Nothing of the default run, in which results are interpreted, was measured at full length: the numbers in the method's "
        "text are of interpret=false. To interpret a result is to compare it with the range that stands beside it.",
        "The reward of the released code, similarity of embeddings to the reference answer, is not there.",
    ),
    grade="B",
)


@pl.stage
class RejectInvalid:
    """Samples as `sample` does, among the valid actions of a turn where `reject` says so; what is valid, see
    `pl.worlds.AskFindings`.

    Args:
        reject: False lets the model write what it likes.
        answers: "record": tests that the record answers; "all": every test.
        interpret: results that have a reference range are interpreted by the model.
        recommend: this many tests are asked for, of all, before a diagnosis can be chosen; 0 = one or more.
    """

    sample: pl.Collect
    reject: bool = True
    answers: Literal["record", "all"] = "record"
    interpret: bool = True
    recommend: int = 0

    async def check_start(self, ctx: pl.Context) -> None:
        """Raises UserError in a world that asks for no findings."""
        findings_world(ctx)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = findings_world(ctx)
        world = replace(
            world, restrict=self.answers if self.reject else "none", interpret=self.interpret
        )
        if self.recommend:
            least = min(self.recommend, len(world.tests))
            world = replace(world, restrict="all", least=least, turns=least + 1)
        there = replace(ctx.bench, world=world, max_turns=world.most_turns)
        return await self.sample(ctx.with_bench(there), key, group)


def build(
    reject: bool = True,
    answers: Literal["record", "all"] = "record",
    interpret: bool = True,
    meaning: float = 0.2,
    confirm: float = 0.2,
    abnormal: float = 0.2,
    unconfirmed: float = 0.05,
    cost: float = 0.2,
    balance: bool = True,
    wrong: float = 1.0,
    samples: int = 1,
    kl: float = 0.05,
    legal: float = 0.1,
    start: Literal["shown", "as-is"] = "shown",
    shown: int = 200,
    exam: int = 200,
) -> pl.Recipe | pl.Pipeline:
    """`reject`, `answers`, `interpret`: see `RejectInvalid`; `meaning` and others: see `DiagnosisReward`. `kl` weighs the KL to
    the start, `legal` how likely valid actions are without the restriction. `start=shown` first imitates dialogues for
    `shown` steps. `exam` held-out records are measured before and after; 0 = none.
    """
    ppo: Any = pl.recipe("ppo")
    collect = RejectInvalid(pl.Sample(n=samples), reject, answers, interpret)
    reward = DiagnosisReward(
        confirm=confirm,
        abnormal=abnormal,
        unconfirmed=unconfirmed,
        cost=cost,
        balance=balance,
        wrong=wrong,
        meaning=meaning,
    )
    greedy = replace(collect, sample=pl.Sample(n=1, temperature=0.0))
    recommend = replace(greedy, recommend=max(RECALL_AT))
    learned = pl.vary(
        ppo,
        collect=pl.links(collect, pl.Score(), reward, pl.rewards.TellPrevented()),
        objective=ppo.learners["policy"].objective
        + kl * pl.KL("k3")
        + legal * pl.objective.LegalMass(),
        needs=(("policy", "value"), ("ref", "logp")),
        references={"ref": "policy"},
        schedule=pl.Schedule(prompts=64, steps=100),
        evaluate={"diagnosis": DiagnosisExam(greedy, exam, recommend)} if exam else {},
    )
    if start == "as-is":
        return learned
    return pl.imitate_first(
        learned,
        shown,
        prompts=32,
        collect=pl.links(RejectInvalid(pl.Demonstrate(), reject, answers, interpret)),
    )


def embedded(
    shown: int = 60, prompts: int = 16, exam: int = 100, **options: Any
) -> pl.Recipe | pl.Pipeline:
    """On synthetic records, of which few are enough."""
    made: Any = build(shown=shown, exam=exam, **options)
    small = {
        "schedule": pl.Schedule(prompts=prompts, steps=36),
        "update": pl.Plain(epochs=2, minibatches=2),
        "optimiser": pl.AdamW(lr=3e-4),
    }
    if not isinstance(made, pl.Pipeline):
        return pl.vary(made, **small)
    last = made.parts["rl"]
    learned = replace(last, runnable=pl.vary(last.runnable, **small))
    return replace(made, parts={**made.parts, "rl": learned})
