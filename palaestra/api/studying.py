"""Studies from settings to report: what `palaestra study` does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from palaestra import catalogue, values
from palaestra.api.training import check_files, stored_run, work
from palaestra.errors import UserError
from palaestra.run.setup import given_arguments, settings_for
from palaestra.run.study import Study, holds_out, study_of
from palaestra.settings import overrides
from palaestra.settings.fields import Settings, Use, setting_names
from palaestra.store.checkpoint import write_atomic
from palaestra.store.folder import SUMMARY, read_summary
from palaestra.studies.glance import charts_of, glance, in_order
from palaestra.studies.page import PAGE, REPORT, write_study
from palaestra.studies.report import StudyReport, StudyTable
from palaestra.studies.statements import plain_statements
from palaestra.studies.training import PROBLEM, run_of
from palaestra.suggest import suggestion_or_all
from palaestra.tasks.files import first_tasks

FAMILY, ALL = "analysis", "all"
EMBEDDED = {"problems": 64, "samples": 16, "best_of": 2}  # of a check-up that names nothing
PROBES, STATEMENTS = "sawmil", "statements.jsonl"  # the check-up's probes, and what they read


def studies() -> dict[str, Study]:
    """The studies that are built, by name, as they are without arguments."""
    built = [e.id for e in catalogue.all_entries() if e.family == FAMILY and e.built] + [
        *catalogue.CHECKS
    ]
    made = {name: catalogue.recipe(name) for name in built}
    return {name: x for name, x in made.items() if isinstance(x, Study)}


def asked_study(settings: Settings) -> Study:
    """The study that settings name. Raises UserError for a method that is no study."""
    study = study_of(overrides.recipe_of(settings))
    if study is None:
        hint = suggestion_or_all(settings.recipe, studies())
        raise UserError(f"{settings.recipe} is no study{hint}")
    return study


def make_study(settings: Settings, out: Path, *, talk: bool = True) -> Path:
    """Runs a study in a folder, or goes on with it there. Of data all rows are measured, unless
    `test_data` names others or the study trains; see `with_its_problem` for none. Returns the folder
    of its page.

    Raises:
        UserError: the folder holds something else.
    """
    study = asked_study(settings)
    if not holds_out(study) and (settings.data or study.check_up):
        settings = with_its_problem(settings)
    settings = replace(settings, evaluate=0)  # `test_data` says by now what is measured
    if (out / "config.toml").is_file():
        stored = stored_run(out)
        check_same(settings, stored, out)
        check_files(out, stored, {}, accept=False)
        if not (out / SUMMARY).is_file():
            work(stored, resume=out, talk=talk, split=True)
    else:
        work(settings, out=out, talk=talk, split=True)
    return Path(read_summary(out)["artifacts"]["study"]).parent


def with_its_problem(settings: Settings) -> Settings:
    """With a problem: of data that are named all rows, unless `test_data` names others. Where no problem
    is named, that of the training run whose checkpoint the model is, with what that run held out.
    """
    if settings.data:
        return replace(settings, test_data=settings.test_data or settings.data)
    run = run_of(settings.model)
    if run is None or named_problem(settings):
        return settings
    stored = stored_run(run)
    names = [n for n in (*setting_names(Use.PROBLEM), "tools") if not getattr(settings, n)]
    return replace(settings, **{n: getattr(stored, n) for n in names})


def check_same(asked: Settings, stored: Settings, out: Path) -> None:
    """Raises UserError where a folder holds a study of something else."""
    if asked.recipe == stored.recipe:
        asked = settings_for(overrides.recipe_of(asked), asked)
    new, old = _plain(asked), _plain(stored)
    # arguments that the method's embedded problem sets
    own = {*given_arguments(asked)} - {*asked.set} if stored.embedded else set[str]()
    for name, value in new.items():
        if value != old[name] and name not in own:
            raise UserError(
                f"--out {out} holds another study: its {name} is {old[name]!r}, not {value!r}; name "
                "another folder"
            )


def _plain(settings: Settings) -> dict[str, Any]:
    """What a study depends on, by name, with the arguments of the study among it."""
    named = {f.name: settings.meant(f.name) for f in fields(Settings) if f.name != "set"}
    return {n: x for n, x in named.items() if n != "embedded"} | given_arguments(settings)


def read_report(folder: Path) -> dict[str, Any]:
    """The report of a study as plain data."""
    return json.loads((folder / REPORT).read_text(encoding="utf-8"))


def check_up(settings: Settings, out: Path, *, talk: bool = True) -> dict[str, Path]:
    """All studies that need a model, its start and problems alone, each in a folder of its own below
    `out`, and a page that tells the answer of each. Returns the folders by name. Where nothing is named,
    the built-in model is trained first, for a minute, and looked at.
    """
    wanted = in_order(name for name, study in studies().items() if study.check_up)
    takes = {name: {*overrides.arguments(name)} for name in [*wanted, PROBES]}
    takes[ALL] = {"probes"}  # whether there are any
    if idle := [k for k in settings.set if not any(k in x for x in takes.values())]:
        raise UserError(f"no study of the check-up takes {idle[0]!r}")
    if not (
        settings.set.get("base") or settings.model != Settings.model or named_problem(settings)
    ):
        settings = train_embedded(settings, out, talk=talk)
    check_answers(settings)
    folders: dict[str, Path] = {}
    for name in wanted:
        own = {k: x for k, x in settings.set.items() if k in takes[name]}
        folders[name] = make_study(replace(settings, recipe=name, set=own), out / name, talk=talk)
    if values.parse(settings.set.get("probes", True), bool, "probes"):
        folders[PROBES] = make_study(probing(settings, out, takes[PROBES]), out / PROBES, talk=talk)
    write_study(
        out, summarise({n: read_report(f) for n, f in folders.items()}, settings, out, folders)
    )
    return folders


def check_answers(settings: Settings) -> None:
    """Raises UserError before a model is loaded where nothing says which replies are right: rows without an
    answer, such as pairs, and no reward.
    """
    asked = with_its_problem(settings)
    if not asked.data or asked.reward or asked.env or asked.agent or asked.docs or asked.graph:
        return
    (first,) = first_tasks(asked.data, 1, asked.columns, asked.skip_bad)
    if first.answer is not None:
        return
    data = shlex.quote(asked.data)
    pairs = (
        f", or, where the chosen reply is the right answer itself, --data {data} --columns chosen=answer"
        if "chosen" in first.meta
        else ""
    )
    raise UserError(
        f"the rows of {asked.data} have no answer, and the check-up asks which replies are right; name "
        "problems with answers (--data PROBLEMS.jsonl, or a built-in --task), or what judges a reply "
        f"(--reward){pairs}"
    )


def named_problem(settings: Settings) -> bool:
    """Whether settings say what is measured."""
    return any(getattr(settings, n) for n in (*PROBLEM, "test_data", "docs", "graph"))


def train_embedded(settings: Settings, out: Path, *, talk: bool = True) -> Settings:
    """Of a check-up without a model: the built-in one after 40 steps of GRPO on sums to reach."""
    place = out / "trained"
    if not (place / SUMMARY).is_file():
        asked = replace(settings, recipe="grpo", task="count", set={}, steps=40, evaluate=0)
        if (place / "config.toml").is_file():
            work(stored_run(place), resume=place, talk=talk)
        else:
            work(asked, out=place, talk=talk)
    model = str(read_summary(place)["artifacts"]["policy"])
    return replace(settings, model=model, set={**EMBEDDED, **settings.set})


def probing(settings: Settings, out: Path, takes: Collection[str]) -> Settings:
    """Of the check-up's probes: statements that come with the package, which are written into its folder."""
    file = out / STATEMENTS
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(file, "".join(json.dumps(row) + "\n" for row in plain_statements()))
    nothing: dict[str, Any] = {
        n: ""
        for n in (*setting_names(Use.PROBLEM), "tools")
        if isinstance(getattr(settings, n), str)
    }
    own = {"penalty": 1.0} | {k: x for k, x in settings.set.items() if k in takes}
    return replace(settings, **nothing | {"data": str(file)}, recipe=PROBES, set=own)


