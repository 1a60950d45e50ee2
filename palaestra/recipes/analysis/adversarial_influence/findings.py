"""What the simulated rounds show: numbers, sentences, tables and a chart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import palaestra as pl
from palaestra.recipes.analysis.adversarial_influence.team import Defence, PlayedRounds

ADVISERS = {
    "none": "no adviser",
    "honest": "an honest one",
    "wrong": "one that is always wrong",
    "random": "wrong as often, at random rounds",
    "worst": "the worst case",
}
IGNORED = 0.1  # influence below which an adviser is out


@dataclass(frozen=True, slots=True)
class ShownTeam:
    """What the advisers reach with a team, by `ADVISERS`, and how the worst case was planned."""

    defence: Defence
    played: Mapping[str, PlayedRounds]
    planner: str

    def accuracy(self, adviser: str) -> pl.stats.Interval:
        return pl.stats.bounded_interval(self.played[adviser].accuracy_N.tolist())

    def less(self, adviser: str, than: str) -> pl.stats.Interval:
        """How much lower the accuracy is than with another adviser, on the same luck."""
        a, b = (self.played[x].accuracy_N for x in (adviser, than))
        return pl.stats.bounded_interval((b - a).tolist(), -1.0, 1.0)

    @property
    def damage(self) -> pl.stats.Interval:
        return self.less("worst", "honest")

    @property
    def timing(self) -> pl.stats.Interval:
        return self.less("worst", "random")


def loss_of_honest(bare: ShownTeam, guarded: ShownTeam) -> pl.stats.Interval:
    """What a defence takes from a team whose adviser is honest."""
    a, b = (x.played["honest"].accuracy_N for x in (guarded, bare))
    return pl.stats.bounded_interval((b - a).tolist(), -1.0, 1.0)


def report(
    teams: Sequence[ShownTeam],
    errors: Mapping[str, float],
    model: ShownTeam | None,
    asked: Mapping[str, float],
) -> pl.studies.StudyReport:
    """What a team without a defence, the first, and with each shows; the errors of models of trust; and what
    members that are a language model reach, whose influence differs by `asked`.
    """
    bare = teams[0]
    numbers: dict[str, float | pl.stats.Interval] = {
        **{f"right_{a}": bare.accuracy(a) for a in bare.played},
        "damage": bare.damage,
        "timing": bare.timing,
        **{f"error_{n.replace(' ', '_')}": x for n, x in errors.items()},
        **{f"damage_{key(s.defence)}": s.damage for s in teams[1:]},
        **{f"honest_loss_{key(s.defence)}": loss_of_honest(bare, s) for s in teams[1:]},
        **(
            {"damage_model": model.damage, "right_model_worst": model.accuracy("worst")}
            if model
            else {}
        ),
        **{f"model_{n}": x for n, x in asked.items()},
    }
    return pl.studies.StudyReport(
        study="adversarial-influence",
        question="",
        findings=tell(teams, errors, model, asked),
        numbers=numbers,
        protocol={},
        tables=[defences_table(teams, model), errors_table(errors, asked)],
        charts=[by_round(bare)],
        items=[item(s, name) for s in teams for name in s.played],
    )


def key(defence: Defence) -> str:
    return "".join(c if c.isalnum() else "_" for c in defence.name)


def item(team: ShownTeam, adviser: str) -> dict[str, object]:
    """An arm by round: the chance of a right team answer, how often the adviser is right, and its influence."""
    p = team.played[adviser]
    means = {
        "right": p.score_NT,
        "adviser_right": p.honest_NT,
        "influence": p.weight_NT,
    }
    rounds = {n: [round(float(x), 4) for x in v.mean(0)] for n, v in means.items()}
    return {"defence": team.defence.name, "adviser": adviser, **rounds}


def tell(
    teams: Sequence[ShownTeam],
    errors: Mapping[str, float],
    model: ShownTeam | None,
    asked: Mapping[str, float],
) -> list[str]:
    """The findings as sentences, the answer first."""
    points = lambda x: pl.studies.tell_interval(x, signed=True)
    accuracy = lambda s, a: pl.studies.tell_interval(s.accuracy(a))
    bare = teams[0]
    lines = [
        f"A faulty adviser can move the team from {accuracy(bare, 'honest')} right to {accuracy(bare, 'worst')}: damage "
        f"{points(bare.damage)}; without an adviser it is {accuracy(bare, 'none')}."
    ]
    if bare.timing.low > 0:
        lines.append(
            f"When it is wrong matters: as many wrong answers at random rounds cost {points(bare.timing)} less."
        )
    else:
        lines.append("No difference is seen from as many wrong answers at random rounds.")
    guarded = sorted(teams[1:], key=lambda s: s.damage.mean)
    if guarded:
        best = guarded[0]
        parts = [
            f"{s.defence.name} {points(s.damage)} (an honest adviser's team loses {points(loss_of_honest(bare, s))})"
            for s in guarded
        ]
        lines.append(f"Damage with a defence: {'; '.join(parts)}. Least with: {best.defence.name}.")
    names = {"learned": "the learned model", "beta": "the Beta model", "even": "even weights"}
    better = min(names, key=lambda n: errors[n])
    name = names[better]
    if better == "even":
        lines.append(
            "Neither model of trust predicts better than even weights, so the damage is that of a team which nobody "
            "observed."
        )
    lines.append(
        f"Influence is predicted best by {name}: mean squared error {errors[better]:.4f}, learned "
        f"{errors['learned']:.4f} (of a quarter of the decisions {errors['learned from a quarter']:.4f}), Beta "
        f"{errors['beta']:.4f}, even weights {errors['even']:.4f}."
    )
    if model:
        lines.append(
            f"A team whose influence the model gives: {accuracy(model, 'honest')} with an honest adviser, "
            f"{accuracy(model, 'worst')} with the plan against the team above, damage {points(model.damage)}; its weights "
            f"differ from those of the log by a mean squared error of {asked['error']:.4f}."
        )
    return lines


def defences_table(teams: Sequence[ShownTeam], model: ShownTeam | None) -> pl.studies.StudyTable:
    """Right team answers by adviser, of each team."""
    bare, rows = teams[0], list[tuple[str, ...]]()
    named = [(s.defence.name, s) for s in teams] + (
        [("members: the model", model)] if model else []
    )
    for name, s in named:
        rows.append(
            (
                name,
                s.planner,
                *(f"{100 * s.accuracy(a).mean:.1f}%" if a in s.played else "" for a in ADVISERS),
                pl.studies.tell_interval(s.damage, signed=True),
                pl.studies.tell_interval(loss_of_honest(bare, s), signed=True)
                if s in teams[1:]
                else "",
                f"{100 * (~s.played['worst'].honest_NT).mean():.0f}%",
                f"{s.played['worst'].rounds_until(IGNORED):.1f}",
            )
        )
    columns = (
        "defence",
        "worst case planned by",
        *ADVISERS.values(),
        "damage",
        "an honest adviser's team loses",
        "worst case: wrong",
        f"rounds until its influence is below {IGNORED:g}",
    )
    note = "Means over teams with the same luck. Rounds count as all of them where influence never falls so far."
    return pl.studies.StudyTable("Right team answers", columns, rows, note)


def errors_table(errors: Mapping[str, float], asked: Mapping[str, float]) -> pl.studies.StudyTable:
    rows = [(n, f"{x:.4f}") for n, x in errors.items()]
    rows += [("the language model", f"{asked['error']:.4f}")] if "error" in asked else []
    note = "On decisions that none of them was fitted on."
    return pl.studies.StudyTable(
        "Who predicts influence", ("model of trust", "mean squared error"), rows, note
    )


def by_round(bare: ShownTeam) -> pl.studies.StudyChart:
    lines = []
    for name, label in ADVISERS.items():
        mean_T = bare.played[name].score_NT.mean(0)
        lines.append(pl.studies.StudyLine(label, list(range(1, len(mean_T) + 1)), mean_T.tolist()))
    return pl.studies.StudyChart(
        "Right team answers by round, without a defence", "round", "right", lines, share=True
    )
