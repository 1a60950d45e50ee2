"""Demonstration-regularised RL in tables that are solved exactly: what the paper's theorem is about.

    pi_BC_h(a|s) = (n_h(s, a) + kappa) / (n_h(s) + kappa A)
    max_pi  V^pi(s_1) - lambda E_pi sum_h KL(pi_h(.|s_h) | pi_BC_h(.|s_h))
    Q_h(s, a) = r_h(s, a) + E V_{h+1}(s'),    V_h(s) = lambda log sum_a pi_BC_h(a|s) exp(Q_h(s, a) / lambda)
    pi_h(a|s) ~ pi_BC_h(a|s) exp(Q_h(s, a) / lambda)

(arXiv:2310.17303; the backup is that of any KL-regularised problem.) lambda = epsilon N_E / (S A H)
times `strength`: a clone of N_E demonstrations is about S A H / N_E nats from its expert, so staying
near it costs about epsilon. An unknown table is explored with upper and lower values: those of the model
so far, with a bonus for what was seen little. Episodes follow the policy of the upper values, except at
one step each, where they take the action whose two values are farthest apart. They end once the policy
is known to be worth less than the optimum by epsilon at most (`step_gap`). The paper's claim is that the
number of episodes falls as 1 / N_E.

`soft_values` is exact, so it says where every KL to a reference ends, as a loss or in the reward: the
tests compare `pl.KL`, `pl.credit.LessKL`, `pl.Gae` and `pl.DPO` with it.

Edges: without demonstrations lambda is 0 and the clone uniform, which gives the plain maximum. In a
state that no demonstration visits the clone is uniform. kappa > 0 gives every action a probability,
without which the KL is infinite.

Deviations: the bonus is Bernstein's with one constant of ours, since those of the proof explore long
after a policy is good. The gap of a step is the exact worst case within the two values; the quadratic
bound of the proof is never below it. Episodes are played in batches of a fiftieth of those before, each
with the plan of its begin.
"""

from typing import Literal

import numpy as np

import palaestra as pl


