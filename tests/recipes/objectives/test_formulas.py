"""What `build()` returns, credit and objective together, on one batch: every method's loss and its slopes.

Each formula stands here a second time, in numpy, as the catalogue's entry or the recipe's docstring has it: from rewards and
log-probs to the loss. Slopes are central differences of the formula; what is detached reads the constants of the batch.
"""

from math import ceil, comb
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.recipes.objectives import (
    agro,
    apo,
    asymre,
    attention_rhythm,
    capo,
    carft,
    cola,
    confucius3,
    dr_grpo,
    effective_rank,
    egsw,
    g2rl,
    gigpo,
    high_entropy_tokens,
    igpo,
    kimi_k1_5,
    lite_ppo,
    loop,
    nsr,
    oreo,
    pav,
    rapo,
    rec,
    rover,
    spa_rl,
    srpo_gream,
    steer,
    stratified_grpo,
    tba,
    tempo,
)
from palaestra.recipes.objectives import embodied_planner_r1 as planner
from palaestra.recipes.objectives import incorrect_synthetic_data as isd
from palaestra.schedule import resolve
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.update import pack

from tests.rows import every

# ---- the batch: eight answers (rows) to two prompts, fourteen tokens, by row and token

R = np.array([1.0, 0, 0, 0, 0, 1, 0, 1])
G = np.array([0] * 5 + [1] * 3)  # the prompt of each row
TURNS = [[1, 1], [2, 1], [1], [1, 1], [1], [2], [1], [1, 1]]  # tokens of each turn
LENGTH = np.array([sum(t) for t in TURNS])
ROW = np.repeat(np.arange(8), LENGTH)
LAST = np.cumsum(LENGTH) - 1  # the last token of each row
TURN = np.array([k for turns in TURNS for k, n in enumerate(turns) for _ in range(n)])  # the turn of each token
ENDS = np.append(np.flatnonzero(np.diff(10 * ROW + TURN)), 13)  # the last token of each turn
OF_TURN = np.repeat(np.arange(len(ENDS)), np.diff(ENDS, prepend=-1))  # the turn of each token, counted over all rows
WORDS = ([1, 2], [1, 2, 3], [4], [1, 5], [1], [1, 2], [1], [3, 1])
# log rho: right answers on both sides of 1.1, 1.2, 1.28 and below 1 - .6; wrong ones of .8, .909, 1 + 2, and the dual clip's 10
RATIO = np.array([0.22, 0.3, -0.15, 2.5, 1.2, -0.3, 0.02, -0.05, 0.1, -1.2, 0.08, -0.12, 0.05, 0.14])
wave = lambda k, n=14: np.sin(k * np.arange(1.0, n + 1))
OLD = -1 + 0.3 * wave(1)
OUT = {
    "logp": OLD + RATIO,
    "entropy": 1 + 0.5 * wave(3),
    "value": 0.5 * wave(4),
    "vocab_mean_logp": -3 + 0.2 * wave(6),
    "progress": 0.4 * wave(8),
    "latent-16": 2 + wave(9),
    "embedding": np.stack([wave(2, 8), wave(3, 8)], 1),
}
SIGNALS = {  # measured before the update
    "policy_logp": OLD - 0.02,
    "policy_entropy": 1 + 0.4 * wave(3),
    "policy_value": OUT["value"] + 0.3 * wave(5),
    "policy_vocab_mean_logp": -3 + 0.2 * wave(7),
    "policy_waad:10": np.array([0.9, 0.1, 0, 0, 0, 0, 0, 0, 0, 0.1, 0.9, 0, 0.5, 0.4]),
    "policy_fai:2:10": np.array([0.1, 0.5, 0, 0, 0, 0, 0, 0, 0, 0.1, 0.5, 0, 0.5, 0.1]),
    "policy_prefix_rank:1": np.array([1.0, 2, 1, 2, 4, 1, 1, 3, 1, 1, 1.5, 1, 1, 2.5]),
    "ref_logp": OLD + RATIO - 0.4 * wave(2),
    "ref_power_logp": OLD + RATIO - 0.3 * wave(11),
    "critic_value": 0.5 + 0.4 * wave(10),
    "estimator_progress": 0.5 * wave(12),
    "policy_head_gradient": np.stack([1 + wave(1, 8), wave(4, 8)], 1),
    "policy_embedding": np.zeros((8, 2)),  # of the policy's own rows: not read
}
ANNOTATION = np.array([[1.0, 0.3], [-0.2, 1.0]])  # by prompt
FACTS = {
    "states": (("s", "a"), ("s", "b"), ("s",), ("s", "a"), ("s",), ("t",), ("t",), ("t", "t")),
    "executed": ((True, True), (True, False), (True,), (False, True), (True,), (True,), (True,), (True, True)),
    "gold_prob": ((0.1, 0.3), (0.2, 0.15), (0.1,), (0.4, 0.2), (0.3,), (0.5,), (0.2,), (0.1, 0.6)),
    "prefix_values": ((0.1, 0.2, 1.0), (0.5, 0.2, 0.4), (0.1, 0), (0.1, 0.3, 0), (0.1, 0), (0.5, 1), (0.5, 0), (0.5, 0.75, 1)),
    "critiques": ([[0], [0], [], []], [[1], [1], [1], []], [[0]] * 4, [[0], [1], [0], [0, 1]], [[]] * 4, [[]] * 4, [[0]] * 4,
                  [[]] * 4),
    "stratum": (1, 1, 1, 2, 2, 1, 1, 2),
}  # fmt: skip
RANKS = {"effective_rank": {"rank": 1.2, "velocity": 0.6, "acceleration": 0.4}, "batches": 1}


