"""A folder of designs: three layouts, benches left out, and what is missing."""

import pytest
from palaestra.errors import UserError
from palaestra.tasks.designs import design_items
from palaestra.tasks.files import FileTasks

FILES = {
    "adder.txt": "Adds.", "adder.v": "module adder; endmodule",
    "Prob1_prompt.txt": "Inverts.", "Prob1_ref.sv": "module inv; endmodule", "Prob1_test.sv": "module tb; endmodule",
    "mux/design_description.txt": "Chooses.", "mux/verified_mux.v": "module mux; endmodule",
    "mux/testbench.v": "module tb; endmodule", "README.md": "About.", ".git/x.v": "no design",
}  # fmt: skip


def folder_of(place, files):
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def test_each_design_has_the_text_beside_it(tmp_path):
    items = {i["id"]: (i["prompt"], i["answer"]) for i in design_items(folder_of(tmp_path, FILES))}
    assert items == {
        "adder": ("Adds.", "module adder; endmodule"),
        "Prob1": ("Inverts.", "module inv; endmodule"),
        "mux": ("Chooses.", "module mux; endmodule"),
    }
    tasks = FileTasks(path=str(tmp_path))
    assert tasks.size + tasks.test_size == 3 and "module" in tasks.task("train", 0).answer


def test_what_belongs_to_no_design_is_said(tmp_path):
    assert design_items(folder_of(tmp_path / "none", {"a.txt": "x"})) == []
    two = {"a.v": "module a; endmodule", "b.v": "module b; endmodule", "a.txt": "A."}
    for name, files, why in (
        ("two", two, r"b\.v: 0 specifications .* b\.txt"),
        ("many", {"a.v": "x", "a.txt": "x", "a.md": "y"}, "2 specifications"),
        ("empty", {"a.v": "", "a.txt": "x"}, "is empty"),
    ):
        with pytest.raises(UserError, match=why):
            design_items(folder_of(tmp_path / name, files))
