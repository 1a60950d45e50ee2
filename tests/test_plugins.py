"""What other packages add: the example and its README, each refusal, what a result records."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from palaestra import catalogue, plugins
from palaestra.api.asking import origin
from palaestra.cli.main import main
from palaestra.engines import select
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.ledger.cells import CellRequest
from palaestra.ledger.digests import packages
from palaestra.ledger.expectations import Greater
from palaestra.ledger.experiment import Experiment
from palaestra.ledger.results import arm_packages
from palaestra.models.load import load
from palaestra.run import benches, setup
from palaestra.run.additions import ours, standings
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.toys.chain import ArithmeticChain
from palaestra.trackers import registry as trackers
from palaestra.trackers.tensorboard import TensorBoard
from palaestra.verifiers import registry as verifiers
from palaestra.verifiers.answers.short import ExactAnswer

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plugin"
PAGE = (EXAMPLE / "README.md").read_text()
COMMANDS = [line for line in PAGE.split("```")[1].splitlines() if line.startswith("palaestra ")]
SMALL = ["schedule.prompts=2", "collect.links.0.n=2"]

ASK = {  # how a name of each kind is asked for
    "recipes": lambda name: overrides.call_build(name, {}),
    "tasks": benches.bench_by_name,
    "worlds": benches.bench_by_name,
    "verifiers": lambda name: verifiers.make_verifier(name, {}),
    "engines": lambda name: select.build(name, None, slots=1, cache_mb=1),
    "trackers": lambda name: trackers.makers([name]),
}
GOOD = '''"""A recipe of another package."""
from palaestra.catalogue import recipe
from palaestra.context import Bench
from palaestra.credit.links import Center, chain
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.grid import Grid, GridTasks
from palaestra.types import stage
from palaestra.values import vary
from palaestra.verifiers.base import Judgement


@stage
class Same:
    def __call__(self, x, table):
        return x


def build(margin: float = 1.0):
    if margin < 0:
        raise ValueError("margin is negative")
    return vary(recipe("grpo"), credit=chain(Center("group"), Same()))


def tasks(most: int = 3):
    return ArithmeticChain()


def world():
    return GridTasks(), Grid()


def verifier(word: str = "yes"):
    return lambda response, answer, *, extra=None: Judgement(score=float(word in response))
'''


META = "Metadata-Version: 2.1\nName: {}\nVersion: {}\nSummary: Mine.\n"


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Installs a package: its entry points, "name = target" by kind, and its module's text."""
    before = set(sys.modules)

    def install(points, text=GOOD, package="mine", version="1.0", module="mine_module"):
        site = tmp_path / f"{package}-{version}-{module}"
        info = site / f"{package}-{version}.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(text)
        (info / "METADATA").write_text(META.format(package, version))
        groups = [f"[palaestra.{kind}]\n{lines}\n" for kind, lines in points.items()]
        (info / "entry_points.txt").write_text("\n".join(groups))
        monkeypatch.syspath_prepend(site)
        return site

    monkeypatch.chdir(tmp_path)
    yield install
    for name in {m for m in sys.modules if m.startswith(("mine", "palaestra_user_"))} - before:
        del sys.modules[name]
    verifiers.get_verifier.cache_clear()


def standing(kind):
    return [(s["package"], s["unused"], s["broken"]) for s in standings() if s["kind"] == kind]


def refusal(kind, name="odd"):
    with pytest.raises(UserError) as error:
        ASK[kind](name)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- the example