def row_of(i):
    said, start = [Segment(ids=(0,))], LAST[i] + 1 - LENGTH[i]
    for k, n in enumerate(TURNS[i]):
        at = start - LAST[i] - 1 + LENGTH[i]
        more = {"policy": "policy", "author": "policy", "trained": True, "turn": k}
        said.append(Segment(ids=tuple(WORDS[i][at : at + n]), logp=tuple(OLD[start : start + n]), **more))
        start += n
    return Row(segments=tuple(said))


def credited(learner):
    """The examples of the learner's own credit, and which row of the batch each of them is."""
    rows, groups, signals = [row_of(i) for i in range(8)], [], []
    note = Row(segments=(Segment(ids=(0,)), Segment(ids=(9,), author=carft.ANNOTATION, trained=True)))
    noted = ("policy", "embedding") in learner.needs
    for g in (0, 1):
        mine, episodes, found = np.flatnonzero(g == G), [], []
        for i in mine:
            facts = {name: values[i] for name, values in FACTS.items()}
            both = (rows[i], note) if noted else (rows[i],)
            episodes.append(Episode(rows=both, reward=Reward(total=R[i]), status="finished", facts=facts))
            one = {}
            for name in (f"{m}_{q}" for m, q in learner.needs):
                x = SIGNALS[name]
                one[name] = x[[i]] if x.ndim == 2 else np.append(0.0, x[i == ROW])
            found.append([one, {"policy_embedding": ANNOTATION[[g]]}] if noted else [one])
        groups.append(Group(task=Task(id=str(g)), episodes=tuple(episodes)))
        signals.append(found)
    number = {id(r): i for i, r in enumerate(rows)}
    examples, _ = learner.credit(groups, signals, dict(RANKS))
    return examples, [number[id(e.row)] for e in examples]


def evaluated(learner):
    """The loss, and its slope to everything the model puts out, by token of the batch (by row for features)."""
    examples, place = credited(learner)
    batch = pack(examples, dtype=torch.float64)
    given = {name: torch.tensor(OUT[name], requires_grad=True) for name in learner.objective.needs}

    def laid(x):
        if x.dim() == 2:
            return x[place][:, None]
        return torch.stack(
            [torch.nn.functional.pad(x[i == ROW], (1, batch["ids"].shape[1] - 1 - LENGTH[i])) for i in place]
        )

    loss, _ = learner.objective({name: laid(x) for name, x in given.items()}, batch)
    grads = torch.autograd.grad(loss, list(given.values()), allow_unused=True, materialize_grads=True)
    return loss.item(), {name: g.numpy() for name, g in zip(given, grads, strict=True)}


def slopes(formula, name, h=1e-6):
    """Central differences of a formula to one of the outputs."""
    found = np.zeros_like(OUT[name])
    for i in np.ndindex(found.shape):
        sides = []
        for sign in (1, -1):
            x = OUT[name].copy()
            x[i] += sign * h
            sides.append(formula(SimpleNamespace(**{**OUT, name: x})))
        found[i] = (sides[0] - sides[1]) / (2 * h)
    return found


# ---- numpy for the formulas below: x is what the model puts out, G and ROW say who is compared

