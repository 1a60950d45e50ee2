"""General-Reasoner: a small generative verifier says whether an answer agrees with the reference, and
answers longer or shorter than the reference are worth less.

The answer s is the last \\boxed{...} of the response, else what stands behind the last "Final
Answer:", "The answer is:", "Answer:", "Solution:" (or the mark `= ` of the built-in tasks). A
verifier that does not solve the question thinks, and says whether s is equivalent to the reference
g:

    score = -0.5 [s is missing] + [pass] (1 - 0.05 min(| tokens(s) - tokens(g) |, 10))

(arXiv:2505.14652, as released): a pass is worth 0.5 to 1, a fail 0, no answer -0.5. The length term
makes it dear to dump text into the box that talks to the verifier. Here the verifier's last
decision counts, only the response is searched, and a missing answer never passes.
`variant="released"` keeps three doors open: the phrase "Final Decision: Yes" anywhere in the
verifier's thoughts passes; the last 1,024 tokens of prompt and response are searched, so an
"Answer:" in the prompt can be the answer; and a verifier that passes "No Answer" pays +0.5. Phrases
need a line break behind the answer there. The released terms `kl` (1e-4) and `entropy` (1e-3) are
off by default: they move nothing at this scale. The verifier is the user's, an endpoint or a folder:

    palaestra train general-reasoner --data F verifier="endpoint(url='http://HOST:PORT/v1',model='NAME')"
"""

import asyncio
import re
from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="General-Reasoner: generative answer verifier",
    paper="arXiv:2505.14652",
    claim="A generative verifier of short answers extends verifiable rewards to domains whose "
    "answers no rule can compare.",
    source="released code (TIGER-AI-Lab/General-Reasoner) by way of the catalogue; three mended "
    "doors are this project's",
    size=pl.Size(
        setting="Qwen2.5 and Qwen3 4B to 14B bases, 1,024 x 8, minibatch 256, lr 5e-7, KL 1e-4, "
        "entropy 1e-3, 8,192 tokens; verifier 1.5B",
        model="qwen2.5-14b",
        prompts=1024,
        samples=8,
        tokens=8192,
        lr=5e-7,
        arguments={"kl": 1e-4, "entropy": 1e-3, "update.minibatches": 4},
        beside={"verifier": 1.5},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the reference answer, in free form, which the verifier is shown",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "verifier",
                "verifier",
                "thinks and says whether an answer is equivalent to the reference",
            ),
        ),
        shows="part/pass",
        never_off="The verifier's verdict is the whole reward, and one that approves of nothing makes "
        "it 0.",
        own={
            "endpoint": "They agree. Final Decision: Yes",
            "collect.links.0.n": 4,
            "schedule.prompts": 4,
        },
    ),
    use="It helps where answers are short but written in many ways, as in physics, finance or law, and "
    "a model can compare two of them; where a rule compares them, it only costs a second model.",
    lacks=(
        "The questions that the paper crawls from the web, and how it filters them.",
        "The trained verifier of 1.5B; any model that follows the prompt takes its place.",
    ),
    grade="B",
)

Variant = Literal["paper", "released"]
PHRASE = r"(?:final answer|the answer is|answer|solution)\s*:"
MENDED_PHRASE = re.compile(rf"(?:{PHRASE}|^= )[ \t]*([^\n]*)", re.IGNORECASE | re.MULTILINE)
RELEASED_PHRASE = re.compile(rf"(?:{PHRASE}|^= )[ \t]*([^\n]*)\n", re.IGNORECASE | re.MULTILINE)
DECISION = re.compile(r"Final Decision:\s*(Yes|No)")
INSTRUCTION = (
    'Think first. End with "Final Decision: Yes" if the response is equivalent to the reference, '
    'else with "Final Decision: No".'
)
WINDOW = 1024  # tokens at the end of prompt and response that the released code searches
MISSING = "No Answer"


def extract_final(text: str, phrase: re.Pattern[str] = MENDED_PHRASE) -> str | None:
    """The last box, else the last phrase's answer; None where there is neither."""
    answer = pl.verifiers.boxed_answer(text)
    if answer is None:
        answer = next((m[1] for m in reversed(list(phrase.finditer(text)))), None)
    return None if answer is None else answer.strip()


def read_decision(text: str) -> float | None:
    """The last decision; None without one."""
    decisions = DECISION.findall(text)
    return float(decisions[-1] == "Yes") if decisions else None


def has_phrase(text: str) -> float:
    """The phrase anywhere, as released."""
    return float("Final Decision: Yes" in text)


def worth(
    passed: bool, missing: bool, difference: int, penalty: float = 0.05, longest: int = 10
) -> float:
    """-0.5 for a missing answer, and for a pass 1 less what the length costs."""
    return -0.5 * missing + passed * (1 - penalty * min(abs(difference), longest))


@pl.stage
class Equivalence:
    """`worth` of the verifier's decision; lengths in tokens of `model`."""

    client: pl.Source
    variant: Variant = "paper"
    penalty: float = 0.05
    model: str = "policy"

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        return list(
            await asyncio.gather(*(self._reward(ctx, group.task, e) for e in group.episodes))
        )

    async def _reward(
        self, ctx: pl.Context, task: pl.Task, episode: pl.Episode
    ) -> pl.Reward | pl.Fault:
        if task.answer is None:
            raise pl.UserError(
                f"task {task.id!r} has no answer for the verifier to compare with; give it one"
            )
        released = self.variant == "released"
        final = self.answer(ctx, episode)
        passed = False
        if final is not None or released:
            try:
                judge = pl.Judge(
                    self.client,
                    pl.judges.GRADE_PROMPT,
                    pl.judges.Text(has_phrase if released else read_decision, INSTRUCTION),
                    max_tokens=2048,
                    unparsed=0.0,
                )
                passed = (
                    await judge.judge_one(ctx, task, MISSING if final is None else final)
                ).score == 1
            except pl.Fault as fault:
                return fault
        spell = ctx.engine(self.model).dialect.encode_text
        difference = len(spell(final or MISSING)) - len(spell(pl.judges.reference_of(task)))
        total = worth(passed, final is None, difference, self.penalty)
        parts = {
            "pass": float(passed),
            "missing": float(final is None),
            "difference": float(difference),
        }
        return pl.Reward(total=total, parts=parts)

    def answer(self, ctx: pl.Context, episode: pl.Episode) -> str | None:
        if self.variant == "paper":
            return extract_final(pl.response_text(episode))
        return extract_final(ctx.decode(episode.rows[-1].context()[-WINDOW:]), RELEASED_PHRASE)


def build(
    verifier: pl.Source | None = None,
    variant: Variant = "paper",
    penalty: float = 0.05,
    kl: float = 0.0,
    entropy: float = 0.0,
) -> pl.Recipe:
    """Without a `verifier` the policy's start, frozen, is asked."""
    frozen = {} if verifier else {"verifier": "policy"}
    reward = Equivalence(verifier or pl.LocalModel("verifier"), variant, penalty)
    loss = pl.Clipped(low=0.3, high=0.3)
    loss = loss + kl * pl.KL("k3") if kl else loss
    parent = pl.recipe("grpo", kl=kl)
    return pl.vary(
        parent,
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        references={**parent.references, **frozen},
    )


def embedded(
    variant: Variant = "paper", penalty: float = 0.05, kl: float = 0.0, entropy: float = 0.0
) -> pl.Recipe:
    """On the embedded problem, with a program for the verifier."""
    decides = pl.judges.Grader(yes="Final Decision: Yes", no="Final Decision: No")
    return build(pl.Scripted(decides, name="verifier"), variant, penalty, kl, entropy)
