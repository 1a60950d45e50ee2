"""An audit of tests: which of them does a candidate pass that solves nothing?

One such test in a suite is often right (`assert f([]) == []`); a suite of nothing else pays for
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from palaestra.abilities import ProbesTests
from palaestra.errors import UserError
from palaestra.types import Task, value_class

NAMED = 20  # tests that a finding names


@value_class
class VacuousTest:
    """A test that candidates pass which solve nothing."""

    id: str
    test: str
    passed_by: tuple[str, ...]


@value_class
class TestsAudit:
    """What was found. `solved` counts, by candidate, the problems of which it passes every test."""

    __test__ = False  # no class of pytest's

    reward: str
    problems: int
    tests: int
    vacuous: tuple[VacuousTest, ...]
    solved: Mapping[str, int]
    findings: tuple[str, ...]
    data: tuple[str, ...] = ()


def audit_tests(
    name: str,
    judge: ProbesTests,
    tasks: Sequence[Task],
    say: Callable[[str], None],
    data: Sequence[str] = (),
) -> TestsAudit:
    """Runs the candidates of `judge` against every test of every task.

    Args:
        name: of the reward, for the report.
        judge: the reward, which runs its tests.
        tasks: problems with tests.
        say: hears the name of each problem.
        data: what was seen in the data that they come from.

    Raises:
        UserError: there are no tasks, or one's tests are no tests.
        Fault: the tests can't be run here.
    """
    if not tasks:
        raise UserError(f"audit {name}: no problems; give a file with at least one")
    vacuous, solved, n = list[VacuousTest](), Counter[str](), 0
    whole = list[str]()
    for task in tasks:
        say(task.id)
        passes = judge.null_passes(task)
        n += len(passes)
        vacuous += [VacuousTest(id=task.id, test=t, passed_by=by) for t, by in passes if by]
        through = set.intersection(*(set(by) for _, by in passes)) if passes else set[str]()
        solved.update(sorted(through))
        whole += [task.id] if through else []
    return TestsAudit(
        reward=name,
        problems=len(tasks),
        tests=n,
        vacuous=tuple(vacuous),
        solved=dict(solved),
        findings=tuple(list_null_findings(vacuous, solved, whole, len(tasks), n)),
        data=tuple(data),
    )


def list_null_findings(
    vacuous: Sequence[VacuousTest],
    solved: Mapping[str, int],
    whole: Sequence[str],
    problems: int,
    n: int,
) -> list[str]:
    """The findings, worst first, a line each."""
    findings = list[str]()
    if whole:
        by = ", ".join(f"{k} ({v})" for k, v in sorted(solved.items(), key=lambda x: -x[1]))
        findings.append(
            f"{len(whole)} of {problems} problems are solved by a candidate that solves nothing: "
            f"{by}; e.g. {whole[0]!r}"
        )
    if vacuous:
        findings.append(f"{len(vacuous)} of {n} tests are passed by one")
        findings += [
            f"{v.id}: {' '.join(v.test.split())[:60]!r} is passed by one that "
            f"{', '.join(v.passed_by)}"
            for v in vacuous[:NAMED]
        ]
    return findings