REF, H, N = SIGNALS["ref_logp"], SIGNALS["policy_entropy"], 14
base = SimpleNamespace(**OUT)
mean = lambda x, key: (np.bincount(key, x) / np.bincount(key))[key]
std = lambda x, key, ddof=1: np.sqrt(np.bincount(key, (x - mean(x, key)) ** 2) / (np.bincount(key) - ddof))[key]
z = lambda x, key, ddof=1: (x - mean(x, key)) / (std(x, key, ddof) + 1e-6)
rho = lambda x, old=OLD: np.exp(x.logp - old)
clip = lambda r, A, low=0.2, high=0.2: np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
rows = lambda y: (np.bincount(ROW, y) / LENGTH).mean()  # mean of each row, mean of those
total = lambda y: np.bincount(ROW, y)
ratio = lambda x: x.logp - REF
k3 = lambda x: np.exp(-ratio(x)) + ratio(x) - 1
A_GRPO = z(R, G)[ROW]
by_turn = lambda values: np.array([v for row in values for v in row])
GROUP_OF_TURN, ROW_OF_TURN = G[ROW[ENDS]], ROW[ENDS]
PAID = np.where(np.isin(ENDS, LAST), R[ROW_OF_TURN], 0.0)  # the outcome, at the last turn


def gae(reward, value, lam=0.95):
    """gamma 1: A_t = delta_t + lam A_{t+1} within a row."""
    out = np.zeros(N)
    for t in reversed(range(N)):
        more = t not in LAST
        out[t] = reward[t] + more * value[(t + 1) % N] - value[t] + more * lam * out[(t + 1) % N]
    return out


def critic_loss(x, advantage):
    old = SIGNALS["policy_value"]
    near = old + np.clip(x.value - old, -0.2, 0.2)
    target = advantage + old
    return np.maximum((x.value - target) ** 2, (near - target) ** 2).mean() / 2


def sums_from(y, gamma=1.0):
    """sum_{k >= t} gamma^(k - t) y_k over turns of the same row."""
    same = ROW_OF_TURN[:, None] == ROW_OF_TURN
    k = np.arange(len(y))
    return (np.where(same & (k >= k[:, None]), gamma ** np.maximum(k - k[:, None], 0), 0.0) * y).sum(1)


# ---- the formulas

CASES = {}


def of(name, recipe, learner="policy", step=250):
    return lambda formula: CASES.setdefault(name, (resolve(recipe.learners[learner], step), formula)) and formula


def residuals(x, beta, reference, centred=True):
    h = total(x.logp - reference)
    d = R - beta * h
    return d - mean(d, G) if centred else R - mean(R, G) - beta * h


by_prompt = lambda y: np.mean([y[g == G].mean() for g in (0, 1)])  # prompts weigh the same


@of("agro", agro.build())
def _(x, beta=0.1):
    return by_prompt(residuals(x, beta, REF) ** 2) / 2


@of("agro, on-policy", agro.build(on_policy=True))
def _(x):
    score = total(x.logp) - total(base.logp)  # the derivative of the sampling distribution
    return by_prompt(residuals(x, 0.1, REF) ** 2 + residuals(base, 0.1, REF) ** 2 * score) / 2


@of("tba", tba.build())
def _(x, beta=0.008):  # half way from .012 to .004
    z_i = -total(x.logp - REF) + R / beta
    return by_prompt((mean(z_i, G) - z_i) ** 2)


@of("kimi-k1.5", kimi_k1_5.build(length=0.0))
def _(x, tau=0.1):
    return by_prompt(residuals(x, tau, OLD, centred=False) ** 2) / (2 * tau)


@of("apo", apo.build())
def _(x):
    A = (R - mean(R, G)) / (std(R, G) + 1e-9)
    easy = mean(R, G)  # d = 1 - easy
    k = np.where(A > 0, 1 - np.exp(-np.e * easy), 1.0)
    longest = np.maximum(LENGTH - np.array([2.0] * 8), 0) * (R == 0)  # right answers have two tokens
    A = A * (2 - 1.00001**-longest)
    return -rows(clip(rho(x), A[ROW])) + 1e-3 * rows(k[ROW] * k3(x))


@of("asymre", asymre.build())
def _(x):
    return -((R - (mean(R, G) - 0.1))[ROW] * x.logp).mean()


@of("attention-rhythm", attention_rhythm.build(near=2, far=10))
def _(x):
    """Row 0: an anchor after a change of WAAD shares with it; row 5: it stands alone; row 7: it begins the answer."""
    gamma = np.ones(N)
    gamma[[0, 1, 10, 12]] = 1.25, 1.25, 1.5, 1.5
    return -rows(clip(rho(x), gamma * A_GRPO))


