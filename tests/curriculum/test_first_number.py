"""Where a bench says that a run draws from: every draw of an endless source begins there, and at 0 where it says
nothing.
"""

import ast
import asyncio
import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import palaestra
import pytest
from palaestra.claims.curricula import Later
from palaestra.claims.data.logics_stem import DrawSkewed
from palaestra.curriculum.arms import Bandit, arms_of, first_number
from palaestra.curriculum.difficulty import EasyToHard, ProbedArms
from palaestra.curriculum.knowledge import KnowledgeBoundary
from palaestra.curriculum.pool import Shuffled
from palaestra.curriculum.prioritised import Prioritised
from palaestra.curriculum.respelled import Respelled
from palaestra.privacy.lines import Poisson
from palaestra.recipes.data.guru import FilteredDomain
from palaestra.recipes.data.internbootcamp import SomeFamilies
from palaestra.recipes.data.logics_stem import FailureDriven
from palaestra.recipes.data.modomodo import Shares
from palaestra.recipes.data.sws import WeaknessDriven
from palaestra.recipes.domains.fleming_r1.mining import FailureMix
from palaestra.recipes.games.multi_agent_evolve import References
from palaestra.recipes.multimodal.ui_r1 import FewScreens
from palaestra.recipes.rewards.deeptheorem import OfAnswer
from palaestra.rollout.collect import Sample
from palaestra.tasks.mixture import Mixture, part_task

ONE, TWO = "add(d=2)", "add(d=2)+knights(d=2)"
FAR = 100 << 20  # of seed 100
# name of a case: the draw, the task, and the numbers of two draws of two tasks at 0; None = by chance
CASES = {
    "Shuffled": (Shuffled(), ONE, [0, 1, 2, 3]),
    "Later": (Later(first=0), ONE, [0, 1, 2, 3]),
    "References": (References(), ONE, [0, 1, 2, 3]),
    "Respelled": (Respelled(), ONE, [0, 1, 2, 3]),
    "Bandit": (Bandit(), TWO, None),
    "Bandit, one arm": (Bandit(), ONE, [0, 1, 2, 3]),
    "Shares": (Shares((1.0, 0.0)), TWO, [0, 1, 2, 3]),
    "DrawSkewed": (DrawSkewed((1.0, 0.0)), TWO, [0, 1, 2, 3]),
    "ProbedArms": (ProbedArms(every=1, tasks=2, sample=Sample(n=1)), ONE, [2, 3, 6, 7]),
    "ProbedArms, two": (ProbedArms(every=1, tasks=2, sample=Sample(n=1)), TWO, None),
    "EasyToHard": (EasyToHard(4, 1, difficulty=lambda t: 0.0), ONE, [0, 1, 2, 3]),
    "EasyToHard, probed": (EasyToHard(4, 2, probe=Sample(n=1)), ONE, [0, 1, 2, 3]),
    "Poisson": (Poisson(lines=4), ONE, None),
    "Prioritised": (Prioritised(problems=4), ONE, None),
    "FilteredDomain": (FilteredDomain("add(d=2)"), TWO, [0, 1, 2, 3]),
    "FilteredDomain, filtered": (
        FilteredDomain(candidates=3, hard=-1.0, weak="policy", strong="policy", sample=Sample(n=1)),
        ONE,
        [0, 1, 2, 0],
    ),
    "SomeFamilies": (SomeFamilies(families=1, most=1), TWO, None),
    "OfAnswer": (OfAnswer(tuple(map(str, range(99)))), ONE, None),
    "FewScreens": (FewScreens(4, "first", 4), ONE, None),
    "FewScreens, hard": (FewScreens(4, "hard", 4), ONE, None),
    "WeaknessDriven": (WeaknessDriven(seeds=2, epochs=1, written=2, weigh="even"), TWO, None),
    "FailureMix": (FailureMix(samples=1, failed=0, problems=4), ONE, None),
    "FailureDriven": (FailureDriven(queries=2, attempts=1, written=4, corpus=4), TWO, None),
}


def ended(ctx, first):
    """The context with another first number; answers end at once, so that none is right."""
    ctx.bench = replace(ctx.bench, first_drawn=first, max_tokens=1)
    return ctx


def drawn(draw, ctx, times=2):
    found, state = [], {"rates": {}}
    for i in range(times):
        given = draw(ctx, ("draw", i), 2, state)
        tasks, state = asyncio.run(given) if inspect.isawaitable(given) else given
        found += tasks
    return found


def numbers(tasks):
    return [int(t.id.rsplit("/", 1)[1]) for t in tasks]


