"""J1-7B: a judge that is trained by reinforcement gains from being made to think longer.

1. Supervised fine-tuning on judgements that reflect: think, doubt, think again, and end with the
   right verdict, whether the first thought was right or not (traces whose last verdict is wrong are
   rejected).
2. Reinforcement learning on verdicts: 1 right, 0 wrong, -1 unreadable; GRPO with 0.001 of the KL to
   the start.
3. Simple test-time scaling: a judge that wants to end its thinking is told to go on, n = 0, 1, 2,
   ... times (`Forced`), then to give its verdict. The slope of accuracy over n, by least squares,
   is what is compared.

arXiv:2505.11875 (abstract; rewards and rounds are inferred). The recipe is step 2; `reflected` and
`Scaling` are the others. Only a verdict on the last line counts, behind any thinking. Longer
thinking may merely flip verdicts: `stts.corrected` and `stts.spoilt` are the shares that change
from wrong to right and back between the fewest and the most rounds, `stts.kept` that of verdicts
that stay the same, `stts.undecided` that of answers which are none, or still a doubt, after the
most. The cue is text of the environment, so it carries no gradient.
"""

import palaestra as pl

pass

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
)


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
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
    )