def critics(also=()):
    """Wrong are the second step of row 1, the first of row 3, and rows 2 and 6, which have one step."""
    wrong = np.zeros(N)
    wrong[[4, 5, 6, 11, *also]] = 1
    return lambda x: -rows(clip(rho(x), z(2 * R[ROW] - wrong, G[ROW], ddof=0)))


of("capo", capo.build())(critics())
of("capo, half", capo.build(vote="half"))(critics(also=(0, 7)))  # two of four votes


@of("carft", carft.build())
def _(x, tau=0.2):
    reward = np.where(np.isin(np.arange(N), LAST), R[ROW], 0) - 0.05 * (OLD - REF)
    advantage = gae(reward, SIGNALS["policy_value"])
    A = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-6)
    unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)
    cosine = unit(ANNOTATION[G]) @ unit(x.embedding).T / tau
    contrast = -(np.diag(cosine) - np.log(np.exp(cosine).sum(1)))
    return -rows(clip(rho(x), A)) + 0.1 * critic_loss(x, advantage) + contrast[R == 1].mean()


@of("spa-rl", spa_rl.build())
def _(x):
    c, executed = SIGNALS["estimator_progress"][ENDS], by_turn(FACTS["executed"]) | np.isin(ENDS, LAST)
    reward = np.zeros(N)
    reward[ENDS] = 1.0 * c + 0.5 * executed
    advantage = gae(reward, SIGNALS["policy_value"])
    A = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-6)
    return -clip(rho(x), A).mean() + 0.5 * critic_loss(x, advantage)


@of("spa-rl, estimator", spa_rl.build(), "estimator")
def _(x):
    return ((np.bincount(ROW_OF_TURN, x.progress[ENDS]) - R) ** 2).mean()


@of("cola", cola.build())
def _(x):
    return -rows(clip(rho(x), A_GRPO))


@of("cola, construct", cola.build(), step=14)
def _(x):
    return getattr(x, "latent-16").mean()


@of("confucius3", confucius3.build())
def _(x):
    outcome = 2 * R - 1
    mu = mean(outcome, G)
    A = (outcome - mu) * (-0.256 * mu + 1.256)
    return -clip(rho(x, SIGNALS["policy_logp"]), A[ROW], high=0.28).sum() / (64 * 8)


@of("confucius3, phase 1", confucius3.build(phase=1))
def _(x):
    return -rows(clip(rho(x), A_GRPO)) + 0.001 * abs(x.entropy.mean() - 0.55)


@of("dr-grpo", dr_grpo.build())
def _(x):
    return -clip(rho(x), (R - mean(R, G))[ROW]).sum() / (64 * 8)


@of("effective-rank", effective_rank.build(stride=1, kl=0.05))
def _(x):
    found = []
    for i in range(8):
        m = SIGNALS["policy_prefix_rank:1"][i == ROW]
        v = [m[k] - m[:k].mean() for k in range(1, len(m))]
        found.append((m[-1], np.mean(v) if v else 0.0, np.diff(v).mean() if len(v) > 1 else 0.0))
    er, erv, era = ((np.array(f) - mu) / mu for f, mu in zip(zip(*found, strict=True), (1.2, 0.6, 0.4), strict=True))
    er, erv, era = (np.clip(dev, -5, 5) for dev in (er, erv, era))
    b = 1 / (1 + np.exp(-2 * era))
    phi = np.maximum(b * np.tanh(er) + (1 - b) * np.tanh(erv), 0)
    A = z(R, G)
    A = A + np.minimum(phi, abs(A) / 2)
    return -rows(clip(rho(x), A[ROW])) + 0.05 * rows(k3(x))


@of("egsw", egsw.build(kl=0.05))
def _(x):
    A, entropy = z(R, G), np.bincount(ROW, H) / LENGTH
    raw = np.exp((A + 0.3 * entropy) / 1.0)
    w = raw / mean(raw, G)  # G softmax
    return -rows((w[ROW]) * clip(rho(x), A_GRPO)) + 0.05 * rows(k3(x))


@of("embodied-planner-r1", planner.build())
def _(x):
    return -clip(rho(x), A_GRPO).mean() + 0.001 * k3(x).mean() - 0.001 * x.entropy.mean()


