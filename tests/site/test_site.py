"""The documentation as a site: every link leads somewhere, every method is two clicks away and can be searched."""

import argparse
import json
import re
import threading
import urllib.error
import urllib.request
from dataclasses import fields
from pathlib import Path

import pytest
from palaestra import catalogue
from palaestra.cli.main import VERBS, main
from palaestra.errors import UserError
from palaestra.names import public_names
from palaestra.settings.fields import Settings
from palaestra.site import build, methods, reference, sources
from palaestra.site.serve import SiteServer

ENTRIES = catalogue.all_entries()


def test_every_link_and_anchor_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    assert site.dead() == []
    assert site.outside() == []
    assert len(site.pages) > len(ENTRIES) + 40


def test_every_method_is_two_clicks_from_the_front_page(site):
    reached = {p.parent.name for p in site.reachable(2) if p.parent.parent.name in ("methods", "surveys")}
    assert {e.id for e in catalogue.rows()} <= reached and len(catalogue.rows()) == 221


def test_nothing_of_a_page_is_lost_by_its_markdown(site):
    """No fence, table or heading that stayed text, and no file outside the navigation but the results."""
    for page in site.pages:
        text = re.sub(r"<(code|pre|script|style)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        shown = re.sub(r"<[^>]*>", "", text)
        assert not re.search(r"^\s*```|^\s*\|.*\|\s*$|^#{1,4} ", shown, re.MULTILINE), page
        assert "\\|" not in shown and "??? " not in shown, page


def search(site, words):
    """The pages whose sections hold all words, by their addresses, titles first."""
    items = json.loads((site.folder / "search.json").read_text())["items"]
    plain = lambda x: re.sub(r"<[^>]*>", " ", f"{x['title']} {x['text']}").lower()
    hits = [x for x in items if all(w.lower() in plain(x) for w in words.split())]
    return [x["location"].split("#")[0] for x in hits]


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ("arXiv:2503.20783", "dr-grpo"),  # by its paper
        ("2507.10628", "ghpo"),
        ("Understanding R1-Zero-like training", "dr-grpo"),
        ("role-conditioned advantage estimation", "spiral"),  # by the authors' term
        ("generation consistency", "agro"),
        ("Prefix-to-Tree", "tempo"),
        ("ScalingInter-RL", "agentgym-rl"),
        ("leave-one-out", "rloo"),
        ("forward KL reference", "rapo"),  # by the name of its formula
        ("UCB_j", "dump"),  # by a symbol, as it stands in the code
        ("DPO log sigmoid", "dpo"),
    ],
)
def test_search_finds_a_method(site, words, method):
    assert f"docs/methods/{method}/" in search(site, words)


def test_the_reference_is_whole(site):
    text = lambda name: (site.folder / "reference" / name / "index.html").read_text()
    anchors = site.pages[site.folder / "reference/commands/index.html"].anchors
    assert {f"palaestra-{verb}" for verb in VERBS} <= anchors
    assert all(f">{f.name}<" in text("settings") for f in fields(Settings) if f.metadata.get("text"))
    found = set().union(*(p.anchors for f, p in site.pages.items() if "python" in f.parts))
    assert {name.rpartition(".")[2] for name in public_names()} <= {x.rpartition(".")[2] for x in found}


def test_the_server_knows_this_machine_alone(folder):
    with SiteServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(server.url + "methods/") as answer:
            assert (
                b"methods-table" in answer.read() and "default-src 'self'" in answer.headers["Content-Security-Policy"]
            )
        request = urllib.request.Request(server.url, headers={"Host": "evil.example:80"})
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request)
        server.shutdown()


# ---- without a build


def test_without_the_generator_one_line_says_what_brings_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    for argv in (["docs"], ["docs", "--build", str(tmp_path / "site")]):
        assert main(argv) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "pip install '.[docs]'" in said
    assert not (tmp_path / "site").exists()


