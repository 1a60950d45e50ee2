"""The claim of knowrl-factuality: KnowRL: knowledge-verified factuality reward."""

import palaestra as pl
from palaestra.claims.starts import RATES, unmoved
from palaestra.recipes.rewards.knowrl_factuality import build

EXPERIMENT = pl.Experiment(
    claim="With the full reward at least 5 points fewer samples are wrong answers than with "
    "correctness alone (+2, -1, a refusal -1), and right answers stay, of questions that the model "
    "can do (60%) and cannot do.",
    quantity="fewer hallucinations on three sets, reasoning kept on two",
    start=unmoved(build()),
    arms={
        "correctness": build(facts=0.0, refusal=-1.0),
        "knowrl": build(),
        "no facts": build(facts=0.0),
        "refusal -1": build(refusal=-1.0),
    },
    expect=pl.Greater(
        "knowrl", "correctness", by=0.05, why="ours: one wrong answer in twenty less"
    ),
    falsified_if="the full reward leaves as many wrong answers, or right answers are lost for it",
    reasons=(
        pl.Needs("no facts", "the check of facts"),
        pl.Needs("refusal -1", "that a refusal is paid"),
    ),
    vetoes={"accuracy": pl.Veto(pl.Final(), falls=0.03)},
    choose=pl.Final("sampled_after.pass@1.mean"),
    measure=pl.Less(pl.Logged("part/hallucinated"), of=1.0),
    metric="share of samples that are no wrong answers, last ten steps",
    tuned={"optimiser.lr": RATES},
    task="add(d=2)*0.6+add(d=12)*0.4",
    tokens=40_000,
    samples=4,
    seconds=45.0,
    controls={
        "refused": pl.Logged("part/refused"),
        "facts": pl.Logged("part/facts"),
    },
    note="A sum of twelve digits, which no sample of the start gets right, stands for a question "
    "about an unseen entity, `= ?` for a refusal (a fifth of the start's samples there), the lines "
    "of the right working for the knowledge. Correctness pays a refusal as an error, so whatever "
    "pays a refusal more is expected to lower errors; `no facts` and `refusal -1` say which part "
    "does. Wrong answers are counted among the training answers, each problem seen once.",
)
