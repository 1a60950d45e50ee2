"""The claim of rlbff: RLBFF: binary flexible feedback, principle entailment."""

from palaestra.credit.preferences import Compare
from palaestra.judges.principles import PRINCIPLE_QUESTIONS
from palaestra.ledger.experiment import Experiment, Final, Greater
from palaestra.objective.reward_model import BradleyTerry
from palaestra.recipes.rewards.rlbff import entailment, reward_model_recipe
from palaestra.rewards.labels import QUALITY_LABELS
from palaestra.rewards.learned import Learned
from palaestra.rewards.probe import RankingProbe

EXPERIMENT = Experiment(
    claim="Asked for one property of an answer, a model of flexible principles ranks answers better than one of preferences.",
    arms={
        "bradley-terry": RankingProbe(
            reward_model_recipe(Compare(pairs="all"), BradleyTerry(), heads=("score",)),
            Learned(),
            tuple(("", n) for n in QUALITY_LABELS),
        ),
        "one principle": entailment(PRINCIPLE_QUESTIONS[:1]),
        "flexible": entailment(PRINCIPLE_QUESTIONS),
    },
    expect=Greater("flexible", "bradley-terry"),
    falsified_if="asked for a property, the model of preferences is as accurate or better",
    measure=Final("ranked.mean"),
    metric="accuracy on pairs of held-out answers, mean over four properties",
    tokens=12_000,
    evaluate=4,
    controls={n: Final(f"ranked.{n}") for n in QUALITY_LABELS},
    note="Properties that a program checks stand for written feedback, a tenth of the labels is wrong. Overall preference weighs "
    "brevity most. Ranking only: no policy is trained on it here.",
)
