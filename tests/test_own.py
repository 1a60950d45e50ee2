"""Every method trains two steps on a user's file, environment or tools, made from what its card declares; the
number that shows its mechanism is above 0 there, and 0 where the mechanism is off.
"""

import json
import re
from contextlib import nullcontext
from itertools import cycle

import palaestra
import pytest
import torch
from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.models.model import Model
from palaestra.needs.declared import holds, is_required
from palaestra.run.unmet import arguments_of_run
from palaestra.settings.overrides import arguments

from tests.chat_server import serving
from tests.own.files import DOCUMENTS, ENVIRONMENT, GAME, GRAPH, REWARD, TOOLS, rows_of, write_rows

BUILT = [e for e in catalogue.all_entries() if e.built]
FILES = {
    "environment": ("env", "corridor.py:Corridor", ENVIRONMENT),
    "game": ("env", "high_number.py:HighNumber", GAME),
    "simulator": ("env", "corridor.py:Corridor", ENVIRONMENT),
    "documents": ("docs", "lions.md", DOCUMENTS),
    "graph": ("graph", "graph.tsv", GRAPH),
    "tools": ("tools", "search.py:search", TOOLS),
    "reward": ("reward", "even.py:even", REWARD),
}
SETTINGS = {"steps": 2, "evaluate": 0, "quiet": True, "max_tokens": 24}
OTHER = "tiny-agent"  # a model that is not the policy and has another tokenizer


def needs_of(entry):
    return catalogue.find(entry.id).CARD.needs


def endpoint_for(reply):
    """A chat endpoint of the loopback interface that gives one reply, or several in turn, as an argument; OTHER
    without a reply."""
    replies = cycle([reply] if isinstance(reply, str) else reply)
    return serving(lambda body: next(replies)) if reply else nullcontext((None, ""))


def cousin(folder):
    """A model that is not the policy and has its tokenizer: the built-in one with noise in its weights."""
    model, generator = load("tiny"), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.module.parameters():
            p += 0.02 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return str(folder)


def taught(replies, rows, instruction, folder):
    """A checkpoint of the built-in model that writes these replies in turn, whatever it is asked: the policy of a
    method whose form the built-in model does not know.
    """
    form = re.findall(r"</?\w+>", instruction)  # a prompt that has it already gets no instruction
    prompts = [row["prompt"] for row in rows]
    asked = [p if form and all(x in p for x in form) else f"{p}\n\n{instruction}".strip() for p in prompts]
    shown = [{"prompt": p, "demonstration": replies[i % len(replies)]} for i, p in enumerate(asked)]
    data = write_rows(folder / "shown.jsonl", shown)
    words = {"schedule.prompts": 4, "optimiser.lr": 0.003, "optimiser.warmup": 5}
    settings = SETTINGS | {"steps": 60, "checkpoint_every": 60}
    run = palaestra.train("sft", data=str(data), out=folder / "taught", set=words, **settings)
    return str(run.folder / "checkpoints" / "step-60")