def test_a_folder_that_holds_something_else_stays(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        build.check_target(tmp_path)
    with pytest.raises(UserError, match="is a file"):
        build.check_target(tmp_path / "mine.txt")
    build.check_target(tmp_path / "not-there")


def test_no_module_imports_the_generator_and_only_its_verb_the_site():
    package = Path(build.__file__).parents[1]
    generator = re.compile(r"^\s*(import|from) (zensical|markdown|pymdownx)\b", re.MULTILINE)
    for file in package.rglob("*.py"):
        text = file.read_text()
        assert not generator.search(text), file
        if "palaestra.site" in text:
            assert file.parent == package / "site" or file == package / "cli" / "docs.py"


def test_every_method_is_built():
    assert [e.id for e in ENTRIES if not e.built and not e.page] == []


@pytest.mark.parametrize(
    ("method", "changes", "needs"),
    [
        ("dr-grpo", ("credit", "loss"), ()),
        ("agro", ("credit", "loss", "reference model"), ("a reference model",)),
        ("sft-grpo", ("stages",), ()),
        ("best-of-n", ("a program of its own",), ()),
        ("grpo", (), ()),
    ],
)
def test_what_a_method_changes_and_needs(method, changes, needs):
    row = methods.row_of(next(e for e in ENTRIES if e.id == method))
    assert set(changes) <= set(row.changes) <= {*changes, "update"} and set(needs) <= set(row.needs)


@pytest.mark.parametrize(
    ("taken", "cost"),
    [({"processor_seconds": 480.0, "seconds": 900.0}, "8 min"), ({"seconds": 480.0}, "8 min, wall clock")],
)
def test_what_an_experiment_cost_has_its_unit(monkeypatch, taken, cost):
    entry = next(e for e in ENTRIES if e.id == "dr-grpo")
    result = {"arms": {"a": {}}, "effect": 0.5, "ci95": [0.25, 0.75], **taken}
    monkeypatch.setattr(methods, "is_doubted", lambda entry: False)
    monkeypatch.setattr(methods, "read_result", lambda name: result)
    row = methods.row_of(entry)
    assert (row.cost, row.minutes, row.effect, row.size) == (cost, 8.0, "0.5 [0.25, 0.75]", 0.5)
    monkeypatch.setattr(methods, "is_doubted", lambda entry: True)  # taken back: nothing of it is shown
    assert (methods.row_of(entry).effect, methods.row_of(entry).cost) == ("", "")
    page = methods.table_page([row])
    assert f'<td data-label="Cost">{cost}</td>' in page and 'data-minutes="8.0"' in page


def test_the_page_of_a_built_method_has_formulas_and_folds_long_code():
    code = "Sample(n=8) -> " + "Score(a<b) -> " * 20 + "Keep(x\\|y)"
    page = methods.with_formulas(f"# M\n\n## Method\n\n```text\nIt is x_i = 1.\n```\n\n| a |\n| --- |\n| `{code}` |\n")
    assert "<msub><mi>x</mi>" in page and "    It is x_i = 1." in page
    assert "<summary><code>Sample …</code></summary>" in page and "<br>Score(a&lt;b)<br>" in page
    assert "Keep(x&#124;y)</code></details>" in page
    assert methods.with_formulas("# A page without a docstring") == "# A page without a docstring"


def test_the_navigation_has_every_page_once(tmp_path):
    (tmp_path / "docs" / "surveys").mkdir(parents=True)
    for name in ("howto", "ledger", "loose", "surveys/b", "surveys/index"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"text\n# {name}: and more\n")
    nav = {k: v for part in build.navigation(tmp_path) for k, v in part.items()}
    assert nav["Palaestra"] == "README.md" and nav["How to"] == [{"howto": "docs/howto.md"}]
    inner = [{"surveys/index": "docs/surveys/index.md"}, {"surveys/b": "docs/surveys/b.md"}]
    assert nav["Explanation"] == [{"ledger": "docs/ledger.md"}, {"Surveys": inner}, {"loose": "docs/loose.md"}]
    placed = [p for family in nav["Methods"] for pages in family.values() for entry in pages for p in entry.values()]
    assert sorted(placed) == sorted(f"docs/methods/{e.id}.md" for e in ENTRIES if not e.page)


def test_arguments_of_a_command_are_written_as_they_are_typed():
    parser = argparse.ArgumentParser(prog="x")
    parser.add_argument("words", metavar="WORD", nargs="*", help="90%% of <it>")
    parser.add_argument("--n", type=int, help="how many")
    parser.add_argument("--kind", choices=("a", "b"))
    parser.add_argument("--quiet", action="store_true")
    assert list(reference.arguments_of(parser)) == [
        ("`WORD`", "90% of &lt;it&gt;"), ("`--n N`", "how many"), ("`--kind {a,b}`", ""), ("`--quiet`", ""),
    ]  # fmt: skip


def test_a_request_under_another_name_is_refused(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    with SiteServer(tmp_path) as server:
        assert server.server_address[0] == "127.0.0.1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(server.url) as answer:
            assert answer.read() == b"mine" and "default-src 'self'" in answer.headers["Content-Security-Policy"]
        request = urllib.request.Request(server.url, headers={"Host": "evil.example:80"})
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request)
        server.shutdown()


@pytest.mark.parametrize("address", ["%00", "a%00.html", "a/%00/b"])
def test_an_address_that_no_file_can_have_is_not_there(tmp_path, address, capfd):
    with SiteServer(tmp_path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.url + address)
        server.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def test_a_picture_that_is_missing_stays_a_picture():
    mend = lambda text: sources.without_dead_links(text, Path("docs/a.md"), set())
    assert mend("![p](gone.png)") == "![p](gone.png)"


def test_links_out_of_the_tree_become_text_and_those_in_code_stay():
    known = {"docs/a.md", "docs/b.md", "README.md"}
    page = Path("docs/a.md")
    mend = lambda text: sources.without_dead_links(text, page, known)
    assert mend("[x](b.md#y) [z](../README.md) [w](https://a.b) [s](#t)").count("](") == 4
    assert mend("[the claims](../palaestra/claims)") == "the claims (`palaestra/claims`)"
    assert mend("```\n[x](../gone.md)\n```") == "```\n[x](../gone.md)\n```"


def test_bars_in_code_inside_tables():
    assert sources.with_bars("| `a\\|b` | c |") == "| <code>a&#124;b</code> | c |"
    assert sources.with_bars("no table: `a\\|b`") == "no table: `a\\|b`"


def test_signatures_and_arguments_are_readable():
    assert reference.signature_of("credit.leave_one_out").startswith("pl.credit.leave_one_out(")
    assert " at 0x" not in reference.signature_of("train")
    assert list(reference.split_arguments("a: dict[str, int], b=(1, 2)")) == ["a: dict[str, int]", "b=(1, 2)"]
    import palaestra as pl

    assert "<dt><code>method</code></dt>" in reference.docstring_of(pl.recipe)


def test_an_entry_goes_on_in_its_next_line():
    assert reference.listed(["a: one", "  and two", "b: three"]) == (
        "<dl><dt><code>a</code></dt><dd>one and two</dd><dt><code>b</code></dt><dd>three</dd></dl>"
    )
    assert reference.listed(["nothing", "named"]) == "<p>nothing named</p>"


def test_code_with_bars_in_a_table_is_escaped():
    assert sources.with_bars("| `<a \\| b>` | x |") == "| <code>&lt;a &#124; b&gt;</code> | x |"
