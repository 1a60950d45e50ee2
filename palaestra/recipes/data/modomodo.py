"""MoDoMoDo: the shares of several domains in a run of RL, predicted from short runs of other shares.

    S_hat(w) = a + b . w + w' C w,    w* = argmax S_hat over the simplex        (arXiv:2505.24871)

S(w) is the score after RL whose prompts come from domain j with probability w_j, uniformly within it,
whatever its size. Pilots are runs of each domain alone, of all but one, and of all alike; S is the
mean over the domains of their held-out accuracy, of several answers a problem. On the simplex the
last share follows from the others, so it is left out: 1 + (m - 1) + m (m - 1) / 2 coefficients, by
ridge least squares with a free constant. The maximum is found by projected gradient from every pilot
and from all alike; then the policy is trained anew with w*. A linear surrogate, `choose="linear"`, has its
maximum at a vertex: one domain alone.

Edges: with fewer pilots than coefficients the ridge decides; a maximum at a vertex is mostly
extrapolation, which `within="hull"` forbids: then w* is a mean of pilots. `r2_linear` and
`r2_quadratic` are those of each pilot's score predicted from the others alone, all repeats of a
mixture left out together: below 0 a surrogate says less than the mean does. The
mixture is static; bandits (`dump`, `sec`) move it while they learn.

The domains are the values of the column `domain` of a user's file, in the order of their names, or the
parts of a mixture, such as --task 'chain(modulo=7)+chain(modulo=9)'; there are as many as `domains`. A file
has one reward for all domains, which may read `domain`; of a mixture each part has its own. For the mixture
that is best on problems outside of the domains, give these: --test-data OTHER.jsonl. Problems may have
pictures (docs/pictures.md). With `refits=1` the run with w* joins the pilots, by its score, the surrogates are
fitted again, and another run is trained with the new w*; with more, so on.

Long because the paper is an experiment design: pilot mixtures, a quadratic surrogate with its left-out errors,
a search on the simplex, and a last run whose shares follow from the scores of the pilots.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="MoDoMoDo: multi-domain data mixtures",
    paper="arXiv:2505.24871",
    claim="A mixture that a quadratic surrogate of short runs predicts beats drawing all domains alike, "
    "also out of distribution.",
    source="public summaries for the surrogate; models and data partly from memory",
    size=pl.Size(
        setting="Qwen2-VL-2B-Instruct, five image-text sets, GRPO; 5.24% above uniform out of "
        "distribution, 20.74% above the untuned model",
        model="qwen2.5-1.5b",
    ),
    task="chain(modulo=7)+chain(modulo=9)+chain(modulo=11)",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "domain",
                "text",
                ("sums", "products"),
                "the domain of a record; `domains` says how many there are",
            ),
        ),
        least={"domains": 2},
        shows="predicted_gain",
        off={"choose": "uniform"},
        own={
            "domains": 2,
            "rl.tasks": 24,
            "rl.samples": 2,
            **{
                f"{part}.{field}": size
                for part in ("pilot 0", "pilot 1", "pilot 2", "rl")
                for field, size in (("schedule.prompts", 2), ("collect.links.0.n", 2))
            },
        },
    ),
    use="It helps where domains compete for a fixed number of steps and short runs of them differ by more "
    "than chance; it costs 2 `domains` + 1 further runs.",
    lacks=(
        "Pictures were tried with small random vision-language models alone; the five image-text sets of "
        "the paper are not here.",
        "Of a mixture of built-in tasks the surrogate predicts held-out accuracy on the same tasks; other "
        "problems to be best on take records, --test-data.",
    ),
    grade="B",
)
Choice = Literal["quadratic", "linear", "best pilot", "shuffled", "uniform"]


@pl.stage
class Shares:
    """Draws the domain of every task with the probabilities `weights`, in the order of the mixture's
    parts or of the names in the column `domain`, then its next task. () = all alike.
    """

    weights: tuple[float, ...] = ()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        parts = pl.curriculum.arms_of(ctx.bench.tasks)
        shares = self.weights or (1.0,) * len(parts)
        if len(shares) != len(parts):
            mend = (
                f"give domains={len(parts)}"
                if len(parts) > 1
                else "give a mixture, --task 'A+B', or records with a column `domain`"
            )
            raise pl.UserError(
                f"modomodo: {len(shares)} shares for {len(parts)} domains of {ctx.bench.name!r}; {mend}"
            )
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(shares, float))
        arms = {p.name: {"value": float(x), "count": 0} for p, x in zip(parts, logs, strict=True)}
        tasks, after = pl.curriculum.Bandit(tau=1.0)(ctx, key, n, {**state, "arms": arms})
        return tasks, {"given": after["given"]}


# ---- the surrogate


def pilot_mixtures(m: int) -> list[tuple[float, ...]]:
    """Each domain alone, all but one, and all alike; each once."""
    alone = [np.eye(m)[j] for j in range(m)]
    others = [(1 - x) / (m - 1) for x in alone] if m > 2 else []
    return [tuple(x.tolist()) for x in (*alone, *others, np.full(m, 1 / m))]


def features(w_NM: np.ndarray, quadratic: bool) -> np.ndarray:
    """[N, F] without the constant, of all shares but the last."""
    u = w_NM[:, :-1]
    m = u.shape[1]
    pairs = [u[:, i] * u[:, j] for i in range(m) for j in range(i, m)] if quadratic else []
    return np.column_stack([u, *pairs])


def fit_surrogate(
    w_NM: np.ndarray, score_N: np.ndarray, quadratic: bool = True, ridge: float = 1e-3
) -> Callable[[np.ndarray], np.ndarray]:
    """A function of shares [N, M]. The constant carries no ridge."""
    x, mean = features(w_NM, quadratic), float(np.mean(score_N))
    centre = x.mean(0)
    x = x - centre
    gram = x.T @ x + ridge * np.eye(x.shape[1])
    # least norm, where there are fewer runs than coefficients and no ridge
    slope = np.linalg.lstsq(gram, x.T @ (score_N - mean), rcond=None)[0]
    return lambda w: mean + (features(np.atleast_2d(w), quadratic) - centre) @ slope


def left_out_r2(w_NM: np.ndarray, score_N: np.ndarray, quadratic: bool, ridge: float) -> float:
    """1 - the squared error of each mixture's scores, predicted from those of the others, over that of
    the mean of the others. NaN for fewer than three mixtures.
    """
    names = [tuple(w) for w in w_NM.tolist()]
    error = plain = 0.0
    if len(set(names)) < 3:
        return float("nan")
    for name in dict.fromkeys(names):
        out = np.array([n == name for n in names])
        predict = fit_surrogate(w_NM[~out], score_N[~out], quadratic, ridge)
        error += float(((score_N[out] - predict(w_NM[out])) ** 2).sum())
        plain += float(((score_N[out] - score_N[~out].mean()) ** 2).sum())
    return 1 - error / plain if plain else float("nan")


def onto_simplex(x_M: np.ndarray) -> np.ndarray:
    """The nearest shares (Duchi et al. 2008)."""
    falling = np.sort(x_M)[::-1]
    over = (falling.cumsum() - 1) / np.arange(1, len(x_M) + 1)
    return np.maximum(x_M - over[falling > over][-1], 0)


def best_mixture(
    score: Callable[[np.ndarray], np.ndarray], corners_KM: np.ndarray, steps: int = 500
) -> np.ndarray:
    """[M] the shares of the highest score among the means of `corners_KM`, by projected gradient from
    every corner and from their mean.
    """
    k = len(corners_KM)
    worth = lambda a: float(score(a @ corners_KM)[0])
    mixtures = [np.full(k, 1 / k), *np.eye(k)]
    nudge = 1e-5 * np.eye(k)
    for i, a in enumerate(mixtures):
        size = 0.5
        for _ in range(steps):
            up = np.array([(worth(a + d) - worth(a - d)) / 2e-5 for d in nudge])
            next_a = onto_simplex(a + size * up / max(1e-12, float(np.abs(up).max())))
            size = size if worth(next_a) > worth(a) else size / 2
            a = next_a if worth(next_a) > worth(a) else a
            if size < 1e-7:
                break
        mixtures[i] = a
    return max(mixtures, key=worth) @ corners_KM


# ---- the runs


@pl.stage
class TrainBest:
    """A program, the last part: measures the models of the pilots, fits the surrogates, and trains the
    policy with the shares that `choose` says.

    Its summary is that of the run, with "weights", "predicted" (the surrogate's score of these),
    "pilots" (shares and scores), "r2_linear", "r2_quadratic", and "noise", the mean deviation of
    repeated pilots.

    Args:
        mixtures: of the pilots, in the order of their models "pilot 0", "pilot 1", ...
        tasks: held-out problems, each answered `samples` times. The summary's accuracy is of the same
            ones, by which the mixture was chosen: report that of others.
        earlier: how many runs with a chosen mixture, the models "round 0", "round 1", ..., are pilots
            too. Their mixtures are chosen again here, from the same scores.
        choose: "best pilot" takes the mixture of the highest score; "shuffled" fits the quadratic to
            scores that are mixed up, a placebo; "uniform" fits nothing.
    """

    recipe: pl.Recipe
    mixtures: tuple[tuple[float, ...], ...]
    choose: Choice = "quadratic"
    within: Literal["simplex", "hull"] = "simplex"
    ridge: float = 1e-3
    tasks: int = 256
    samples: int = 4
    earlier: int = 0

    async def run(self, ctx: pl.Context) -> pl.Result:
        mixtures, scores = [*self.mixtures], list[float]()
        for i in range(len(self.mixtures)):
            scores.append(await self.score(ctx, f"pilot {i}"))
        for i in range(self.earlier):
            mixtures.append(self.weights(ctx, np.array(mixtures), np.array(scores))[0])
            scores.append(await self.score(ctx, f"round {i}"))
        w, s = np.array(mixtures), np.array(scores)
        chosen, predicted = self.weights(ctx, w, s)
        ctx.say(f"shares {', '.join(f'{x:.3f}' for x in chosen)}, predicted score {predicted:.3f}")
        even = self.surrogate(ctx, w, s)(np.full(w.shape[1], 1 / w.shape[1]))
        trained = pl.vary(self.recipe, draw=Shares(chosen))
        result = await ctx.train(trained)
        ctx.log({"predicted_gain": predicted - float(even[0])})
        metrics = {
            "weights": list(chosen),
            "predicted": predicted,
            "pilots": [
                {"weights": list(m), "score": x} for m, x in zip(mixtures, scores, strict=True)
            ],
            "r2_linear": left_out_r2(w, s, False, self.ridge),
            "r2_quadratic": left_out_r2(w, s, True, self.ridge),
            "noise": noise(w, s),
        }
        return replace(result, metrics={**result.metrics, **metrics})

    async def score(self, ctx: pl.Context, model: str) -> float:
        """The mean over the domains of the share of right answers."""
        sample = pl.Sample(n=self.samples, model=model)
        groups = await pl.run.attempt_tasks(ctx, self.tasks, sample, label=model)
        rewards: dict[str, list[float]] = {}
        for group in groups:
            rewards.setdefault(group.task.domain, []).extend(
                float(bool(e.solved)) for e in group.valid
            )
        return float(np.mean([np.mean(x) for x in rewards.values()]))

    def weights(
        self, ctx: pl.Context, w: np.ndarray, s: np.ndarray
    ) -> tuple[tuple[float, ...], float]:
        """The shares, and the score that is predicted of them."""
        m = w.shape[1]
        surrogate = self.surrogate(ctx, w, s)
        if self.choose == "uniform":
            best = np.full(m, 1 / m)
        elif self.choose == "best pilot":
            means = [s[(w == x).all(1)].mean() for x in w]
            best = w[int(np.argmax(means))]
        else:
            best = best_mixture(
                surrogate, np.eye(m) if self.within == "simplex" else np.unique(w, axis=0)
            )
        best = np.round(best, 6)
        return tuple((best / best.sum()).tolist()), float(surrogate(best)[0])

    def surrogate(
        self, ctx: pl.Context, w: np.ndarray, s: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray]:
        """What predicts the score of shares from those of the pilots."""
        given = pl.rng_of(ctx.key("shuffled")).permutation(s) if self.choose == "shuffled" else s
        return fit_surrogate(w, given, self.choose != "linear", self.ridge)


def noise(w: np.ndarray, s: np.ndarray) -> float:
    """The mean standard deviation over the repeats of a mixture; NaN where none has repeats."""
    same = [s[(w == x).all(1)] for x in np.unique(w, axis=0)]
    several = [x.std(ddof=1) for x in same if len(x) > 1]
    return float(np.mean(several)) if several else float("nan")


def build(
    choose: Choice = "quadratic",
    domains: int = 3,
    repeats: int = 1,
    within: Literal["simplex", "hull"] = "simplex",
    ridge: float = 1e-3,
    refits: int = 0,
    recipe: pl.Recipe | None = None,
) -> pl.Pipeline:
    """`repeats` of each pilot; `refits`: how often the run with the best mixture joins the pilots;
    `recipe` is what is run each time, GRPO if None is given.
    """
    if refits < 0:
        raise pl.UserError(f"modomodo: refits is {refits}; give 0 or more")
    if choose not in get_args(Choice):
        raise pl.UserError(
            f"modomodo: choose is {choose!r}; there are {', '.join(get_args(Choice))}"
        )
    learned = recipe or pl.recipe("grpo")
    mixtures = tuple(w for w in pilot_mixtures(domains) for _ in range(repeats))
    again = [f"repeat {i % repeats}" if i % repeats else None for i in range(len(mixtures))]
    pilots = {
        f"pilot {i}": pl.Part(pl.vary(learned, draw=Shares(w)), shared=True, seed=again[i])
        for i, w in enumerate(mixtures)
    }
    last = TrainBest(learned, mixtures, choose, within, ridge)
    models = {name: pl.Output(name) for name in pilots}
    rounds = {
        f"round {i}": pl.Part(
            replace(last, earlier=i), models=models | {n: pl.Output(n) for n in named(i)}
        )
        for i in range(refits)
    }
    models |= {n: pl.Output(n) for n in named(refits)}
    chosen = pl.Part(replace(last, earlier=refits), models=models)
    return pl.Pipeline(parts={**pilots, **rounds, "rl": chosen})


def named(rounds: int) -> list[str]:
    """The models of so many runs with a chosen mixture."""
    return [f"round {i}" for i in range(rounds)]


def embedded(domains: int = 3, **options: Any) -> pl.Pipeline:
    """On the embedded problem: pilots and a last run of ten steps of eight prompts."""
    small = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=8, steps=10))
    made = build(domains=domains, recipe=small, **options)
    return pl.override(made, "rl.tasks", 96)
