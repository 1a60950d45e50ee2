"""The arms of a comparison: the same learner without a guide, with it, with the same guidance of other
situations, and with an oracle's, in one report.

Every arm is measured by what the simulator pays, beside what the arm was rewarded for: a policy that
earns more and more of a written reward may do worse and worse.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from palaestra.control.shaping import Shaping
from palaestra.control.simulators import Acting, Paths, Simulator, play_games, returns_of
from palaestra.stats import standard_error
from palaestra.types import Key, Meter

# gives plain numbers, see `measure_arm`, "env_steps", and "curve", the lines of its training
ArmRun: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
REPORT = "arms.md"  # in the run folder
Z = 1.96  # normal quantile of a 95% interval
COLUMNS = ("return", "error", "learned_from", "agreement", "env_steps", "asked", "fallbacks")


@runtime_checkable
class ShowsTask(Protocol):
    """A simulator with a script that solves it: for demonstrations, and an oracle's arm."""

    def demonstrate(self, obs: np.ndarray) -> np.ndarray:
        """[n, A] or [n, A, D] actions in observations [n, A, O]."""
        ...


def acting_script(sim: Any) -> Acting:
    """Plays as the script of a simulator that `ShowsTask` does."""
    return lambda obs, legal, rng: {"act": sim.demonstrate(obs)}


class ArmContext(Protocol):
    """What of a run a comparison needs."""

    @property
    def out(self) -> Any: ...
    def log(self, metrics: Mapping[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...
    async def once(self, name: str, runnable: Callable[[], Any]) -> Any: ...


@runtime_checkable
class MetersClients(Protocol):
    """A run that counts what its chat models were asked for."""

    def meters(self) -> Mapping[str, Meter]:
        """By the name of a client."""
        ...


def measure_arm(
    sim: Simulator, act: Acting, shaping: Shaping, games: int, key: Key
) -> tuple[dict[str, float], Paths]:
    """Plays games of a test, and what they say of an arm.

    "return" is what the simulator paid for a game, all agents and steps together, "error" its
    standard error, "learned_from" what the arm's rewards are for the same games, and "agreement" the
    correlation of both over games; 0 where one is the same in all.
    """
    paths = play_games(sim, act, games, (*key, "test"))
    true, given = returns_of(paths), (shaping(paths) * paths["alive"][:, None]).sum((1, 2))
    varies = np.ptp(true) > 1e-9 and np.ptp(given) > 1e-9
    return {
        "return": float(true.mean()),
        "error": standard_error(true),
        "learned_from": float(given.mean()),
        "agreement": float(np.corrcoef(true, given)[0, 1]) if varies else 0.0,
    }, paths


async def compare_arms(ctx: ArmContext, arms: Mapping[str, ArmRun]) -> dict[str, dict[str, Any]]:
    """Runs the arms one after another, each of them once however often the run is resumed.

    Lines of an arm's "curve" go to the log with its name in front. In the run folder arms.md says
    whether the guide helped, has the table of all, and what the chat models were asked for. Says
    so where an arm that was rewarded for something else is paid less, by the simulator, the more its own rewards are.
    """
    results: dict[str, dict[str, Any]] = {}
    for name, run in arms.items():
        ctx.say(f"arm {name}")
        result = dict(await ctx.once(f"arm-{name.replace(' ', '-')}", run))
        for line in result.pop("curve", ()):
            ctx.log({"arm": name, **line})
        results[name] = result
        if result.get("agreement", 0.0) < 0:
            ctx.say(
                f"arm {name}: the higher its own reward, the lower what the simulator pays "
                f"(correlation {result['agreement']:.2f}); the policy may exploit the reward"
            )
    verdict = guide_verdict(results)
    if verdict:
        ctx.say(verdict)
    if ctx.out is not None:
        asked = asked_lines(ctx.meters()) if isinstance(ctx, MetersClients) else []
        lines = [*([verdict, ""] if verdict else []), *arm_table(results), *asked]
        (ctx.out / REPORT).write_text("\n".join(lines) + "\n")
    return results


def asked_lines(meters: Mapping[str, Meter]) -> list[str]:
    """A sentence for each chat model that was asked: calls, tokens, and the cost where it has prices."""
    lines = list[str]()
    for name, m in meters.items():
        if m.calls or m.cached:
            cost = f", which cost {m.cost:.4g} by its prices" if m.cost else ""
            text = f"{name}: {m.calls:,} calls ({m.tokens:,} tokens{cost})"
            lines += ["", f"{text}; replies that were there already: {m.cached:,}."]
    return lines


def guide_verdict(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the arm "guide" was paid more than "none", and than "shuffled" where there is one, in a
    sentence or two; "" = there are no such arms. A difference counts where its 95% interval over test
    games leaves out 0; that is of one training, and says nothing of other seeds.
    """
    if not all("return" in results.get(arm, {}) for arm in ("none", "guide")):
        return ""
    guide = results["guide"]

    def ahead(other: str) -> tuple[float, float]:
        """Difference of the mean returns, and half the width of its interval."""
        errors = (x.get("error", 0.0) for x in (guide, results[other]))
        return guide["return"] - results[other]["return"], Z * math.hypot(*errors)

    gain, half = ahead("none")
    if not gain and not half:
        return (
            f"Every test game of the arm without the guide and of the one with it was paid {guide['return']:.4g}, so this run "
            "says nothing of the guide: train for more steps, or take an easier task."
        )
    paid = f"({guide['return']:.4g} a test game against {results['none']['return']:.4g})"
    if abs(gain) <= half:
        text = f"The guide neither helped nor harmed, as far as these test games show {paid}."
    elif gain < 0:
        text = f"The guide harmed {paid}."
    elif "return" in results.get("shuffled", {}) and ahead("shuffled")[0] <= ahead("shuffled")[1]:
        text = f"The arm with the guide was paid more {paid}, but what the guide says is not shown to be the reason: "
        text += (
            f"the same guidance of other situations was paid {results['shuffled']['return']:.4g}."
        )
    else:
        text = f"The guide helped {paid}."
    steps = [results[arm].get("env_steps", 0) for arm in ("guide", "none")]
    if min(steps) < 0.9 * max(steps):
        text += f" It trained for {steps[0]:,} environment steps and the other for {steps[1]:,}; a search counts."
    return f"{text} This is one training with one seed: run other seeds before you conclude."


def arm_summary(results: Mapping[str, Mapping[str, Any]], guided: str = "guide") -> dict[str, Any]:
    """What a run's summary begins with: the true return of the guided arm, what it gains over no
    guide, and the return of each other arm as "return_ARM"; then all numbers, by arm.
    """
    others = {
        f"return_{name.replace(' ', '_')}": r["return"]
        for name, r in results.items()
        if name != guided
    }
    own = results[guided]["return"]
    return {"return": own, "gain": own - results["none"]["return"], **others, "arms": dict(results)}


def arm_table(results: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """The arms as a table in Markdown, each with the numbers that it has."""
    names = [c for c in COLUMNS if any(c in r for r in results.values())]
    names += sorted({k for r in results.values() for k in r} - set(names))
    cell = lambda x: f"{x:.4g}" if isinstance(x, float) else str(x)
    rows = [
        f"| {arm} | " + " | ".join(cell(r.get(n, "")) for n in names) + " |"
        for arm, r in results.items()
    ]
    return [
        "| arm | " + " | ".join(names) + " |",
        "| --- " * (len(names) + 1) + "|",
        *rows,
    ]
