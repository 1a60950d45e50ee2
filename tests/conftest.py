"""Shared fixtures: the embedded model, a context over it, and small recipes."""

from __future__ import annotations

import os
from collections import Counter

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# What a new release of a library says to those who call it is not what a test of a command's output is about.
os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning,ignore::FutureWarning,ignore::DeprecationWarning")

import pytest
from _pytest.config import Config
from hypothesis import HealthCheck, settings
from palaestra.cli.flag_forms import share
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.models.smollm2 import weights
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.plan import Plan
from palaestra.run.setup import bench_of_part
from palaestra.settings.fields import Settings
from palaestra.tasks.gym import registry
from palaestra.values import override
from palaestra.verifiers.verilog.simulate import check_simulator

from tests import durations

# Speed is measured in `bench`: a busy machine fails no property.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Marks of tests that need more than `pip install '.[test]'` brings, and what raises without it.
NEEDS = {"gym": registry, "smollm2": weights, "iverilog": check_simulator}
# Methods whose default run needs more, by the mark.
NEEDED_BY = {"veriprefer": "iverilog", "verirl": "iverilog"}


def pytest_addoption(parser):
    parser.addoption(
        "--share", type=share, default=(1, 1), metavar="K/N", help="of the tests by_row: the K-th of N shares"
    )


def leave_out_shares(config, items, k, n):
    """Leaves of every test that is marked by_row one case in n."""
    cases, out = Counter(), set()
    for item in items:
        if item.get_closest_marker("by_row"):
            test = durations.test_of(item.nodeid)
            cases[test] += 1
            if cases[test] % n != k % n:
                out.add(item)
    config.hook.pytest_deselected(items=[x for x in items if x in out])
    items[:] = [x for x in items if x not in out]


def pytest_collection_modifyitems(config, items):
    """Marks tests by how long they were measured to take; `pytest` without arguments runs those that are not slow."""
    leave_out_shares(config, items, *config.option.share)
    marks = durations.marks(item.nodeid for item in items)
    for item in items:
        for mark in marks[item.nodeid]:
            item.add_marker(mark)
    asked = config.args_source is not Config.ArgsSource.TESTPATHS or config.option.markexpr or config.option.keyword
    if not asked:
        slow = [x for x in items if x.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [x for x in items if x not in set(slow)]


def pytest_runtest_setup(item):
    for name, need in NEEDS.items():
        entry = item.callspec.params.get("entry") if hasattr(item, "callspec") else None
        if item.get_closest_marker(name) or NEEDED_BY.get(getattr(entry, "id", "")) == name:
            try:
                need()
            except UserError as missing:
                pytest.skip(str(missing))


@pytest.fixture(autouse=True, scope="session")
def list_of_what_was_executed(tmp_path_factory):
    """Not the user's own, see `palaestra.run.trust`."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    os.environ.pop("XDG_STATE_HOME")
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture
def context(tmp_path):
    """Makes contexts over a fresh copy of the embedded model: context(task="chain", seed=0, out=None, **plan)."""

    def make(task: str = "chain", seed: int = 0, out=None, bench=None, **plan):
        built, players = (bench, {}) if bench is not None else bench_by_name(task)
        return RunContext(
            bench=built,
            seed=seed,
            models={"policy": load("tiny")},
            drive=train,
            out=out,
            players=players,
            # of parts that learn from a file which an earlier one made
            open_problem=lambda problem, recipe=None: bench_of_part(Settings(recipe="grpo"), problem, recipe),
            plan=Plan(**{"evaluate": 0, **plan}),
        )

    return make


@pytest.fixture
def small():
    """A recipe at a size for tests: 2 prompts, 4 samples, where it has such fields."""

    def make(recipe, **settings):
        for path, given in {"schedule.prompts": 2, "collect.links.0.n": 4, **settings}.items():
            try:
                recipe = override(recipe, path, given)
            except Exception:
                if path in settings:
                    raise
        return recipe

    return make
