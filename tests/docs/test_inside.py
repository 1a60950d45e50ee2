"""The blocks of docs/inside.md run as they stand there, and show what the page says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/inside.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_a_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ran = subprocess.run([sys.executable, "-c", BLOCKS[block]], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.splitlines()[-1]
    if block == 0:
        digit, shuffled = map(float, said.split())
        assert digit > 0.9 > 0.4 > shuffled
    if block == 1:
        (_, plain), (_, moved) = ast.literal_eval(said)
        assert plain[0] == plain[1] and moved[0] > 1.3 * plain[0], "longer, and back to what it was"
    if block == 2:
        logp = [float(x) for x in said.split()]
        assert logp == sorted(logp) and logp[-1] > logp[0] + 0.1
