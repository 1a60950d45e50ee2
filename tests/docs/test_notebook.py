"""The notebook of examples/ runs from its first cell to its last, at smoke size."""

from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples/notebook/first_run.ipynb"


def test_no_output_is_kept_in_the_file():
    notebook = nbformat.read(FILE, as_version=4)
    nbformat.validate(notebook)
    assert all(not c.outputs and c.execution_count is None for c in notebook.cells if c.cell_type == "code")


def test_its_cells_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(FILE, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert "STEPS = 10" in code[0].source
    code[0].source = code[0].source.replace("STEPS = 10", "STEPS = 2")
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    assert "<svg" in code[1].outputs[-1].data["text/html"]
    assert "'step': 2" in code[2].outputs[-1].data["text/plain"]
    assert "mod 10" in code[3].outputs[-1].data["text/plain"]
    assert "checkpoints/step-2" in code[4].outputs[-1].data["text/plain"]
