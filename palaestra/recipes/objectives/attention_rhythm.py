"""Attention rhythm: more credit for the tokens where the model plans ahead, and for those it later
looks back to.

From the attention maps of middle layers (see `models.inside.attention`), with t a response token:

    WAAD_t   mean backward distance of the local heads, capped at 10; Delta_t = |WAAD_t - WAAD_{t+1}|, high where a chunk begins
    FAI_s    mean attention that the global heads pay to s from response tokens t with near <= t - s <= far: anchors

The advantage becomes gamma_t A_t where A_t >= 0; others keep theirs (arXiv:2510.13554). T_glob: the
top 40% by FAI.

    local    gamma = 1.5 on the top 40% by Delta
    global   gamma = 1.5 on T_glob
    coupled  an anchor t in T_glob is dominated (t in D) if WAAD_t <= tau_w and some Delta_u >= tau_D with t - k <= u < t;
             the largest such u introduced it. gamma = 1 + .5 [t in T_glob - D] + (1 - alpha) .5 [t in D] + alpha .5 [introduces]

tau_w and tau_D are not given: the answer's median of WAAD, and the least Delta of its top 40%. k =
3, alpha = 0.5. Shares are of each row's tokens, and a score of 0 never counts: answers shorter than
`near`, 10 by default, keep gamma = 1. Signals are measured before the update and carry no gradient.

The number "amplified" of a step is the mean of gamma - 1 over its tokens.
"""

import math
from typing import Any, Literal

import numpy as np

import palaestra as pl

Mode = Literal["local", "global", "coupled", "entropy", "random", "bottom"]
CARD = pl.Card(
    title="Attention illuminates reasoning: preplan-and-anchor credit assignment",
    paper="arXiv:2510.13554",
    claim="Amplifying the credit of planning and anchor tokens, found in attention maps, beats "
    "uniform credit.",
    source="paper; thresholds of the coupled form are a choice",
    size=pl.Size(
        setting="Qwen3-4B/8B base, countdown, CrossThink-QA, mathematics, 1k and longer contexts, "
        "batch 512 (prompts or answers, not known), 16 updates a batch, distances 10 to 50, lr "
        "1e-6, 600 steps",
        model="qwen3-8b",
        tokens=1024,
        lr=1e-6,
        arguments={"update.minibatches": 16},
    ),
    needs=pl.needs.Requirements(
        shows="amplified",
        off={"credit.links.2.amplify": 1.0},
        own={"near": 2, "far": 10, "schedule.prompts": 4},
    ),
    use="It is for answers of hundreds of tokens by a model that plans ahead; answers shorter than "
    "`near` tokens are left as GRPO has them.",
    lacks=(
        "The thresholds of the coupled form are not published; medians stand for them.",
        "The attention maps of all layers are held at once, so long answers of large models "
        "need much memory.",
    ),
    grade="A",
)


def top_share(score_N: np.ndarray, share: float) -> np.ndarray:
    """[N] bool: the ceil(share * N) highest scores, as far as they are above 0; ties in order."""
    k = math.ceil(share * len(score_N) - 1e-9)
    chosen_N = np.zeros(len(score_N), bool)
    chosen_N[np.argsort(-score_N, kind="stable")[:k]] = True
    return chosen_N & (score_N > 0)


def changes(waad_N: np.ndarray) -> np.ndarray:
    """[N] Delta; 0 at the last token."""
    return np.abs(np.diff(waad_N, append=waad_N[-1:]))


def coupled_gain(
    waad_N: np.ndarray, anchor_N: np.ndarray, share: float, alpha: float, k: int
) -> np.ndarray:
    """[N] what gamma - 1 is in units of the amplification."""
    delta_N = changes(waad_N)
    begins_N = top_share(delta_N, share)
    tau_w, tau_D = np.median(waad_N), delta_N[begins_N].min(initial=np.inf)
    dominated_N, intro_N = np.zeros(len(waad_N), bool), np.zeros(len(waad_N), bool)
    for t in np.flatnonzero(anchor_N):
        back = delta_N[max(t - k, 0) : t]
        if waad_N[t] <= tau_w and back.max(initial=-np.inf) >= tau_D:
            dominated_N[t] = True
            intro_N[max(t - k, 0) + int(back.argmax())] = True
    return (anchor_N & ~dominated_N) + (1 - alpha) * dominated_N + alpha * intro_N


@pl.stage
class Rhythm:
    """gamma_t A_t for A_t >= 0. Controls: the top by "entropy", a "random" share, and the "bottom"
    by FAI.
    """

    mode: Mode = "coupled"
    window: int = 10
    near: int = 10
    far: int = 50
    amplify: float = 1.5
    share: float = 0.4
    alpha: float = 0.5
    lookback: int = 3

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x, at = table.lift(x, "token"), table.tokens
        needed = {n: pl.credit.table_signal(table, f"policy_{n}") for n in signals(self)}
        extra_N = np.zeros(len(x.x_N))
        rows = np.unique(np.stack([at.episode_N, at.row_N], 1), axis=0).tolist()
        for e, r in rows:
            mine = np.flatnonzero((at.episode_N == e) & (at.row_N == r))
            ids = table.views[e][r].ids_T.tolist()
            extra_N[mine] = self._marks({n: v[mine] for n, v in needed.items()}, len(mine), ids)
        more_N = np.where(x.x_N >= 0, (self.amplify - 1) * extra_N, 0.0)
        table.track("amplified", pl.Values(level="token", x_N=more_N))
        return pl.Values(level="token", x_N=(1 + more_N) * x.x_N)

    def _marks(self, given: dict[str, np.ndarray], n: int, ids: list[int]) -> np.ndarray:
        if self.mode == "random":
            return top_share(pl.rng_of(("random tokens", *ids)).random(n), self.share)
        if self.mode == "entropy":
            return top_share(given["entropy"], self.share)
        waad_N, fai_N = (
            given.get(k, np.zeros(n))
            for k in (f"waad:{self.window}", f"fai:{self.near}:{self.far}")
        )
        if self.mode == "local":
            return top_share(changes(waad_N), self.share)
        if self.mode == "bottom":
            return top_share(fai_N.max() - fai_N, self.share)
        anchor_N = top_share(fai_N, self.share)
        return (
            anchor_N
            if self.mode == "global"
            else coupled_gain(waad_N, anchor_N, self.share, self.alpha, self.lookback)
        )


def signals(rhythm: Rhythm) -> tuple[str, ...]:
    """The quantities that a mode reads."""
    waad, fai = f"waad:{rhythm.window}", f"fai:{rhythm.near}:{rhythm.far}"
    table: dict[Mode, tuple[str, ...]] = {
        "local": (waad,), "global": (fai,), "bottom": (fai,), "coupled": (waad, fai),
        "entropy": ("entropy",), "random": (),
    }  # fmt: skip
    return table[rhythm.mode]


def build(mode: Mode = "coupled", near: int = 10, far: int = 50) -> pl.Recipe:
    rhythm = Rhythm(mode, near=near, far=far)
    needs = tuple(("policy", n) for n in signals(rhythm))
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("group"), pl.Scale("group"), rhythm),
        needs=needs,
    )


def embedded(near: int = 2, far: int = 10, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose answers have 10 to 50 tokens."""
    return build(near=near, far=far, **options)
