"""Recipes from the user's own files: they train, show, explain and compare as the built ones do, and mistakes are one line."""

import json
import sys
from pathlib import Path

import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.ledger.cells import CellRequest
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import recipe_of

BODY = """\"\"\"A bonus for brevity.\"\"\"
from palaestra.credit.links import Center, chain
from palaestra.credit.table import Values
from palaestra.catalogue import recipe
from palaestra.values import vary
from palaestra.types import stage

@stage
class Brief:
    weight: float = 0.5

    def __call__(self, x, table):
        return Values(level=x.level, x_N=x.x_N - self.weight * table.lengths_E)

def build(weight: float = 0.5):
    return vary(recipe("grpo"), credit=chain(Brief(weight), Center("group")))
"""


def forget():
    """As a new process: no file has run."""
    for name in [n for n in sys.modules if n.startswith("palaestra_user_")]:
        del sys.modules[name]


@pytest.fixture
def source(tmp_path, monkeypatch):
    def write(text=BODY, name="mine.py"):
        (tmp_path / name).write_text(text)
        return name

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield write
    forget()


def test_it_takes_arguments_and_overrides(source):
    file = source()
    recipe = recipe_of(Settings(recipe=file, set={"weight": "0.25", "schedule.prompts": "3"}))
    assert recipe.learners["policy"].credit.links[0].weight == 0.25 and recipe.schedule.prompts == 3


