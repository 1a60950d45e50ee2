"""What a method needs beside problems and a model, read off its recipe."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from palaestra import catalogue
from palaestra.abilities import CountsSamples
from palaestra.ledger.placements import placed
from palaestra.ledger.read_off import has
from palaestra.method import Recipe
from palaestra.types import value_class
from palaestra.values import walk

LABELS = (  # what is read beside the prompt, and the parts that read it
    ("preferences", ("rollout.recorded.Recorded", "credit.preferences", "credit.labelled")),
    ("demonstrations", ("rollout.recorded.Demonstrate", "rollout.recorded.Swap", "rollout.hints")),
)


@value_class
class MethodNeeds:
    """`samples`: answers sampled a step, "" where the recipe does not say; `labels`: what the data
    must hold beside the prompt.
    """

    critic: bool = False
    reference: bool = False
    graders: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    samples: str = ""


def needs_of(method: str) -> MethodNeeds:
    """Of a built method, all its parts together; how many answers it samples, of one recipe alone."""
    entry = catalogue.entry_of(method)
    built, rewards = catalogue.find(method).build(), placed(entry)["reward"].read
    parts = [built, *(part for _, part in walk(built))]
    recipes = [part for part in parts if isinstance(part, Recipe)]
    known = {"learned": "reward model", "judge": "judge"}
    labels = [name for name, rooms in LABELS if has(parts, rooms)]
    checked = ["answers"] if "verifiable" in rewards else []
    return MethodNeeds(
        critic=any("value" in x.heads for r in recipes for x in r.learners.values()),
        reference=any(r.references for r in recipes),
        graders=tuple(known[r] for r in rewards if r in known),
        labels=(*checked, *labels),
        samples=samples_of(recipes[0]) if len(recipes) == 1 else "",
    )


@value_class
class MethodCosts:
    """What a method costs beside a policy that samples and learns. `samples`: answers a step, ""
    where the recipe does not say; `models`: held beside the policy; `measured`: of every answer by
    a forward pass of its own, "model quantity"; `passes`: of the learner over what was sampled;
    `before`: answers that draws sample before the first step, "" = none.
    """

    samples: str
    models: tuple[str, ...]
    measured: tuple[str, ...]
    passes: str
    before: str = ""


@runtime_checkable
class ProbesTasks(Protocol):
    """A draw that attempts tasks before the first step."""

    @property
    def probes(self) -> str:
        """How many answers to how many tasks, for people; "" = none."""
        ...


def costs_of(built: Any) -> MethodCosts:
    """Of a built method, the parts of a pipeline together."""
    recipes = [p for p in (built, *(part for _, part in walk(built))) if isinstance(p, Recipe)]
    models = [m for r in recipes for m in (*r.references, *r.learners) if m != "policy"]
    signals = [f"{m} {q}" for r in recipes for x in r.learners.values() for m, q in x.needs]
    epochs = {getattr(x.update, "epochs", None) for r in recipes for x in r.learners.values()}
    known = sorted(n for n in epochs if isinstance(n, int))
    probes = [r.draw.probes for r in recipes if isinstance(r.draw, ProbesTasks)]
    return MethodCosts(
        samples=samples_of(recipes[0]) if len(recipes) == 1 else "",
        models=tuple(dict.fromkeys(models)),
        measured=tuple(dict.fromkeys(signals)),
        passes=f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}" if known else "",
        before=", ".join(filter(None, probes)),
    )


def costs_lines(costs: MethodCosts, base: MethodCosts) -> list[str]:
    """For a terminal, beside those of GRPO."""
    pairs = {
        "answers sampled a step": (costs.samples, base.samples),
        "models held beside the policy": (", ".join(costs.models), ", ".join(base.models)),
        "measured by further forward passes": (", ".join(costs.measured), ", ".join(base.measured)),
        "passes of the learner over them": (costs.passes, base.passes),
    }
    once = [f"answers sampled before the first step: {costs.before}"] if costs.before else []
    return once + [
        f"{what}: {own or '?' if 'answers' in what else own or 'none'} (grpo: {other or 'none'})"
        for what, (own, other) in pairs.items()
    ]


def samples_of(recipe: Recipe) -> str:
    """Answers a step: of the first stage that samples, to all that do; what is drawn anew or left
    out on a condition lies between.
    """
    stages = [part for _, part in walk(recipe.collect) if isinstance(part, CountsSamples)]
    counts, prompts = [part.n for part in stages], recipe.schedule.prompts
    if not counts or not all(isinstance(n, int) for n in (*counts, prompts)):
        return ""
    least, most = prompts * counts[0], prompts * sum(counts)
    return f"{least}" if least == most else f"{least} to {most}"


def as_cells(needs: MethodNeeds) -> tuple[str, ...]:
    """The cells of a table."""
    yes: dict[Any, str] = {True: "yes", False: ""}
    return (
        yes[needs.critic],
        yes[needs.reference],
        ", ".join(needs.graders),
        ", ".join(needs.labels),
        needs.samples,
    )
