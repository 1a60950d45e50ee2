"""A long method says why: recipes are counted, and those without a reason stand in a list that only shrinks."""

from pathlib import Path

from tools.method_lines import LONGEST, all_lines, count, lines_table, listed, unexplained

RECIPE = '''"""A method.
{why}
"""
import palaestra as pl

CARD = pl.Card(
    title="x",
)


class Room:
    def reset(self, task, key):
        return used_by_the_room()

    def step(self, state, acts, key):
        return state


def used_by_the_room():
    return 1


def helper(x):
    """Says nothing.

    More of it.
    """
    # a comment
    return x


def build():
{body}
    return helper(Room())


def embedded():
    return build()
'''


def written(tmp_path, body, why=""):
    file = tmp_path / "mine.py"
    file.write_text(RECIPE.format(body="\n".join(f"    x{i} = {i}" for i in range(body)), why=why))
    return count(file)


def test_what_build_reaches_is_the_method_and_a_world_is_brought_along(tmp_path):
    lines = written(tmp_path, 10)
    assert lines.method == 2 + 10 + 2  # helper; build
    assert lines.brought == 5 + 2 + 2  # the world, what it alone uses, embedded
    assert lines.beside == 0


def test_a_folder_counts_its_other_files_apart(tmp_path):
    (tmp_path / "__init__.py").write_text(RECIPE.format(body="    pass", why=""))
    (tmp_path / "other.py").write_text("x = 1\ny = 2\n")
    assert count(tmp_path / "__init__.py").beside == 2


def test_a_long_method_without_a_reason_is_seen(tmp_path):
    long, why = LONGEST, "\nLong because it has many steps."
    assert unexplained([written(tmp_path, long)]) == ["mine"]
    assert unexplained([written(tmp_path, long, why)]) == []
    assert unexplained([written(tmp_path, 10)]) == []


def test_no_recipe_is_long_without_a_reason_but_those_listed():
    """What is mended leaves the list: it only shrinks."""
    assert unexplained(all_lines()) == listed(), 'say why in the docstring ("Long because ..."), or cut the method'


def test_the_page_has_the_medians():
    page = (Path(__file__).parents[2] / "docs" / "code.md").read_text()
    assert "<!-- methods: " in page and "long ones</summary>" in page
    assert lines_table(all_lines()).startswith("Of ")
