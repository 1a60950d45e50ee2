"""Short creative texts by GRPO on one of two rewards: a judge with a refined list of rules, or a refined reward model.

signal="judge": a detector with at most ten rules says Good (1) or Bad (0). The rules are revised before training by an
adversarial loop (`Refine`): a writer plants flaws, a detector that is fooled learns the flaw, a writer that is caught learns a
harder one, and errors on replies that people labelled are reflected on (arXiv:2508.21476). During training the list is frozen.
A verdict that cannot be read and an empty reply are worth 0, a judge that fails leaves the reply unscored. signal="reward
model": -log sigmoid(s_chosen - s_rejected) on pairs that a panel of agents has made and checked; here pairs by the bench's
verdict. A binary verdict on four samples is often the same for all: such a group teaches nothing. The default judge is a
stand-in that needs no model: it reads the rules it knows from its prompt and applies them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestra.card import Card, Size
from palaestra.context import Source
from palaestra.credit.labelled import Labelled
from palaestra.credit.preferences import Compare
from palaestra.judges.pointwise import Judge
from palaestra.judges.reading import MarkedLabel
from palaestra.ledger.experiment import Experiment, Final, Greater
from palaestra.objective.reward_model import BradleyTerry
from palaestra.recipes.base import grpo
from palaestra.rewards.labels import properties
from palaestra.rewards.learned import Learned
from palaestra.rewards.rules import Refine, Rules, RuleVerdict
from palaestra.rollout.collect import Sample, Score, links
from palaestra.services.chat.scripted import Scripted
from palaestra.step import Learner, Recipe
from palaestra.types import ChatRequest, Result, rng_of, stage
from palaestra.update import AdamW
from palaestra.values import vary

if TYPE_CHECKING:
    from palaestra.context import Context

CARD = Card(
    id="creative-writing",
    family="rewards",
    title="Creative writing in small models: refined reward model vs adversarial principle judge",
    paper="arXiv:2508.21476",
    parent="grpo",
    claim="A judge whose rules an adversary has refined agrees with people better than fixed rules, and than a reward model.",
    changes={
        "collect": "four samples; the reward is a judge's verdict by a list of rules, or a reward model's score",
        "objective": "plus 0.001 times the k3 estimate of the KL to the start policy",
    },
    source="released code for the loop and the settings, summary for the numbers; Good = 1 and Bad = 0 inferred",
    paper_scale=(
        "Qwen2.5-7B-Instruct on Chinese greetings, 4,000 queries, 4 samples, batch 32, 512 tokens, lr 3e-7, KL "
        "0.001, 7,896 preference pairs"
    ),
    size=Size(model="qwen2.5-7b", prompts=32, samples=4, tokens=512, lr=3e-7),
)
RULES: Rules = ("Ends with its answer.", "Shows a step.", "Says no line twice.")
WEIGHTS = (0.30, 0.30, 0.15, 0.15, 0.10)  # language, creativity, resonance, cultural fit, richness; each 1 to 3
EXCELLENT = 2.0


def rating(scores: tuple[float, ...]) -> float:
    """The human rating of a greeting; above 2 it is excellent."""
    return sum(w * s for w, s in zip(WEIGHTS, scores, strict=True))


def detector(request: ChatRequest) -> str:
    """The stand-in judge: Bad if a rule of its prompt is broken, by what it knows of the three in RULES."""
    prompt = request.messages[-1].content
    rules, reply = (re.findall(rf"<{tag}>(.*?)</{tag}>", prompt, re.DOTALL)[-1] for tag in ("rubric", "response"))
    seen, lines = properties(reply), reply.splitlines()
    kept = (bool(lines) and lines[-1].startswith("= "), seen["worked"] > 0, len(set(lines)) == len(lines))
    broken = [rule for rule, held in zip(RULES, kept, strict=True) if rule in rules and not held]
    return f"{' '.join(broken)} [[{'Bad' if broken else 'Good'}]]"


def build(
    signal: Literal["judge", "reward model"] = "judge",
    rules: Rules = RULES,
    client: Source = Scripted(detector, "detector"),
) -> Recipe:
    judge = Judge(
        client=client,
        read=MarkedLabel((("Good", 1.0), ("Bad", 0.0))),
        rubric="\n".join(rules),
        empty=0.0,
        unparsed=0.0,
        name="detector",
    )
    parent = grpo.build(kl=0.001)
    if signal == "judge":
        return vary(parent, collect=links(Sample(n=4), Score(reward=judge, shadow=True)))
    rm = Learner(
        credit=Labelled("gold", Compare()), objective=BradleyTerry(), heads=("score",), optimiser=AdamW(lr=2e-4)
    )
    collect = links(Sample(n=4), Score(reward=Learned("reward"), shadow=True))
    return vary(parent, collect=collect, learners={**parent.learners, "reward": rm})


# ---- the experiment: greetings that a program writes, and flaws that a program knows

Greeting = tuple[str, ...]
WORDS = (
    "may", "the", "spring", "autumn", "bring", "you", "warm", "bright", "days", "friends", "songs", "light", "best", "wishes",
    "happy", "always", "river", "home", "quiet", "sun", "moon", "is", "are", "!",
)  # fmt: skip
FLAWS: Mapping[str, Any] = {
    "names no season": lambda w: not {"spring", "autumn"} & set(w),
    "names two seasons": lambda w: {"spring", "autumn"} <= set(w),
    "a cliche": lambda w: bool({"best", "wishes", "happy"} & set(w)),
    "a word twice": lambda w: len(set(w)) < len(w),
    "you is": lambda w: "you" in w and "is" in w,
    "begins with a verb": lambda w: w[0] in ("is", "are", "bring"),
    "sun and moon": lambda w: {"sun", "moon"} <= set(w),
}
SPURIOUS = {"an exclamation": lambda w: "!" in w}
KNOWN: Mapping[str, Any] = {**FLAWS, **SPURIOUS}
STATIC: Rules = ("a cliche", "an exclamation")
SLIP = 0.05  # of the detector's readings


def greeting(rng: np.random.Generator, flaw: str = "") -> Greeting:
    """Six words; with a flaw, drawn until they have it."""
    while True:
        words = tuple(str(w) for w in rng.choice(WORDS, 6))
        if not flaw or FLAWS[flaw](words):
            return words


def flaws_of(reply: Greeting, rules: Any = FLAWS) -> list[str]:
    return [name for name in rules if KNOWN[name](reply)]


def write(query: int, rules: Rules, rng: np.random.Generator) -> tuple[Greeting, str]:
    """Plants a flaw that its rules do not call known to the judge."""
    free = [f for f in FLAWS if f not in rules] or list(FLAWS)
    flaw = free[(query + int(rng.integers(len(free)))) % len(free)]
    return greeting(rng, flaw), flaw


def detect(reply: Greeting, rules: Rules, rng: np.random.Generator) -> RuleVerdict:
    """Applies the rules, and reads one reply in twenty wrongly."""
    found = flaws_of(reply, rules)
    good = (not found) != (rng.random() < SLIP)
    return RuleVerdict(good=good, advice=found[0] if found else "a cliche")


def reflect(reply: Greeting, good: bool, rules: Rules) -> str:
    """What the rules lack, or which of them is at fault ("not ...")."""
    found = flaws_of(reply, rules) if good else [f for f in flaws_of(reply) if f not in rules]
    return ("not " if good else "") + found[0] if found else ""


def merge(rules: Rules, advice: str) -> list[str]:
    """Adds a rule, or deletes the one that the advice contradicts."""
    if advice.startswith("not "):
        return [r for r in rules if r != advice.removeprefix("not ")]
    return [*rules, advice] if advice else list(rules)


@stage
class RewardAgreement:
    """A program: how well a reward separates replies without a flaw from others, in the share of pairs (ties a half)."""

    reward: Literal["static", "refined", "without writer", "reward model"]
    labels: int = 40
    noise: float = 0.1  # of the reward model's pairs

    async def run(self, ctx: Context) -> Result:
        rng = rng_of(("creative", ctx.seed))
        pool, test = self._replies(rng, self.labels // 2), self._replies(rng, 200)
        rules = STATIC
        if self.reward in ("refined", "without writer"):
            queries = 4 if self.reward == "refined" else 0
            loop = Refine(write, detect, reflect, merge, rounds=self.labels // 4, queries=queries)
            rules, _ = loop(range(100), pool, STATIC, (), rng)
        if self.reward == "reward model":
            w = linear(pool, self.noise, rng)
            score = np.array([features(r) @ w for r, _ in test])
        else:
            score = np.array([float(detect(r, rules, rng).good) for r, _ in test])
        good = np.array([g for _, g in test])
        margin = score[good][:, None] - score[~good][None]
        ranked = float(((np.sign(margin) + 1) / 2).mean())
        return Result(metrics={"agreement": ranked, "rules": len(rules), "sampled_tokens": 0})

    def _replies(self, rng: np.random.Generator, each: int) -> list[tuple[Greeting, bool]]:
        """As many good ones as bad ones."""
        found: dict[bool, list[Greeting]] = {True: [], False: []}
        while min(map(len, found.values())) < each:
            reply = greeting(rng)
            kind = found[not flaws_of(reply)]
            kind += [reply] if len(kind) < each else []
        return [(r, good) for good, kind in found.items() for r in kind]


def features(reply: Greeting) -> np.ndarray:
    return np.array([float(w in reply) for w in WORDS] + [float(len(set(reply)) < len(reply))])


def linear(pool: list[tuple[Greeting, bool]], noise: float, rng: np.random.Generator, steps: int = 300) -> np.ndarray:
    """Bradley-Terry weights of words on pairs of a good and a bad reply, some of them the wrong way round."""
    good, bad = ([features(r) for r, g in pool if g == kind] for kind in (True, False))
    d_ND = np.array([a - b for a in good for b in bad])
    d_ND *= np.where(rng.random(len(d_ND)) < noise, -1, 1)[:, None]
    w_D = np.zeros(d_ND.shape[1])
    for _ in range(steps):
        w_D += 0.5 * ((d_ND / (1 + np.exp(d_ND @ w_D))[:, None]).mean(0) - 0.01 * w_D)
    return w_D


EXPERIMENT = Experiment(
    claim="With equal labels a judge of refined rules separates good from flawed replies better than one of fixed rules.",
    arms={
        "static rules": RewardAgreement("static"),
        "refined rules": RewardAgreement("refined"),
        "refined without writer": RewardAgreement("without writer"),
        "reward model": RewardAgreement("reward model"),
    },
    expect=Greater("refined rules", "static rules", by=0.1),
    falsified_if="refining gains less than ten points, over five seeds",
    measure=Final("agreement"),
    metric="share of pairs of a good and a flawed reply in the right order",
    tokens=1,
    evaluate=0,
    seconds=5,
    controls={"rules": Final("rules")},
    note="Greetings of six words with seven flaws that a program finds; 40 labels. The roles are programs that know the flaws by "
    "name, which a language model would have to find words for. The reward only: no policy is trained.",
)