def train_on_own(entry, folder, off=False):
    """The metrics of the steps of a run on files in a folder, which has them already."""
    needs = needs_of(entry)
    without: dict = dict(needs.off) if off else {}
    words = {**needs.own, **without}
    takes = arguments(entry.id)
    given = arguments_of_run(takes, words)
    settings = {
        k: words.pop(k)
        for k in list(words)
        if k in ("reward", "max_tokens", "tools", "task", "env", "data", "model", "steps")
    }
    rows = rows_of(needs, given)
    if needs.columns and "task" not in settings:
        settings["data"] = str(write_rows(folder / "rows.jsonl", rows))
    if replies := words.pop("taught_replies", None):
        instruction = getattr(catalogue.find(entry.id).build(), "instruction", "")
        settings["model"] = taught(replies, rows, instruction, folder)
    for place in needs.places:
        if is_required(place, given) and place.kind in FILES and "task" not in settings:
            name, spec, text = FILES[place.kind]
            file = folder / spec.partition(":")[0]
            file.write_text(text)
            called = spec.partition(":")[2]
            settings.setdefault(name, f"{file}:{called}" if called else str(file))
    with endpoint_for(words.pop("endpoint", "")) as (_, url):
        for model in (m for m in needs.models if m.argument not in without):
            if (url or not model.otherwise) and holds(model.when, given) and given.get(model.argument) == model.inert:
                other = cousin(folder / "cousin") if model.reads_tokens else OTHER
                words[model.argument] = f"endpoint(url='{url}',model='m')" if url else other
        out = folder / ("off" if off else "on")
        # what a method is refused without, as a teacher that is the policy itself, is an arm that is off
        run = palaestra.train(entry.id, out=out, set=words, anyway=off, **(SETTINGS | settings))
    logs = sorted(run.folder.rglob("metrics.jsonl"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def watched_models(monkeypatch):
    """The names of the models that a run puts ids through, as it goes."""
    read = set()

    def watch(name):
        method = getattr(Model, name)
        monkeypatch.setattr(Model, name, lambda self, *a, **k: read.add(self.source) or method(self, *a, **k))

    for name in ("hidden", "hidden_of", "logits"):
        watch(name)
    return read


def shown(needs, steps):
    return [step[needs.shows] for step in steps if step.get(needs.shows) is not None]


@pytest.mark.by_row
@pytest.mark.parametrize("entry", BUILT, ids=lambda e: e.id)
def test_a_method_trains_on_what_a_user_brings(entry, tmp_path, monkeypatch):
    needs, read = needs_of(entry), watched_models(monkeypatch)
    steps = train_on_own(entry, tmp_path)
    assert needs.policy or "tiny" not in read, f"the card of {entry.id} says that --model takes no part"
    assert any(step.get("step") == 2 for step in steps) or entry.shape != "recipe"
    if needs.shows:
        assert any(abs(x) > 0 for x in shown(needs, steps)), f"{needs.shows} never differs from 0"


def test_every_method_has_a_number_of_its_mechanism_and_says_what_it_is_without():
    """Arguments under which it is 0, or a sentence on why there are none; one of the two."""
    for entry in BUILT:
        needs = needs_of(entry)
        assert needs.shows, f"{entry.id} declares no number that shows its mechanism"
        assert bool(needs.off) != bool(needs.never_off), f"{entry.id}: either off or never_off"
        assert not needs.never_off or (needs.never_off[0].isupper() and needs.never_off.endswith(".")), entry.id


@pytest.mark.by_row
@pytest.mark.parametrize("entry", [e for e in BUILT if needs_of(e).off], ids=lambda e: e.id)
def test_its_number_is_zero_where_the_mechanism_is_off(entry, tmp_path):
    needs = needs_of(entry)
    assert not any(shown(needs, train_on_own(entry, tmp_path, off=True)))


def test_without_a_problem_a_method_runs_where_it_acts():
    """Methods that need an environment, a game or tools were trained on sums where the user named none."""
    acting = [e for e in BUILT if any(not p.otherwise for p in needs_of(e).places)]
    for entry in acting:
        module = catalogue.find(entry.id)
        built_in = {name for p in module.CARD.needs.places for name in p.built_in}
        assert module.CARD.task in built_in or hasattr(module, "embedded"), entry.id


@pytest.mark.parametrize("method", ["spiral", "research", "asearcher", "l0", "cel"])
def test_sums_are_refused_where_nothing_would_act(method, tmp_path):
    with pytest.raises(UserError, match=f"{method} needs .*, or task "):
        palaestra.train(method, task="add", out=tmp_path / "run", quiet=True)


IDLE = {
    "sws": {"weigh": "even", "gate": False},
    "guru": {"easy": 1.1, "hard": -0.1},
    "cel": {"worlds": 0},
}


@pytest.mark.parametrize("method", IDLE)
def test_a_run_on_own_files_leaves_on_what_the_method_does(method):
    """Arguments that keep a weight even, a filter open or new worlds unplayed, are no test of a method."""
    own = catalogue.find(method).CARD.needs.own
    assert all(own.get(name) != idle for name, idle in IDLE[method].items())