def test_it_is_explained(source, capsys):
    """Rewards 1, 0 less half of 2 and 4 tokens: 0 and -2, centred 1 and -1."""
    assert main(["explain", source(), "--rewards", "[[1,0]]", "--lengths", "[[2,4]]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["advantages"] == [[pytest.approx(1.0), pytest.approx(-1.0)]]


def test_it_is_shown_with_or_without_a_card(source, capsys):
    assert main(["show", source(), "--fields"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("mine: A bonus for brevity\n") and "  learners.policy.optimiser.lr=0.0001\n" in out
    card = "\nfrom palaestra.card import Card\nCARD = Card(title='B', claim='It is brief.')"
    assert main(["show", source(BODY + card, "carded.py")]) == 0
    out = capsys.readouterr().out
    assert "claim: It is brief." in out and "difference from grpo" in out


def test_it_trains_resumes_and_compares(source, capsys):
    file, small = source(), ["schedule.prompts=2", "collect.links.0.n=2"]
    assert main(["train", file, "--smoke", "--out", "run"]) == 0
    assert 'recipe = "mine.py"' in Path("run/config.toml").read_text()
    assert main(["train", "--resume", "run", "--steps", "3"]) == 0
    asked = ["compare", "grpo", file, "--seeds", "1", "--tokens", "100", "--evaluate", "2", "--out", "c", *small]
    assert main(asked) == 0
    assert set(json.loads(Path("c/compare.json").read_text())["methods"]) == {"grpo", file}
    capsys.readouterr()


def test_another_text_of_the_file_is_another_cell(source):
    """Also where the recipe is equal: what its parts do is written in the file, or in one beside it."""
    asked = lambda: CellRequest(label="", settings=Settings(recipe="mine.py"), tokens=1).digest()
    source(BODY)
    first = asked()
    assert first == asked()
    source(BODY.replace("- self.weight", "+ self.weight"))
    forget()
    second = asked()
    begin, end = BODY.index("@stage"), BODY.index("def build")
    source(BODY[:begin] + "from near_mine import Brief\n" + BODY[end:])
    beside = "from palaestra.credit.table import Values\nfrom palaestra.types import stage\n" + BODY[begin:end]
    source(beside, "near_mine.py")
    forget()
    third = asked()
    source(beside.replace("- self.weight", "+ self.weight"), "near_mine.py")
    assert len({first, second, third, asked()}) == 4
    del sys.modules["near_mine"]


@pytest.mark.parametrize(
    "body, told",
    [
        ("x = 1", "mine.py: no function 'build'; write def build(): return pl.vary(pl.recipe('grpo'), ...)"),
        ("def build():\n    return vary()", "mine.py:2: NameError: name 'vary' is not defined"),
        (
            "def build():\n    return 3",
            "mine.py: build() returned int, not a recipe; return pl.vary(pl.recipe('grpo'), ...)",
        ),
        ("def build():\n    raise ValueError('no')", "mine.py:2: ValueError: no"),
    ],
)
def test_a_mistake_is_one_line(source, body, told):
    with pytest.raises(UserError) as error:
        recipe_of(Settings(recipe=source(body)))
    assert str(error.value).endswith(told)


STAGE = """
import palaestra as pl


@pl.stage
class Mine:
{body}


def build():
    return pl.vary(pl.recipe("grpo"), {where})
"""
LINK, LOSS = "credit=pl.chain(Mine())", "objective=Mine()"
ASKS = "    needs = ('logp',)\n    couples = 'row'\n"


@pytest.mark.parametrize(
    ("where", "body", "told"),
    [
        (
            LINK,
            "    def __call__(self, x, table): return x.x_N",
            "credit Mine returned ndarray; a link returns Values(",
        ),
        (
            LINK,
            "    def __call__(self, x, table): return pl.Values(level='batch', x_N=x.x_N)",
            "credit Mine returned level 'batch'; a link returns Values(level=..., x_N=...), by episode, turn, token",
        ),
        (
            LINK,
            "    def __call__(self, x, table): return pl.Values(level='token', x_N=x.x_N)",
            "credit Mine returned x_N of shape [2]; by token there are 3 in this batch",
        ),
        (
            LOSS,
            "    def __call__(self, out, batch): return 1",
            "mine.py:10: objective Mine has no needs and no couples",
        ),
        (LOSS, f"{ASKS}    x: int = 1", "objective Mine has no __call__; an objective has needs, such as"),
        (
            LOSS,
            f"{ASKS}    def __call__(self, out, batch): return out['logpp'].mean(), {{}}",
            "objective Mine reads 'logpp'; of what it needs there are logp, of the batch advantage, ",
        ),
        (
            LOSS,
            f"{ASKS}    def __call__(self, out, batch): return out['logp'].mean()",
            "objective Mine returned Tensor; it returns (loss, metrics)",
        ),
        (
            "credit=Mine()",
            "    def __call__(self, x, table): return x",
            "learners.policy.credit: Mine is a link of a chain and not a credit of its own; write "
            "pl.chain(Mine(...)), with all links in their order",
        ),
        (
            "update=Mine()",
            "    def __call__(self, batch): return {}",
            "learners.policy.update: Mine cannot be called with (ctx, name, learner, batch, state), as",
        ),
        ("pool='all'", "    x: int = 1", "pool: 'all' cannot be called with (ctx, groups, state), as"),
        (
            "objective=pl.Clipped(reduce='token')",
            "    x: int = 1",
            "unknown reduction 'token'; there are tokens, sequences, constant",
        ),
    ],
)
def test_what_is_wrong_with_a_stage_is_one_line(where, body, told, source, capsys):
    file = source(STAGE.format(where=where, body=body).lstrip())
    assert main(["explain", file, "--rewards", "[[1,0]]", "--lengths", "[[1,2]]"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_closures_are_refused_by_compare(source):
    file = source("from palaestra.recipes.base import grpo\nfrom palaestra.values import vary\n"
                  "def build():\n    return vary(grpo.build(), credit=lambda *x: x)\n")  # fmt: skip
    with pytest.raises(UserError, match="credit: no closures in a recipe"):
        CellRequest(label="", settings=Settings(recipe=file), tokens=1).digest()


def test_a_name_without_its_suffix_and_a_claim(source, capsys):
    source()
    assert main(["show", "mine"]) == 2
    assert "no method 'mine'; did you mean mine.py?" in capsys.readouterr().err
    assert main(["reproduce", "mine.py"]) == 2
    assert "palaestra compare grpo mine.py" in capsys.readouterr().err
