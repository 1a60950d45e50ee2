"""On-policy distillation: the student writes, and a teacher says of each token what it would have written.

    palaestra train distil --data FILE.jsonl --model DIR teacher=DIR
    palaestra train distil --data FILE.jsonl --model DIR teacher=DIR over=spans
    palaestra train distil --data FILE.jsonl --model DIR teacher="endpoint(url='http://HOST:8000/v1', model='NAME')" top=20
    palaestra train distil --data FILE.jsonl --model DIR teacher=self context=COLUMN

    reverse   KL(pi | T), of the student's own samples: it drops what the teacher would not say
    forward   KL(T | pi): it spreads over all that the teacher would say
    jsd       beta KL(T | M) + (1 - beta) KL(pi | M), M = beta T + (1 - beta) pi

(arXiv:2306.13649, eq. 1 to 3.) Mean over all tokens of the batch; no reward is asked for. What of the two
models is compared:

    over=vocabulary   their whole distributions, T x V numbers a row of the teacher; with top=K the teacher's
                      K likeliest tokens, and all others joined to one: a lower bound, 2 K numbers a token
    over=tokens       the log-probs of the sampled tokens alone: k2 as a loss for reverse and k3 for forward,
                      which have the same gradients in the mean (`objective.kl`), with more noise; jsd has
                      no such form
    over=spans        the same of the smallest spans of text that both tokenizers can spell, for a teacher with
                      another tokenizer, which reads the prompt in its own chat template

With over=spans the log says which share of the tokens stands alone in its span, as in the teacher's
(`aligned`), in a longer one (`coarse`), or in none (`lost`). The probability of a span's text is that of
one way to spell it, each model's own.

A teacher behind an endpoint is asked how likely the student's token ids are, by vLLM's `prompt_logprobs`,
or by `echo` and `logprobs` of older servers, which takes over=tokens or over=spans; with top=K it is vLLM's
K likeliest tokens, 20 at most unless it was started with --max-logprobs. One with another tokenizer names
it, endpoint(url=..., model=..., tokenizer=DIR). The key's environment variable is `key_env`.

With probability `mix` a prompt's answer is that of the data (`demonstration`, else the answer as text)
instead of the student's: 0 is on-policy, 1 is distillation on fixed answers. A token of the data was
not drawn from the student, so tokens and spans allow no mix.

A teacher may read more than the student, behind the question: `context` is a column of the data, such as a
hint, a worked solution, what a tool returned or a document; `privileged` is one of

    answer     the right answer
    solution   how it is found: the column demonstration
    hint       the column hint
    peer       another answer to the same prompt that is right (`samples` are judged for it)
    feedback   a wrong answer to it, and that it is wrong
    other      the working of another training task: the control for what is shown (arXiv:2608.09228)

Then the student can teach itself: teacher=self is the student as it was `every` steps ago at most, with
`ema` above 0 the moving average of its weights, which takes up that share of them in each step (the 0.05 of
arXiv:2601.20802; `every` is then not read), and teacher=policy as it was at the start (arXiv:2601.18734
with the solution). A row of which there is nothing to show, or too much for the context, is read as it is;
the metric `privileged` is the share of tokens that were not. On the built-in problem peers and feedback
bring the built-in model from 21% to 100% in 30 steps with every=10, and to 47% and 12% with every=1 (one
seed): who follows himself too closely forgets. `other` reaches 100% too: there it is the working that is
learned, not what it says of the problem.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="On-policy distillation (GKD: reverse KL, forward KL, generalised JSD)",
    paper="arXiv:2306.13649",
    claim="Learning from a teacher on the student's own answers beats distillation on fixed answers.",
    source="abstract and eq. 1 to 3; TRL's GKDTrainer for the ends of beta",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "demonstration",
                "text",
                ("17 + 25 = 30 + 12 = 42", "8 + 31 = 39", "40 + 9 = 49"),
                "an answer of the data, for the share `mix`",
                otherwise="`mix` takes the answer as text; mix=0 reads neither",
                when={"privileged": ("", "answer", "hint", "peer", "feedback", "other")},
            ),
            replace(pl.needs.DEMONSTRATION, when={"privileged": ("solution",)}),
            replace(pl.needs.HINT, when={"privileged": ("hint",)}),
            replace(pl.needs.ANSWER, when={"privileged": ("answer", "peer", "feedback")}),
            pl.needs.NeededColumn(
                "COLUMN",
                "any",
                ("17 + 25 = 42", "8 + 31 = 39", "40 + 9 = 49"),
                "what the teacher reads behind the question, and the student does not",
                named_by="context",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "says how likely each next token is, as a folder or endpoint(url=..., model=...)",
                reads_tokens=True,
                scores=True,
                when={"privileged": ("",), "context": ("",)},
            ),
        ),
        shows="divergence_teacher",
        never_off="It is 0 only where the teacher is the policy itself, which is refused.",
        own={"schedule.prompts": 4, "collect.links.0.sample.n": 2},
    ),
    use="It helps where a better model fits beside the student, or is served; what the teacher "
    "cannot do is not learned, and no reward corrects it.",
    lacks=(
        "A teacher with another tokenizer compares sampled texts alone, in rows of one reply: no jsd, no top, "
        "and no tools or world that speaks between replies.",
        "An endpoint says nothing of the whole vocabulary, and serves at temperature 1.",
        "The paper's sum of distillation and a reward is `kdrl`.",
        "Without top=K a number for each word of the vocabulary and token of a step is held, 40 GB for 64 "
        "answers of 512 tokens and 150,000 words.",
        "Privileged context stands behind the question: not where tools or a world say more before the answer.",
        "TRL's seq_kd, answers of the teacher in place of the student's, is not there; its lmbda is 1 - mix.",
    ),
    grade="A",
)
TEACHER, SELF = "teacher", "self"
Divergence = Literal["reverse", "forward", "jsd"]
Over = Literal["vocabulary", "tokens", "spans"]
Privilege = Literal["", "answer", "solution", "hint", "peer", "feedback", "other"]
REWRITES: dict[str, pl.rollout.Rewrite] = {
    "answer": pl.rollout.Revealed(),
    "solution": pl.rollout.Demonstrated(),
    "hint": pl.Hinted(pl.rollout.HintColumn()),
    "peer": pl.rollout.PeerSolution(),
    "feedback": pl.Feedback("verdict"),
    "other": pl.rollout.Examples(1),
}


@pl.stage
class StudentOrData:
    """For a share of the prompts the data's answer, for the others what the student samples; the draw
    belongs to the prompt's key.
    """

    sample: pl.Sample
    share: float = 0.0

    @property
    def brings_reward(self) -> bool:
        """Whether data need no answers: the teacher judges what is sampled."""
        return self.share == 0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if self.share and pl.rng_of((*key, "mix")).random() < self.share:
            return await pl.Demonstrate()(ctx, key, group)
        return await self.sample(ctx, key, group)


@pl.stage
class ImitateTop:
    """`pl.credit.Imitate` whose rows ask of the student what the teacher said of its `top` likeliest
    tokens.
    """

    top: int

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = pl.credit.Imitate()(groups, signals, state)
        asked = []
        for x in examples:
            known = x.columns[f"{TEACHER}_top_logp:{self.top}"]
            asked.append(
                replace(x, columns={**x.columns, "asked": known[:, known.shape[1] // 2 :]})
            )
        return asked, state


def build(
    divergence: Divergence = "reverse",
    beta: float = 0.5,
    mix: float = 0.0,
    over: Over = "vocabulary",
    top: int = 0,
    samples: int = 4,
    teacher: str = "policy",
    privileged: Privilege = "",
    context: str = "",
    every: int = 10,
    ema: float = 0.0,
) -> pl.Recipe:
    """`beta` is of jsd alone: the teacher's weight in the mixture, above 0 and below 1. `top` 0 is the
    whole vocabulary. `context` is a column of the data that the teacher reads behind the question.
    `ema` above 0 has teacher=self follow the student as its moving average with that rate, and leaves
    `every` unread.
    """
    check_options(divergence, beta, mix, over, top)
    check_teacher(teacher, privileged, context, ema)
    weight = {"reverse": 1.0, "forward": 0.0, "jsd": beta}[divergence]
    loss: Any = pl.objective.GeneralisedJSD(weight, model=TEACHER)
    kind: pl.objective.KLKind = "k2" if divergence == "reverse" else "k3"
    if over == "tokens":
        loss = pl.KL(kind, model=TEACHER, reduce="tokens")
    elif over == "spans":
        loss = pl.objective.SpanKL(kind, model=TEACHER)
    elif top:
        loss = pl.objective.TopJSD(top, weight, model=TEACHER)
    whole = f"top_logp:{top}" if top else "vocab_logp"
    quantities = {"tokens": ("logp",), "spans": ("span", "span_logp")}.get(over, (whole,))
    links: list[Any] = [StudentOrData(pl.Sample(n=samples), mix)]
    if privileged in ("peer", "feedback"):
        links.append(pl.Score())
    follows = pl.rollout.MovingAverage(ema) if ema else pl.rollout.Snapshots(every, keep=1)
    rewrite = pl.rollout.ShownColumn(context) if context else REWRITES.get(privileged)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(*links),
        credit=ImitateTop(top) if top else pl.credit.Imitate(),
        objective=loss,
        needs=tuple((TEACHER, quantity) for quantity in quantities),
        references={TEACHER: follows if teacher == SELF else teacher},
        privileged={TEACHER: rewrite} if rewrite else {},
    )


def check_options(divergence: str, beta: float, mix: float, over: str, top: int) -> None:
    """Raises UserError for arguments that do not go together."""
    pl.check_bounds("distil: mix", mix, least=0, most=1)
    pl.check_bounds("distil: top", top, least=0)
    if divergence == "jsd" and not 0 < beta < 1:
        raise pl.UserError(
            f"distil: beta is {beta}; of jsd it lies between 0 and 1, whose ends are divergence=forward "
            "and divergence=reverse"
        )
    if over != "vocabulary" and (divergence == "jsd" or mix or top):
        raise pl.UserError(
            f"distil: sampled tokens alone (over={over}) give no jsd, have no top, and need the student's "
            "own answers; take over=vocabulary, or divergence=reverse mix=0 top=0"
        )


def check_teacher(teacher: str, privileged: str, context: str, ema: float) -> None:
    """Raises UserError for a teacher that says what the student says, and for two contexts."""
    pl.check_bounds("distil: ema", ema, least=0, most=1)
    if ema and teacher != SELF:
        raise pl.UserError(
            f"distil: ema={ema:g} is of a student that teaches itself; give teacher=self, or leave it out"
        )
    if privileged and context:
        raise pl.UserError(
            f"distil: context={context} and privileged={privileged} are two things to show; give one"
        )
    if teacher == SELF and not (privileged or context or 0 < ema < 1):
        raise pl.UserError(
            "distil: teacher=self says what the student says, unless it reads more; give it "
            f"context=COLUMN, privileged={'|'.join(REWRITES)}, or ema=0.05"
        )


def embedded(teacher: str = "policy", privileged: Privilege = "", **options: Any) -> pl.Runnable:
    """On the embedded problem: the teacher imitates its answers for some steps, then it teaches. A
    teacher of the user, or one that reads more, takes its place.
    """
    taught = build(teacher=teacher, privileged=privileged, **options)
    if teacher != "policy" or privileged:
        return taught
    imitates = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=12))
    return pl.Pipeline(
        parts={
            TEACHER: pl.Part(imitates),
            "distil": pl.Part(taught, models={TEACHER: pl.Output(TEACHER)}),
        }
    )
