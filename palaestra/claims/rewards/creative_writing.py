"""The claim of creative-writing: Creative writing in small models: refined reward model vs
adversarial principle judge.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

import palaestra as pl

Greeting = tuple[str, ...]


WORDS = (
    "may", "the", "spring", "autumn", "bring", "you", "warm", "bright", "days", "friends", "songs",
    "light", "best", "wishes",
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


KNOWN_FLAWS: Mapping[str, Any] = {**FLAWS, **SPURIOUS}


STATIC: pl.rewards.RuleList = ("a cliche", "an exclamation")


SLIP = 0.05  # of the detector's readings


def greeting(rng: np.random.Generator, flaw: str = "") -> Greeting:
    """Six words; with a flaw, drawn until they have it."""
    while True:
        words = tuple(str(w) for w in rng.choice(WORDS, 6))
        if not flaw or FLAWS[flaw](words):
            return words


def flaws_of(reply: Greeting, rules: Any = FLAWS) -> list[str]:
    return [name for name in rules if KNOWN_FLAWS[name](reply)]


def write(query: int, rules: pl.rewards.RuleList, rng: np.random.Generator) -> tuple[Greeting, str]:
    """Plants a flaw that its rules do not call known to the judge."""
    free = [f for f in FLAWS if f not in rules] or list(FLAWS)
    flaw = free[(query + int(rng.integers(len(free)))) % len(free)]
    return greeting(rng, flaw), flaw


def detect(
    reply: Greeting, rules: pl.rewards.RuleList, rng: np.random.Generator
) -> pl.rewards.RuleVerdict:
    """Applies the rules, and reads one reply in twenty wrongly."""
    flaws = flaws_of(reply, rules)
    good = (not flaws) != (rng.random() < SLIP)
    return pl.rewards.RuleVerdict(good=good, advice=flaws[0] if flaws else "a cliche")


def reflect(reply: Greeting, good: bool, rules: pl.rewards.RuleList) -> str:
    """What the rules lack, or which of them is at fault ("not ...")."""
    flaws = flaws_of(reply, rules) if good else [f for f in flaws_of(reply) if f not in rules]
    return ("not " if good else "") + flaws[0] if flaws else ""


def merge(rules: pl.rewards.RuleList, advice: str) -> list[str]:
    """Adds a rule, or deletes the one that the advice contradicts."""
    if advice.startswith("not "):
        return [r for r in rules if r != advice.removeprefix("not ")]
    return [*rules, advice] if advice else list(rules)


@pl.stage
class RewardAgreement:
    """A program: how well a reward separates replies without a flaw from others, in the share of
    pairs (ties a half).
    """

    reward: Literal["static", "refined", "without writer", "reward model"]
    labels: int = 40
    noise: float = 0.1  # of the reward model's pairs

    async def run(self, ctx: pl.Context) -> pl.Result:
        rng = pl.rng_of(("creative", ctx.seed))
        pool, test = self._replies(rng, self.labels // 2), self._replies(rng, 200)
        rules = STATIC
        if self.reward in ("refined", "without writer"):
            queries = 4 if self.reward == "refined" else 0
            loop = pl.rewards.Refine(
                write, detect, reflect, merge, rounds=self.labels // 4, queries=queries
            )
            rules, _ = loop(range(100), pool, STATIC, (), rng)
        if self.reward == "reward model":
            w = fit_linear(pool, self.noise, rng)
            score = np.array([features(r) @ w for r, _ in test])
        else:
            score = np.array([float(detect(r, rules, rng).good) for r, _ in test])
        good = np.array([g for _, g in test])
        margin = score[good][:, None] - score[~good][None]
        ranked = float(((np.sign(margin) + 1) / 2).mean())
        return pl.Result(metrics={"agreement": ranked, "rules": len(rules), "sampled_tokens": 0})

    def _replies(self, rng: np.random.Generator, each: int) -> list[tuple[Greeting, bool]]:
        """As many good ones as bad ones."""
        replies: dict[bool, list[Greeting]] = {True: [], False: []}
        while min(map(len, replies.values())) < each:
            reply = greeting(rng)
            kind = replies[not flaws_of(reply)]
            kind += [reply] if len(kind) < each else []
        return [(r, good) for good, kind in replies.items() for r in kind]


def features(reply: Greeting) -> np.ndarray:
    return np.array([float(w in reply) for w in WORDS] + [float(len(set(reply)) < len(reply))])


def fit_linear(
    pool: list[tuple[Greeting, bool]], noise: float, rng: np.random.Generator, steps: int = 300
) -> np.ndarray:
    """Bradley-Terry weights of words on pairs of a good and a bad reply, some of them the wrong way
    round.
    """
    good, bad = ([features(r) for r, g in pool if g == kind] for kind in (True, False))
    d_ND = np.array([a - b for a in good for b in bad])
    d_ND *= np.where(rng.random(len(d_ND)) < noise, -1, 1)[:, None]
    w_D = np.zeros(d_ND.shape[1])
    for _ in range(steps):
        w_D += 0.5 * ((d_ND / (1 + np.exp(d_ND @ w_D))[:, None]).mean(0) - 0.01 * w_D)
    return w_D


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "static rules": RewardAgreement("static"),
        "refined rules": RewardAgreement("refined"),
        "refined without writer": RewardAgreement("without writer"),
        "reward model": RewardAgreement("reward model"),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("refined rules", "static rules", by=0.1, why="ours: one pair in ten"),
    measure=pl.ledger.Final("agreement"),
    metric="share of pairs of a good and a flawed reply in the right order",
    tokens=1,
    evaluate=0,
    seconds=5,
    controls={"rules": pl.ledger.Final("rules")},
)