@of("g2rl", g2rl.build())
def _(x):
    f, r = SIGNALS["policy_head_gradient"], 2 * R - 1
    shaped = np.zeros(8)
    for i in range(8):
        others = [j for j in range(8) if G[j] == G[i] and j != i]
        weight = np.exp(r[others]) / np.exp(r[others]).sum()
        cosine = f[others] @ f[i] / np.linalg.norm(f[others], axis=1) / np.linalg.norm(f[i])
        shaped[i] = max(1 - (weight * cosine**2).sum(), 0)
    for g in (0, 1):
        nu = shaped[g == G]
        shaped[g == G] = r[g == G] * (1 + 1.0 * (2 * (nu - nu.min()) / np.ptp(nu) - 1))
    return -rows(clip(rho(x), z(np.clip(shaped, -3, 3), G)[ROW]))


@of("gigpo", gigpo.build(kl=0.05))
def _(x):
    steps = sums_from(PAID, 0.95) - 0.1 * ~by_turn(FACTS["executed"])
    scope = np.unique(
        [f"{g}{s}" for g, s in zip(GROUP_OF_TURN, by_turn(FACTS["states"]), strict=True)], return_inverse=True
    )[1]
    A = (R - mean(R, G))[ROW_OF_TURN] + 1.0 * (steps - mean(steps, scope))
    return -clip(rho(x), A[OF_TURN]).mean() + 0.05 * k3(x).mean()  # fmt: skip


def dual(r, A, c=10.0):
    gain = clip(r, A, 0.2, 0.28)
    return np.where(A < 0, np.maximum(gain, c * A), gain)


@of("high-entropy-tokens", high_entropy_tokens.build())
def _(x):
    kept = np.argsort(-base.entropy)[: ceil(0.2 * N)]
    return -dual(rho(x), A_GRPO)[kept].sum() / N


@of("steer", steer.build())
def _(x):
    p, old = np.exp(base.logp), np.exp(OLD)
    m = abs(
        A_GRPO
        / old
        * np.clip(p, 1e-8, 1 - 1e-8)
        * (1 - np.clip(p, 1e-8, 1 - 1e-8))
        * (np.log(np.clip(p, 1e-8, 1 - 1e-8)) + base.entropy)
    )
    w = 1.2 - (m - m.min()) * (1.2 - 0.8) / np.ptp(m)
    return -(w * dual(rho(x), A_GRPO)).mean()  # fmt: skip


@of("igpo", igpo.build())
def _(x):
    """Turns before the last earn the rise of p, the last the outcome; one pool of a prompt (ddof 0)."""
    gain = np.diff(np.append(by_turn(FACTS["gold_prob"]), 0))
    reward = np.where(np.isin(ENDS, LAST), PAID, gain)
    A = sums_from(z(reward, GROUP_OF_TURN, ddof=0))
    return -rows(clip(rho(x), A[OF_TURN]))


@of("incorrect-synthetic-data", isd.build())
def _(x):
    """Wrong rows 1 to 4 against row 0, and 6 against 5. The pit of row 1 is its first step: its last token is cut off."""
    kept = np.ones(N)
    kept[4] = 0
    h, loss = total(kept * ratio(x)), 0.0
    for right, wrong in ((0, 1), (0, 2), (0, 3), (0, 4), (5, 6)):
        loss += np.log1p(np.exp(-0.1 * (h[right] - h[wrong]))) / 5
    return loss


@of("lite-ppo", lite_ppo.build())
def _(x):
    return -clip(rho(x), ((R - mean(R, G)) / (R.std(ddof=1) + 1e-6))[ROW]).mean()


others = lambda: ((R - mean(R, G)) * np.bincount(G)[G] / (np.bincount(G)[G] - 1))[ROW]


@of("loop", loop.build())
def _(x):
    return -rows(clip(rho(x), others(), 1 - 1 / 1.1, 0.1))


@of("loop, turn", loop.build("turn"))
def _(x):
    product = np.exp(np.bincount(OF_TURN, x.logp - OLD))[OF_TURN]
    return -rows(clip(product, others(), 1 - 1 / 1.1, 0.1))


@of("nsr", nsr.build())
def _(x):
    wrong = R[ROW] == 0
    return -clip(rho(x), -1.0)[wrong].mean()


@of("w-reinforce", nsr.build(positive=0.1))
def _(x):
    return -clip(rho(x), np.where(R[ROW] == 1, 0.1, -1.0)).mean()


later = lambda l: np.array([l[(ROW[t] == ROW) & (np.arange(N) > t)].sum() for t in range(N)])