@pl.value_class
class TabularMDP:
    """A table of H steps from state 0. Rewards lie in [0, 1]."""

    reward_HSA: np.ndarray
    next_HSAS: np.ndarray  # probabilities of the next state

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, S and A."""
        h, s, a = self.reward_HSA.shape
        return h, s, a


@pl.value_class
class SoftSolution:
    """Of a KL-regularised problem."""

    policy_HSA: np.ndarray
    q_HSA: np.ndarray
    v_HS: np.ndarray


def draw_mdp(key: pl.Key, states: int, actions: int, horizon: int, branches: int) -> TabularMDP:
    """A random table: each action of a state at a step leads to `branches` states, and one in four
    pays, something in [0, 1].
    """
    rng = pl.rng_of(key)
    shape = (horizon, states, actions)
    pays = rng.random(shape) < 0.25
    next_HSAS = np.zeros((*shape, states))
    for at in np.ndindex(shape):
        to = rng.choice(states, branches, replace=False)
        next_HSAS[at][to] = rng.dirichlet(np.ones(branches))
    return TabularMDP(reward_HSA=rng.random(shape) * pays, next_HSAS=next_HSAS)


def clone(counts_HSA: np.ndarray, kappa: float = 1.0) -> np.ndarray:
    """[H, S, A] the smoothed likeliest policy of demonstrations: pi_BC."""
    pl.check_bounds("kappa", kappa, above=0)
    total_HS = counts_HSA.sum(-1, keepdims=True)
    return (counts_HSA + kappa) / (total_HS + kappa * counts_HSA.shape[-1])


def soft_backup(
    q_SA: np.ndarray, prior_SA: np.ndarray, weight: float
) -> tuple[np.ndarray, np.ndarray]:
    """The policy [S, A] and the value [S] of one step: the maximum over pi of pi Q - weight KL(pi |
    prior). Weight 0 is the plain maximum, the first action of several.
    """
    best_S = q_SA.max(-1)
    if weight == 0:
        return np.eye(q_SA.shape[-1])[q_SA.argmax(-1)], best_S
    tilted_SA = prior_SA * np.exp((q_SA - best_S[:, None]) / weight)
    sum_S = tilted_SA.sum(-1)
    return tilted_SA / sum_S[:, None], best_S + weight * np.log(sum_S)


def soft_values(mdp: TabularMDP, prior_HSA: np.ndarray, weight: float) -> SoftSolution:
    """The exact optimum of V - weight KL(pi | prior) over whole trajectories."""
    h, s, a = mdp.shape
    policy, q, v = np.zeros((h, s, a)), np.zeros((h, s, a)), np.zeros((h + 1, s))
    for t in reversed(range(h)):
        q[t] = mdp.reward_HSA[t] + mdp.next_HSAS[t] @ v[t + 1]
        policy[t], v[t] = soft_backup(q[t], prior_HSA[t], weight)
    return SoftSolution(policy_HSA=policy, q_HSA=q, v_HS=v[:h])


def value(mdp: TabularMDP, policy_HSA: np.ndarray) -> float:
    """Of state 0: the mean sum of rewards."""
    v_S = np.zeros(mdp.shape[1])
    for t in reversed(range(mdp.shape[0])):
        v_S = (policy_HSA[t] * (mdp.reward_HSA[t] + mdp.next_HSAS[t] @ v_S)).sum(-1)
    return float(v_S[0])


def trajectory_kl(mdp: TabularMDP, policy_HSA: np.ndarray, prior_HSA: np.ndarray) -> float:
    """E_pi sum_h KL(pi_h | prior_h), in nats an episode."""
    safe = np.where(policy_HSA > 0, policy_HSA, 1.0)
    kl_HSA = np.where(policy_HSA > 0, np.log(safe / prior_HSA), 0.0)
    return value(TabularMDP(reward_HSA=kl_HSA, next_HSAS=mdp.next_HSAS), policy_HSA)


def play(
    mdp: TabularMDP, policies_KHSA: np.ndarray, which_N: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """States [N, H + 1] and actions [N, H] of N episodes, each by one of K policies."""
    h, n = mdp.shape[0], len(which_N)
    state_NH, action_NH = np.zeros((n, h + 1), int), np.zeros((n, h), int)
    for t in range(h):
        action_NH[:, t] = draw_rows(policies_KHSA[which_N, t, state_NH[:, t]], rng)
        state_NH[:, t + 1] = draw_rows(mdp.next_HSAS[t, state_NH[:, t], action_NH[:, t]], rng)
    return state_NH, action_NH


def draw_rows(p_NK: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[N] a number for each row of probabilities."""
    upto_NK = p_NK.cumsum(-1)
    return (upto_NK <= rng.random((len(p_NK), 1)) * upto_NK[:, -1:]).sum(-1)


def arrivals_of(mdp: TabularMDP, state_NH: np.ndarray, action_NH: np.ndarray) -> np.ndarray:
    """[H, S, A, S] how often which state came after which action."""
    h, s, a = mdp.shape
    counts = np.zeros((h, s, a, s))
    steps = np.broadcast_to(np.arange(h), action_NH.shape)
    np.add.at(counts, (steps, state_NH[:, :-1], action_NH, state_NH[:, 1:]), 1)
    return counts


@pl.value_class
class TableStep:
    """What episodes have shown of one step, with bounds on what follows from values [S] behind it."""

    reward_SA: np.ndarray
    next_SAS: np.ndarray
    visits_SA: np.ndarray
    left: float  # the most that can still be paid
    bonus: float

    def doubt(self, v_S: np.ndarray) -> np.ndarray:
        """[S, A] bonus (sd(v) sqrt(2 / n) + left / n)."""
        n_SA = np.maximum(self.visits_SA, 1)
        var_SA = np.maximum(self.next_SAS @ v_S**2 - (self.next_SAS @ v_S) ** 2, 0)
        return self.bonus * (np.sqrt(2 * var_SA / n_SA) + self.left / n_SA)

    def most(self, v_S: np.ndarray, paid: bool = True) -> np.ndarray:
        """[S, A] an upper bound, with or without what the step pays."""
        x_SA = self.reward_SA * paid + self.next_SAS @ v_S + self.doubt(v_S)
        return np.where(self.visits_SA > 0, np.minimum(x_SA, self.left), self.left)

    def least(self, v_S: np.ndarray) -> np.ndarray:
        """[S, A] a lower bound."""
        x_SA = self.reward_SA + self.next_SAS @ v_S - self.doubt(v_S)
        return np.where(self.visits_SA > 0, np.maximum(x_SA, 0), 0)