@pytest.fixture(scope="module")
def run_example(tmp_path_factory):
    """Runs commands where the example is installed."""
    pytest.importorskip("pip")
    place = tmp_path_factory.mktemp("example")
    flags = [
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *flags,
        "--target",
        str(place / "site"),
        str(EXAMPLE),
    ]
    subprocess.run(pip, check=True, cwd=place)
    (place / "cases.jsonl").write_text('{"response": "a banana", "answer": 5}\n')
    path = os.pathsep.join([str(place / "site"), str(ROOT)])

    def run(*argv):
        done = subprocess.run(
            [sys.executable, "-m", "palaestra", *argv],
            cwd=place,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        return done

    run.place = place
    return run


@pytest.mark.timeout(900)  # seven processes, each of which imports torch
def test_the_commands_of_the_example(run_example):
    said = {}
    for command in COMMANDS:
        argv = ["3" if a == "60" else a for a in shlex.split(command)[1:]]
        if argv[0] == "train" and "--resume" not in argv:
            argv += ["--steps", "2", "--evaluate", "4", *SMALL]
        argv += SMALL if argv[0] == "doctor" else []
        said[command] = run_example(*argv)
    listed, first, resumed, tasks, scored, doctor = said.values()
    assert "root-length" in listed.stdout and "[palaestra-example 0.1]" in listed.stdout
    steps = re.findall(r"lines: (\d) reward [\d.]+", first.stderr + resumed.stderr)
    assert steps == ["1", "2", "3"] and "requests" in first.stderr
    assert "resuming after step 2" in resumed.stderr
    runs = [run_example.place / name for name in ("runs/higher", "whole")]
    train = next(shlex.split(c)[1:] for c in said if "root-length" in c)
    run_example(*train, "--out", "whole", "--steps", "3", "--evaluate", "4", *SMALL)
    ends = [json.loads((run / "summary.json").read_text()) for run in runs]
    assert ends[0]["packages"] == ["palaestra-example 0.1"]
    assert ends[0]["weights_sha256"] == ends[1]["weights_sha256"]
    config = (runs[0] / "config.toml").read_text()
    assert 'engine = "counting"' in config
    assert '"learners.policy.credit.links.2.power" = 0.25' in config
    assert "on letters(longest=5)*2+count" in tasks.stderr
    assert scored.stdout.split() == ["1.0000", "ok", "vowels", "4"]
    names = ["root-length", "letters", "higher", "vowels", "counting", "lines"]
    works = re.compile(r"^  (\S+) +works  \(.* of palaestra-example 0.1\)$", re.MULTILINE)
    assert works.findall(doctor.stdout) == names


def test_the_entry_points_of_the_page_are_those_of_the_example():
    """And the page names every kind there is."""
    page = (ROOT / "docs" / "howto.md").read_text().split("## A package of your own\n")[1]
    shown = tomllib.loads(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    offered = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    points = shown["project"]["entry-points"]
    assert points == offered["project"]["entry-points"]
    assert set(points) == {f"palaestra.{kind}" for kind in plugins.KINDS}
    assert "](../../docs/howto.md#a-package-of-your-own)" in PAGE


# ---- what is read when


def test_importing_reads_no_entry_point():
    heavy = "{'importlib.metadata', 'palaestra.plugins'}"
    code = f"import sys, palaestra; assert not {heavy} & set(sys.modules)"
    place = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=place)


def test_a_name_of_ours_reads_no_entry_point(monkeypatch):
    def read(kind, path):
        raise AssertionError(f"{kind} were read")

    monkeypatch.setattr(plugins, "_read", read)
    assert catalogue.entry_of("grpo").id == "grpo"
    assert benches.bench_by_name("chain")[0].name == "chain" and benches.bench_by_name("grid")[0].name == "grid"
    assert verifiers.make_verifier("exact", {}) == ExactAnswer()
    assert select.factory("own") is OwnEngine and trackers.factory("tensorboard") is TensorBoard
    with pytest.raises(AssertionError, match="verifiers were read"):
        verifiers.make_verifier("exactly", {})


# ---- what works


def test_a_recipe_is_a_method_as_others_are(add, capsys):
    add({"recipes": "odd = mine_module"})
    assert main(["show", "odd"]) == 0
    assert capsys.readouterr().out.startswith("odd: A recipe of another package\n")
    assert main(["explain", "odd", "--rewards", "[[1,0]]", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["advantages"] == [[0.5, -0.5]]
    assert main(["list", "--family", "plugins", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (row["id"], row["title"], row["package"]) == ("odd", "Mine.", "mine 1.0")
    with pytest.raises(UserError, match="did you mean odd"):
        catalogue.find("oddd")
    credit = overrides.build("odd", {"margin": "2"}).learners["policy"].credit
    assert type(credit.links[1]).__name__ == "Same"


def test_tasks_take_settings_and_mix(add):
    add({"tasks": "odd = mine_module:tasks", "worlds": "far = mine_module:world"})
    assert benches.bench_by_name("odd(most=2)*2+count")[0].tasks.parts[0][1] == 2.0
    assert benches.bench_by_name("far")[0].name == "far"
    for spec, says in [
        ("odd(least=2)", "task 'odd' has no setting 'least'; there are most"),
        ("odd+far", "'far' is an environment, which stands alone"),
        ("oddd", "no task 'oddd'; did you mean odd"),
    ]:
        with pytest.raises(UserError, match=re.escape(says)):
            benches.bench_by_name(spec)


def test_a_verifier_may_be_a_function(add, tmp_path, capsys):
    add({"verifiers": "odd = mine_module:verifier"})
    (tmp_path / "cases.jsonl").write_text('{"response": "oh yes"}\n{"response": "no"}\n')
    assert main(["score", "odd(word='no')", "--cases", "cases.jsonl", "--json"]) == 0
    assert [j["score"] for j in json.loads(capsys.readouterr().out)] == [0.0, 1.0]
    assert main(["score", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["fields"] == ["response", "answer", "extra"]


# ---- what is refused


def test_a_name_of_ours_stays_ours(add, capsys):
    taken = ("grpo", "grid", "chain", "exact", "own", "tensorboard")
    names = dict(zip(plugins.KINDS, taken, strict=True))
    add(
        {kind: f"{name} = mine_module" for kind, name in names.items()},
        "raise RuntimeError('it was read')",
    )
    assert all(name in ours()[kind] for kind, name in names.items())
    assert catalogue.find("grpo").__name__ == "palaestra.recipes.base.grpo"
    assert isinstance(benches.bench_by_name("chain")[0].tasks, ArithmeticChain)
    assert benches.bench_by_name("grid")[0].reward is None
    assert verifiers.make_verifier("exact", {}) == ExactAnswer()
    assert select.factory("own") is OwnEngine and trackers.factory("tensorboard") is TensorBoard
    for kind, name in names.items():
        ((package, unused, broken),) = standing(kind)
        assert package == "mine 1.0" and not broken
        noun = "problem" if kind in plugins.PROBLEMS else plugins.KINDS[kind]
        assert unused == f"{name!r} means palaestra's own {noun}; rename this one"
    assert main(["list", "--family", "base"]) == 0
    why = "'grpo' means palaestra's own recipe"
    assert f"not used: the recipe 'grpo' of the package mine 1.0: {why}" in capsys.readouterr().out
    assert main(["doctor", *SMALL]) == 0
    assert " not used: 'own' means palaestra's own engine" in capsys.readouterr().out


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_two_packages_with_one_name(kind, add):
    add({kind: "odd = mine_module"})
    add({kind: "odd = mine_other"}, package="other", version="2.0", module="mine_other")
    noun = plugins.KINDS[kind]
    mine, other = (
        f"the {noun} 'odd' of the package mine 1.0",
        f"the {noun} 'odd' of the package other 2.0",
    )
    assert refusal(kind) == f"{mine}: there is also {other}; uninstall one of the packages"
    assert [unused for _, unused, _ in standing(kind)] == [
        f"there is also {x}; uninstall one of the packages" for x in (other, mine)
    ]


def test_a_task_and_a_world_with_one_name(add):
    add({"tasks": "odd = mine_module:tasks", "worlds": "odd = mine_module:world"})
    assert "there is also the task 'odd' of the package mine 1.0" in refusal("worlds")
    assert [bool(unused) for kind in plugins.PROBLEMS for _, unused, _ in standing(kind)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("kind", plugins.KINDS)
@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        (
            "x = 1\nraise RuntimeError('no\\nluck')",
            "mine_module:x",
            r"RuntimeError: no luck \(.*mine_module.py:2\)",
        ),
        ("raise SystemExit('no')", "mine_module:x", r"SystemExit: no \(.*mine_module.py:1\)"),
        ("def f(:", "mine_module:x", r"SyntaxError: invalid syntax \(mine_module.py, line 1\)"),
        ("", "mine_module:x", r"AttributeError: module 'mine_module' has no attribute 'x'"),
        ("", "mine_nothing:x", r"ModuleNotFoundError: No module named 'mine_nothing'"),
    ],
)
def test_what_cannot_be_imported(kind, text, target, says, add):
    add({kind: f"odd = {target}"}, text)
    said = refusal(kind)
    what = f"the {plugins.KINDS[kind]} 'odd' of the package mine 1.0"
    start = f"{what}: cannot be loaded from {target}: "
    assert re.fullmatch(f"{re.escape(start)}{says}; mend or uninstall the package", said)
    assert standing(kind) == [("mine 1.0", "", said)]


@pytest.mark.parametrize("kind", sorted(plugins.KINDS.keys() - {"recipes"}))
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 3", "mine_module:x is no class or function"),
        ("x = lambda *a, **k: 3", "mine_module:x made int; it should make"),
        ("x = lambda *a, **k: 1 / 0", "fails: ZeroDivisionError: division by zero ("),
        ("def x(*a, **k):\n    raise SystemExit('no')", "fails: SystemExit: no ("),
    ],
)
def test_a_factory_of_something_else(kind, text, says, add):
    add({kind: "odd = mine_module:x"}, text)
    said = refusal(kind)
    assert said.startswith(f"the {plugins.KINDS[kind]} 'odd' of the package mine 1.0: {says}")
    made = text != "x = 3" and kind in ("engines", "trackers")  # which are not made on trial
    assert standing(kind) == [("mine 1.0", "", "" if made else said)]


def test_what_a_factory_says_itself_is_left_alone(add):
    add(
        {"trackers": "odd = mine_module:x"},
        "from palaestra.errors import UserError\ndef x(given):\n    raise UserError('log in')",
    )
    assert refusal("trackers") == "log in"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = lambda: (1, 2, 3)", "made (int, int, int); it should make (tasks, world)"),
        (
            f"{GOOD}\nx = lambda: world()[::-1]",
            "made (Grid, GridTasks); it should make (tasks, world)",
        ),
        (
            f"{GOOD}\nx = lambda: Bench(name='b', tasks=GridTasks(), world=3)",
            "made (GridTasks, int); it should make (tasks, world)",
        ),
    ],
)
def test_a_world_without_its_parts(text, says, add):
    add({"worlds": "odd = mine_module:x"}, text)
    assert says in refusal("worlds")


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        ("x = 1", "mine_module", "mine_module is no module with a function 'build'"),
        (GOOD, "mine_module:build", "mine_module:build is no module with a function 'build'"),
        (
            f"{GOOD}\nCARD = 'mine'",
            "mine_module",
            "the CARD of mine_module is no palaestra.card.Card",
        ),
        ("def build():\n    return 1 / 0", "mine_module", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_is_no_recipe(text, target, says, add):
    add({"recipes": f"odd = {target}"}, text)
    said = refusal("recipes")
    assert said.startswith("the recipe 'odd' of the package mine 1.0: ") and says in said
    assert standing("recipes") == [("mine 1.0", "", said)]


def test_a_build_that_makes_no_recipe(add):
    add({"recipes": "odd = mine_module"}, "def build():\n    return 3")
    assert "odd: build() returned int, not a recipe" in refusal("recipes")


def test_settings_that_are_refused_are_not_only_the_packages_fault(add):
    text = f"{GOOD}\n\ndef x(most: int = 3):\n    raise ValueError('most is negative')"
    add({"recipes": "odd = mine_module", "tasks": "far = mine_module:x"}, text)
    with pytest.raises(UserError, match=r"margin is negative; change its settings, or mend"):
        overrides.build("odd", {"margin": "-1"})
    with pytest.raises(UserError, match=r"most is negative .*; change its settings, or mend"):
        benches.bench_by_name("far(most=-1)")


@pytest.mark.parametrize("kind", plugins.KINDS)
@pytest.mark.parametrize("name", ["Odd", "odd_one", "odd:one", "2odd", "odd.py"])
def test_a_name_that_no_flag_can_hold(kind, name, add):
    site = add({kind: "odd = mine_module"})
    points = next(site.glob("*.dist-info")) / "entry_points.txt"
    points.write_text(points.read_text().replace("odd =", f"{name} ="))
    ((_, unused, _),) = standing(kind)
    assert unused.startswith("its name is to be lower-case letters, digits and -")
    with pytest.raises(UserError):
        ASK[kind](name)


@pytest.mark.parametrize("said", ["put = 3", "form = 'yes'"])
def test_a_verifier_that_says_something_else_of_itself(said, add):
    text = f"class V:\n    {said}\n\n    def __call__(self, response, answer):\n        return None"
    add({"verifiers": "odd = mine_module:V"}, text)
    assert "they are a text and a truth value" in refusal("verifiers")


def test_how_a_reference_is_put_may_be_a_property(add):
    call = "    def __call__(self, response, answer):\n        return None"
    text = f"class V:\n    put = property(lambda self: '[{{}}]')\n\n{call}"
    add({"verifiers": "odd = mine_module:V"}, text)
    assert verifiers.verifier_entry("odd").put == "[{}]"


# ---- what a result records


def recorded(recipe="grpo", **settings):
    asked = Settings(recipe=recipe, **settings)
    return packages(overrides.recipe_of(asked), asked, *setup.bench_of(asked))


POINTS = {
    "recipes": "odd = mine_module",
    "tasks": "far = mine_module:tasks",
    "worlds": "wide = mine_module:world",
    "verifiers": "keen = mine_module:verifier",
    "engines": "fast = mine_module:tasks",
    "trackers": "loud = mine_module:tasks",
}


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": "odd"},
        {"task": "far*2+count"},
        {"task": "wide"},
        {"engine": "fast"},
        {"engine": "fast(most=2)"},
        {"data": "data.jsonl", "reward": "keen*0.5+exact"},
        {"recipe": "own.py"},
        {"recipe": "judged.py"},
    ],
    ids=str,
)
def test_a_result_names_the_package_and_its_version(settings, add, tmp_path):
    """Also where it only makes something of ours, and where a user's own file imports it."""
    add(POINTS)
    rows = [json.dumps({"prompt": str(i), "answer": str(i)}) for i in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    own = "from palaestra.catalogue import recipe\nfrom palaestra.values import vary\n"
    change = "credit=mine_module.Same()"
    credit = f"import mine_module\ndef build():\n    return vary(recipe('grpo'), {change})"
    (tmp_path / "own.py").write_text(own + credit)
    judged = "from palaestra.rewards.verified import Verified\n"
    stages = "from palaestra.rollout.collect import Sample, Score, links\n"
    steps = "collect=links(Sample(n=2), Score(reward=Verified('keen')))"
    collect = f"def build():\n    return vary(recipe('grpo'), {steps})"
    (tmp_path / "judged.py").write_text(own + judged + stages + collect)
    assert recorded(**settings) == ["mine 1.0"]


def test_an_engine_has_settings_of_its_own(add):
    """Those that its factory names, or any where it takes whatever comes; never those with flags of their own."""
    text = """
from palaestra.engines.own import OwnEngine
class Fast(OwnEngine):
    def __init__(self, model, *, slots, cache_mb, speed=1):
        super().__init__(model, slots=slots, cache_mb=cache_mb)
        self.speed = speed
def any(model, *, slots, **others):
    made = Fast(model, slots=slots, cache_mb=others.pop("cache_mb"))
    made.others = others
    return made
"""
    add({"engines": "fast = mine_module:Fast\nany = mine_module:any"}, text)
    model, flags = load("tiny"), {"slots": 3, "cache_mb": 5}
    assert select.build("fast(speed=2)", model, **flags).speed == 2
    assert select.build("any(near=1,far='x')", model, **flags).others == {"near": 1, "far": "x"}
    for spec in ("fast(spede=2)", "fast(slots=2)", "any(cache_mb=2)"):
        with pytest.raises(UserError, match="has no setting"):
            select.build(spec, model, **flags)


def test_comparisons_and_experiments_record_it_by_arm(add):
    add(POINTS)
    of = lambda **settings: origin(CellRequest(label="", settings=Settings(**settings), tokens=1))
    assert of(recipe="odd") == {"packages": ["mine 1.0"]} and of() == {}
    arms = {"ours": catalogue.recipe("grpo"), "theirs": catalogue.recipe("odd")}
    wins = Greater("theirs", "ours")
    asked = Experiment(claim="It wins.", arms=arms, expect=wins, falsified_if="It does not.")
    assert [arm_packages(asked, arm) for arm in arms] == [[], ["mine 1.0"]]


def test_a_result_without_plugins_names_none(add):
    add(POINTS)
    assert recorded() == [] and recorded(track=("loud",)) == []


def test_another_version_or_code_of_a_package_is_another_cell(add):
    asked = lambda recipe: CellRequest(label="", settings=Settings(recipe=recipe), tokens=1)
    digest = lambda recipe: asked(recipe).digest()
    ours_before = digest("grpo")
    site = add(POINTS)
    first = digest("odd")
    assert digest("odd") == first and digest("grpo") == ours_before
    (site / "mine_module.py").write_text(GOOD.replace("return x", "return x + 0"))
    second = digest("odd")
    (site / "mine_module.py").write_text(GOOD)
    assert digest("odd") == first != second
    del sys.modules["mine_module"]
    add(POINTS, version="1.1")
    assert digest("odd") not in (first, second)


def test_a_run_records_it(add, tmp_path):
    add(POINTS)
    assert main(["train", "odd", "--smoke", "--out", "run", *SMALL]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["packages"] == ["mine 1.0"]
    assert main(["train", "grpo", "--smoke", "--out", "ours", *SMALL]) == 0
    assert "packages" not in json.loads((tmp_path / "ours" / "summary.json").read_text())