@pytest.mark.parametrize("case", CASES)
def test_a_draw_begins_where_the_bench_says(context, case):
    draw, task, wanted = CASES[case]
    before = numbers(drawn(draw, ended(context(task), 0)))
    ctx = ended(context(task), FAR)
    lowest = {t.name: first_number(ctx, t) for t in arms_of(ctx.bench.tasks)}
    later = drawn(draw, ctx)
    assert all(n >= lowest[t.domain] for n, t in zip(numbers(later), later, strict=True))
    assert not {t.prompt for t in later} & {ctx.bench.tasks.task("test", i).prompt for i in range(4)}
    assert min(lowest.values()) == (FAR if task == ONE else FAR // 2)
    if wanted is not None:
        assert before == wanted and numbers(later) == [lowest["add(d=2)"] + n for n in wanted]
    else:
        assert min(before) < 64 or case == "FailureDriven", "which is trained on what is written alone"


def test_every_draw_that_numbers_its_tasks_has_a_case():
    """`Series` numbers series, not tasks: those of its training are the same for all. `Reworded` takes the tasks of
    its source as they are. `BuyLabels` draws recorded pairs, which these tasks are not. `KnowledgeBoundary` asks in
    worlds with sources, below. `ToyTexts`, `CanaryTexts` and `CipherTexts` draw texts of their own, from no source.
    """
    found = set()
    for file in Path(palaestra.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and is_draw(node):
                found.add(node.name)
    assert found - {
        "Series",
        "Reworded",
        "BuyLabels",
        "KnowledgeBoundary",
        "ToyTexts",
        "CanaryTexts",
        "CipherTexts",
    } == {name.split(",")[0] for name in CASES}


def test_questions_about_sources_begin_where_the_bench_says(context):
    draw = KnowledgeBoundary(n=1, candidates=4)
    for first in (0, FAR):
        asked = numbers(drawn(draw, ended(context("wiki-few"), first)))
        assert sorted(asked) == [first, first + 1, first + 2, first + 3]


def is_draw(node):
    """Called as a draw is, and asks no other one."""
    asks = any(isinstance(x, ast.AnnAssign) and ast.unparse(x.annotation).endswith("Draw") for x in node.body)
    called = [x.args for x in node.body if getattr(x, "name", "") == "__call__"]
    named = [[a.arg for a in args.args] for args in called]
    return not asks and ["self", "ctx", "key", "n", "state"] in named


@pytest.mark.parametrize("first", [0, 1, 7, 1001])
def test_arms_begin_where_their_mixture_has_come_to(context, first):
    ctx = ended(context("add(d=2)*2+knights(d=2)+sort(d=3)*0.5"), first)
    tasks = ctx.bench.tasks
    for arm in arms_of(tasks):
        own = [t.id for i in range(60) if (t := tasks.task("train", first + i)).domain == arm.name]
        begin = first_number(ctx, arm)
        assert own == [part_task(arm, "train", begin + i).id for i in range(len(own))] and own


def test_a_source_that_ends_is_read_from_its_beginning(context):
    ctx = ended(context(), FAR)
    tasks = ctx.bench.tasks
    ctx.bench = replace(ctx.bench, tasks=Few(tasks))
    assert first_number(ctx) == 0 and numbers(drawn(Prioritised(problems=2), ctx, 1)) in ([0, 1], [1, 0])


class Few:
    """The first three tasks of a source."""

    def __init__(self, tasks):
        self.tasks, self.size, self.name = tasks, 3, tasks.name

    def task(self, split, index):
        assert index < 3
        return self.tasks.task(split, index)


def test_the_probes_are_of_the_run_and_are_not_given_again(context):
    asked = []
    draw = ProbedArms(every=1, tasks=2, sample=Sample(n=1), weight=lambda rate_N: np.ones_like(rate_N))
    ctx = ended(context(ONE), FAR)
    inner = ctx.bench.tasks
    spy = lambda split, i: asked.append(i) or inner.task(split, i)
    ctx.bench = replace(
        ctx.bench, tasks=type("Spied", (), {"size": None, "name": inner.name, "task": staticmethod(spy)})()
    )
    drawn(draw, ctx)
    assert asked == list(range(FAR, FAR + 8))


def test_queries_and_documents_are_of_the_run_too(context, monkeypatch):
    asked, inner = [], Mixture.task
    monkeypatch.setattr(Mixture, "task", lambda self, split, i: asked.append((split, i)) or inner(self, split, i))
    drawn(CASES["FailureDriven"][0], ended(context(TWO), FAR), 1)
    numbers = [i for split, i in asked if split == "train"]
    assert len(numbers) == 2 + 4 and min(numbers) >= FAR + (1 << 20)
