"""The blocks of docs/control.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/control.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_a_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ran = subprocess.run([sys.executable, "-c", BLOCKS[block]], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    if block == 0:
        assert (tmp_path / "runs/rooms/policy.safetensors").is_file()
    if block == 1:
        asked = [line.split()[1] for line in lines]
        assert len(lines) == 3 and all(int(n) > 50 for n in asked) and {line.split()[2] for line in lines} == {"0"}
    if block == 2:
        assert "'reached': 8," in lines[0] and lines[1].startswith("[")
    if block == 3:
        assert "no quantity 'reward'" in lines[-1]