@of("oreo", oreo.build())
def _(x):
    delta = SIGNALS["critic_value"] - R[ROW] + 0.03 * ratio(x) + 0.03 * later(ratio(base))
    return (delta**2).mean() + 0.01 * (ratio(x) ** 2 / 2).mean()


@of("oreo, critic", oreo.build(), "critic")
def _(x):
    l = SIGNALS["policy_logp"] - REF
    return ((x.value - R[ROW] + 0.03 * (l + later(l))) ** 2).mean()


@of("pav", pav.build(kl=0.05))
def _(x):
    best = [1 - (1 - np.array(v)) ** 4 for v in FACTS["prefix_values"]]
    A = (R - mean(R, G))[ROW] + 3.0 * np.array([best[i][k + 1] - best[i][k] for i, k in zip(ROW, TURN, strict=True)])
    return -rows(A * x.logp) + 0.05 * rows(k3(x))


@of("rapo", rapo.build())
def _(x):
    q = np.exp(SIGNALS["ref_power_logp"] - x.logp)
    return -rows(clip(rho(x), A_GRPO)) + 0.01 * rows(q * np.log(q) - q + 1) - 1e-3 * x.entropy.mean()


def recs(high=0.2, weighted=False, ring=False):
    A, r = (R - mean(R, G))[ROW], rho(base)
    inside = (r >= 0.8) & (r <= 1 + high)
    kept = np.where(A > 0, r <= 1 + high, r >= 0.8)
    if ring:
        kept = inside | np.where(A > 0, r <= 1 - 0.6, r >= 1 + 2.0)
    return lambda x: -(A * kept * (r if weighted else 1) * x.logp).mean()


of("rec", rec.build())(recs())
of("rec, high .3", rec.build(high=0.3))(recs(0.3))
of("rec, ring with IS", rec.build("ring", weighted=True))(recs(ring=True, weighted=True))


@of("opmd", rec.build("all", tau=1.0))
def _(x):
    return -((R - mean(R, G))[ROW] * x.logp).mean() / 2


@of("rover", rover.build())
def _(x):
    up = base.vocab_mean_logp - SIGNALS["policy_vocab_mean_logp"]
    y = (R - mean(R, G))[ROW] + np.where(np.isin(np.arange(N), LAST), 0, np.roll(up, -1))
    return ((x.logp - OLD - y) ** 2).mean()


@of("srpo-gream", srpo_gream.build(kl=0.05))
def _(x):
    """Prompt 0: one hit of five, k 4: rho = 1 - C(4, 4) / C(5, 4) = .8. Prompt 1 has fewer than four misses."""
    p = 1 - comb(4, 4) / comb(5, 4)
    sigma = (p * (1 - p)) ** 0.5 + 1e-6
    miss = (1 - p - comb(3, 3) / comb(4, 3)) / sigma
    bonus = np.array([(1 - p) / sigma, *[miss] * 4, 0, 0, 0])
    return -clip(rho(x), (z(R, G) + bonus)[ROW]).mean() + 0.05 * k3(x).mean()


@of("stratified-grpo", stratified_grpo.build())
def _(x):
    """Strata of row 0 to 2 (1 0 0), 3 and 4 (equal), 5 and 6 (1 0), 7 (alone)."""
    within = np.array([*z(R[:3], np.zeros(3, int)), 0, 0, *z(R[5:7], np.zeros(2, int)), 0])
    return -rows(clip(rho(x), 0.8 * within[ROW] + 0.2 * A_GRPO))


@of("tempo", tempo.build())
def _(x):
    r, A = z(R, G), np.zeros(N)
    V = lambda g, prefix: np.mean([r[i] for i in range(8) if G[i] == g and WORDS[i][: len(prefix)] == prefix])
    for t in range(N):
        i = ROW[t]
        k = t - (LAST[i] + 1 - LENGTH[i])
        A[t] = r[i] + V(G[i], WORDS[i][: k + 1]) - V(G[i], WORDS[i][:k])
    return -clip(rho(x), A, high=0.28).mean()


@every("name", CASES)
def test_built_recipe_is_its_formula(name):
    learner, formula = CASES[name]
    loss, grads = evaluated(learner)
    assert loss == pytest.approx(formula(base), rel=1e-6)
    for output, found in grads.items():
        assert found.ravel() == pytest.approx(slopes(formula, output).ravel(), rel=1e-6, abs=1e-8), output
    assert any(np.abs(g).max() > 1e-6 for g in grads.values())
