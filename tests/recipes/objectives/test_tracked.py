"""The numbers of a step that show a method at work: their values by hand, and 0 where it is off."""

import math

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.objectives import apo, attention_rhythm, capo, egsw, kimi_k1_5, nsr, stratified_grpo
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.update import pack, tracked_means

E = math.e
EASY = 1 - math.exp(-E * 0.5)  # apo's share of the KL where half of the answers are right


def answers(rewards, lengths, **facts):
    """One group of one-row answers."""
    said = [Segment(ids=tuple(range(n)), trained=True, policy="policy", logp=(-1.0,) * n, turn=0) for n in lengths]
    episodes = tuple(
        Episode(
            rows=(Row(segments=(Segment(ids=(0,)), s)),),
            reward=Reward(total=float(r)),
            status="finished",
            facts={name: values[i] for name, values in facts.items()},
        )
        for i, (r, s) in enumerate(zip(rewards, said, strict=True))
    )
    return [Group(task=Task(id="t"), episodes=episodes)]


def tracked(recipe, groups, **signals):
    """What credit tracks of groups whose tokens all have the same signals."""
    measured = [
        [[{n: np.full(1 + len(e.rows[0].segments[1].ids), v) for n, v in signals.items()}] for e in g.episodes]
        for g in groups
    ]
    examples, _ = recipe.learners["policy"].credit(groups, measured, {})
    return tracked_means(pack(examples))


CASES = {  # recipe, the same with the mechanism off, groups, signals, the number, its value
    # one line each: token 0 to 1 of the first answer is voted wrong, of 2 + 4 tokens
    "capo": (capo.build(), capo.build(wrong=0.0), answers([1, 0], [2, 4], critiques=[[[0]], [[]]]), {}, "penalty", 2 / 6),
    # the right answer has 2 of 6 tokens
    "apo, KL": (apo.build(), apo.build(dads=False), answers([1, 0], [2, 4]), {}, "kl_released", (1 - EASY) / 3),
    # the wrong answer, 4 of 6 tokens, is two tokens too long
    "apo, length": (
        apo.build(base=2.0), apo.build(stcr=False), answers([1, 0], [2, 4]), {}, "long_wrong", 0.75 * 4 / 6,
    ),
    # .5 for the shorter right answer, -.5 for the longer one
    "kimi": (
        pl.override(kimi_k1_5.build(), "credit.links.0.weight", 0.4), kimi_k1_5.build(length=0.0), answers([1, 1], [2, 4]), {},
        "length_reward", 0.2,
    ),
    "nsr": (nsr.build(positive=1.0), nsr.build(positive=1.0, negative=0.0), answers([1, 0], [2, 4]), {}, "wrong_answers", 4 / 6),
    # G w = 2 e^a / (e^a + e^-a) for A = +-.7071: |G w - 1| = tanh(.7071)
    "egsw": (
        egsw.build(), egsw.build(alpha=0.0, advantage=0.0), answers([1, 0], [3, 3]), {"policy_entropy": 0.5},
        "reweighted", math.tanh(math.sqrt(0.5)),
    ),
    # anchors are the first two of the right answer's four tokens, of eight in all
    "attention": (
        attention_rhythm.build("global"), pl.override(attention_rhythm.build("global"), "amplify", 1.0),
        answers([1, 0], [4, 4]), {"policy_fai:10:50": 0.3}, "amplified", 0.5 * 2 / 8,
    ),
    # two strata: one beside the first
    "strata": (
        stratified_grpo.build(), stratified_grpo.build(fact=""), answers([1, 0, 1], [2, 2, 2], searches=[1, 1, 2]), {},
        "strata", 1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_a_mechanism(name):
    recipe, off, groups, signals, number, expected = CASES[name]
    assert tracked(recipe, groups, **signals)[number] == pytest.approx(expected, abs=1e-5)
    assert not tracked(off, groups, **signals).get(number)