def summarise(
    reports: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    out: Path,
    folders: Mapping[str, Path],
) -> StudyReport:
    """One page of several studies: what they looked at, the first finding of each, their tables, and where
    the rest stands.
    """
    # the probes read statements of their own
    every = [r["protocol"] for name, r in reports.items() if name != PROBES]
    alike = (
        {k: x for k, x in every[0].items() if all(p.get(k) == x for p in every)} if every else {}
    )
    differences = lambda protocol: " · ".join(x for k, x in protocol.items() if alike.get(k) != x)
    rows = [
        (name, report["question"], " ".join(report["findings"][1:]))
        for name, report in reports.items()
    ]
    return StudyReport(
        study="check-up",
        question=f"What did training do to {settings.model}?",
        findings=[report["findings"][0] for report in reports.values()],
        numbers={},
        protocol=alike | {n: differences(r["protocol"]) for n, r in reports.items()},
        tables=[
            glance(reports),
            StudyTable("Study by study", ("study", "question", "more"), rows),
            *(
                StudyTable(f"{t['title']} ({name})", t["columns"], t["rows"], t["note"])
                for name, report in reports.items()
                for t in report["tables"]
            ),
        ],
        charts=[chart for report in reports.values() for chart in charts_of(report)],
        pages={n: str((f / PAGE).relative_to(out)) for n, f in folders.items()},
    )
