"""Every method trains two steps on a user's file, environment or tools, made from what its card declares; the
number that shows its mechanism is above 0 there, and 0 where the mechanism is off.
"""

import json

import palaestra
import pytest
from palaestra import catalogue
from palaestra.needs.declared import is_required
from palaestra.run.unmet import arguments_of_run
from palaestra.settings.overrides import arguments

from tests.own.files import ENVIRONMENT, REWARD, TOOLS, rows_of, write_rows

BUILT = [e for e in catalogue.all_entries() if e.built]
FILES = {
    "environment": ("env", "corridor.py:Corridor", ENVIRONMENT),
    "simulator": ("env", "corridor.py:Corridor", ENVIRONMENT),
    "tools": ("tools", "search.py:search", TOOLS),
    "reward": ("reward", "even.py:even", REWARD),
}
SETTINGS = {"steps": 2, "evaluate": 0, "quiet": True, "max_tokens": 24}
OTHER = "tiny-agent"  # a model that is not the policy, with its tokenizer


def needs_of(entry):
    return catalogue.find(entry.id).CARD.needs


def train_on_own(entry, folder, off=False):
    """The metrics of the steps of a run on files in a folder, which has them already."""
    needs = needs_of(entry)
    words = {**needs.own, **(needs.off if off else {})}
    takes = arguments(entry.id)
    given = arguments_of_run(takes, words)
    settings = {k: words.pop(k) for k in list(words) if k in ("reward", "max_tokens", "tools", "task", "env", "data")}
    if needs.columns:
        settings["data"] = str(write_rows(folder / "rows.jsonl", rows_of(needs, given)))
    for place in needs.places:
        if is_required(place, given) and place.kind in FILES:
            name, spec, text = FILES[place.kind]
            file = folder / spec.partition(":")[0]
            file.write_text(text)
            settings.setdefault(name, f"{file}:{spec.partition(':')[2]}")
    for model in needs.models:
        if is_required(model, given) and given.get(model.argument) == model.inert:
            words[model.argument] = OTHER
    run = palaestra.train(entry.id, out=folder / ("off" if off else "on"), set=words, **(SETTINGS | settings))
    logs = sorted(run.folder.rglob("metrics.jsonl"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def shown(needs, steps):
    return [step[needs.shows] for step in steps if step.get(needs.shows) is not None]


FALL_SHORT = {  # of what a user brings: what they do with such a file today
    "capo": "its critic is a program that knows the built-in task",
    "modomodo": "its shares are of built-in mixtures",
    "logics-stem": "it asks for a task that no file has",
    "guru": "it draws more candidates than a file has",
    "collab": "it draws from tasks without an end",
    "long2short-merging": "it has no two models to merge",
    "ui-r1": "it makes its own screens",
}


def marked(entry):
    reason = FALL_SHORT.get(entry.id)
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(entry, marks=marks, id=entry.id)


@pytest.mark.parametrize("entry", [marked(e) for e in BUILT])
def test_a_method_trains_on_what_a_user_brings(entry, tmp_path):
    needs, steps = needs_of(entry), train_on_own(entry, tmp_path)
    assert any(step.get("step") == 2 for step in steps) or entry.shape != "recipe"
    if needs.shows:
        assert any(abs(x) > 0 for x in shown(needs, steps)), f"{needs.shows} never differs from 0"


@pytest.mark.parametrize("entry", [e for e in BUILT if needs_of(e).off], ids=lambda e: e.id)
def test_its_number_is_zero_where_the_mechanism_is_off(entry, tmp_path):
    needs = needs_of(entry)
    assert not any(shown(needs, train_on_own(entry, tmp_path, off=True)))
