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

arXiv:2505.11875 (abstract; rewards and rounds are inferred). The recipe is step 2, on the user's
pairs, a file with prompt, chosen and rejected, each shown in an order that a coin decides; a record
that is no pair is a question with its answer. Steps 1 and 3 stand in the claim (`Reflect`,
`Scaling`). Only a verdict on the last line counts, behind any thinking. Longer thinking may merely
flip verdicts: `stts.corrected` and `stts.spoilt` are the shares that change from wrong to right and
back between the fewest and the most rounds, `stts.kept` that of verdicts that stay the same,
`stts.undecided` that of answers which are none, or still a doubt, after the most. The cue is text
of the environment, so it carries no gradient.
"""

from dataclasses import replace

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
        own={"collect.links.1.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where pairs with a known better response are there and a judge may think long at test "
    "time.",
    lacks=(
        "Fine-tuning on reflections before it is a run of sft on data of one's own.",
        "Forced thinking at test time is measured on the embedded problems alone.",
    ),
)
INSTRUCTION = "Think first. End with a line `= A` or `= B`, the better one."


def ask_which(task: pl.Task, key: pl.Key) -> pl.Task:
    """The question which response of a pair is better, in the order that a coin decides."""
    good, bad = str(task.meta["chosen"]), str(task.meta["rejected"])
    first = pl.rng_of((*key, "order")).random() < 0.5
    a, b = (good, bad) if first else (bad, good)
    judge = pl.Pairwise()
    shown = judge.template.format(
        question=pl.judges.defuse(pl.tasks.question_text(task)),
        a=pl.judges.defuse(a),
        b=pl.judges.defuse(b),
        rubric=judge.rubric,
        instruction=INSTRUCTION,
    )
    prompt = (pl.Message(role="user", content=shown),)
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
    said = pl.judges.reply_after_thinking(text)
    return pl.tasks.exact_match(said, task) if pl.tasks.final_answer(said) else -1.0


def build(kl: float = 0.001) -> pl.Recipe:
    reward = pl.Verify(pair_verdict)
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(AskWhich(), pl.Sample(n=8), pl.Score(reward=reward)),
    )