@pl.value_class
class TablePlan:
    """What follows from the episodes so far."""

    upper_HSA: np.ndarray  # of the upper values
    widest_HSA: np.ndarray  # the action whose two values are farthest apart
    gap: float  # how much less than the optimum of the regularised problem it can be worth at most


@pl.stage
class DemonstrationRegularised:
    """A program: a random table, its expert, a clone of each number of `demonstrations`, and the
    episodes until the policy is known to be `epsilon`-optimal in the regularised problem.

    Its summary has by number of demonstrations: "episodes" ("most" of them where they were not
    enough), "first", after how many the policy was in truth that good, "missing", the share of the
    optimal value that it lacks in the end, "clone", what the clone lacks, and "enough", whether that
    is within epsilon; and what `summary_of` makes of them.

    Args:
        expert: whose demonstrations; "nobody" acts at random, a placebo.
        strength: of lambda.
        epsilon: a share of the optimal value.
        most: episodes; 0 = none are played.
    """

    expert: Literal["optimal", "nobody"] = "optimal"
    demonstrations: tuple[int, ...] = (0, 25, 100, 400, 1600)
    strength: float = 1.0
    bonus: float = 1.0
    epsilon: float = 0.005
    kappa: float = 1.0
    states: int = 10
    actions: int = 3
    horizon: int = 5
    branches: int = 3
    most: int = 1_000_000

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("demonstrations", ctx.seed)
        mdp = draw_mdp(key, self.states, self.actions, self.horizon, self.branches)
        uniform = np.full(mdp.shape, 1 / self.actions)
        best = soft_values(mdp, uniform, 0.0)
        expert = best.policy_HSA if self.expert == "optimal" else uniform
        by_count: dict[str, dict[str, float]] = {}
        for n in self.demonstrations:
            rng = pl.rng_of((*key, n))
            visits = arrivals_of(mdp, *play(mdp, expert[None], np.zeros(n, int), rng)).sum(-1)
            prior = clone(visits, self.kappa)
            by_count[str(n)] = self.learn(mdp, prior, n, float(best.v_HS[0, 0]), rng)
            ctx.log({"demonstrations": n, **by_count[str(n)]})
        steps = int(sum(x["episodes"] for x in by_count.values())) * self.horizon
        ctx.spend("env_steps", steps)
        metrics = {
            "optimum": float(best.v_HS[0, 0]),
            "by_demonstrations": by_count,
            "env_steps": steps,
        }
        return pl.Result(metrics={**metrics, **summary_of(by_count), "sampled_tokens": 0})

    def learn(
        self, mdp: TabularMDP, prior: np.ndarray, n: int, optimum: float, rng: np.random.Generator
    ) -> dict[str, float]:
        """Plays until the gap is known to be `epsilon`, in shares of the optimum; the episodes until
        then, and until the policy of the upper values first was as good as that.
        """
        h, s, a = mdp.shape
        weight = self.strength * self.epsilon * optimum * n / (s * a * h)
        arrivals, played, first = np.zeros((h, s, a, s)), 0, float(self.most)
        while True:
            made = self.plan(mdp, arrivals, prior, weight)
            missing = 1 - value(mdp, made.upper_HSA) / optimum
            first = min(first, played) if missing <= self.epsilon else first
            if made.gap <= self.epsilon * optimum or played >= self.most:
                break
            batch = min(max(1, played // 50), self.most - played)
            arrivals += arrivals_of(mdp, *play(mdp, *explorers(made, batch, rng), rng))
            played += batch
        cloned = 1 - value(mdp, prior) / optimum
        return {"episodes": float(played), "first": first, "missing": missing, "clone": cloned,
                "lambda": weight, "gap": made.gap / optimum, "enough": float(cloned <= self.epsilon)}  # fmt: skip

    def plan(
        self, mdp: TabularMDP, arrivals_HSAS: np.ndarray, prior_HSA: np.ndarray, weight: float
    ) -> TablePlan:
        h, s, a = mdp.shape
        visits = arrivals_HSAS.sum(-1)
        n, unseen = np.maximum(visits, 1), visits == 0
        p = arrivals_HSAS / n[..., None]  # of what was never seen nothing is read
        reward = np.where(unseen, 0.0, mdp.reward_HSA)
        upper, widest = (np.zeros((h, s, a)) for _ in range(2))
        high, low, own, gap = (np.zeros(s) for _ in range(4))  # own: the lower value of the plan
        for t in reversed(range(h)):
            known = TableStep(
                reward_SA=reward[t],
                next_SAS=p[t],
                visits_SA=visits[t],
                left=h - t,
                bonus=self.bonus,
            )
            up, down, kept = known.most(high), known.least(low), known.least(own)
            upper[t], high = soft_backup(up, prior_HSA[t], weight)
            _, low = soft_backup(down, prior_HSA[t], weight)
            widest[t] = np.eye(a)[(up - down).argmax(-1)]
            own = high - (upper[t] * (up - kept)).sum(-1)  # the KL is the same in both
            later = (upper[t] * known.most(gap, paid=False)).sum(-1)
            gap = np.minimum(step_gap(upper[t], up - down, weight) + later, high - own)
        return TablePlan(upper_HSA=upper, widest_HSA=widest, gap=float(gap[0]))


def step_gap(policy_SA: np.ndarray, width_SA: np.ndarray, weight: float) -> np.ndarray:
    """[S] the most that the policy of the upper values can lose in one step where the true values
    lie `width` or less below them.

    With F(Q) = weight log sum_a prior exp(Q / weight) that is F(Q) - F(upper) - policy (Q - upper),
    convex in Q, so largest where each action has its lower or its upper value; at most max_a
    width^2 / (2 weight). Weight 0 has the limit: the loss of a maximum.
    """
    n = policy_SA.shape[-1]
    found_S = np.zeros(len(policy_SA))
    for lower_A in np.array(list(np.ndindex(*[2] * n)), bool):
        less_SA = width_SA * lower_A
        mean_S = (policy_SA * less_SA).sum(-1)
        if weight == 0:
            found_S = np.maximum(found_S, mean_S)
            continue
        least_S = np.where(policy_SA > 0, less_SA, np.inf).min(
            -1
        )  # what never happens loses nothing
        beyond_SA = np.maximum(less_SA - least_S[:, None], 0)
        left_S = (policy_SA * np.exp(-beyond_SA / weight)).sum(-1)
        found_S = np.maximum(found_S, weight * np.log(left_S) - least_S + mean_S)
    return found_S


def explorers(plan: TablePlan, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """H policies, each that of the upper values but for the widest gap at one step; and which of
    them plays each of `n` episodes.
    """
    h = len(plan.upper_HSA)
    policies = np.repeat(plan.upper_HSA[None], h, 0)
    policies[range(h), range(h)] = plan.widest_HSA
    return policies, rng.integers(h, size=n)


def summary_of(by_count: dict[str, dict[str, float]]) -> dict[str, float]:
    """The log-log slope of the episodes over the numbers of demonstrations above 0 whose clone is
    not good enough by itself ("slope"; NaN for fewer than two); the powers of ten by which the most
    of these save episodes, those of finding and of knowing the policy ("saved", "saved_first"), and
    what the policy lacks there ("missing").
    """
    some = [(int(n), x) for n, x in by_count.items() if int(n) and not x["enough"]]
    plain = by_count.get("0")
    if not some or plain is None:
        return {k: float("nan") for k in ("slope", "saved", "saved_first", "missing")}
    n_N = np.log10([n for n, _ in some])
    y_N = np.log10([max(1.0, x["episodes"]) for _, x in some])
    last = some[-1][1]
    less = lambda name: float(np.log10(max(1.0, plain[name]) / max(1.0, last[name])))
    slope = float(np.polyfit(n_N, y_N, 1)[0]) if len(some) > 1 else float("nan")
    metrics = {"saved": less("episodes"), "saved_first": less("first"), "missing": last["missing"]}
    return {"slope": slope, **metrics}
