"""Right programs of many kinds pass their tests in the sandbox, and the wrong ones beside them do not.

`programs.txt` has the cases; what is right and what is wrong is what plain Python says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from palaestra.services.sandbox import Asserts, Limits, check_python, sandbox_kind

REFUSAL = sandbox_kind().refusal()
runs = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
PLAIN = """
import io, json, os, resource, signal, sys
cases = json.load(sys.stdin)
sys.stdin = sys.__stdin__ = io.StringIO()
sys.argv[:] = ["test.py"]
found = []
for number, parts in enumerate(cases):
    child = os.fork()
    if not child:
        code = 1
        signal.alarm(20)
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        try:
            folder = os.path.join(os.environ["HOME"], str(number))
            os.mkdir(folder)
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for part in parts:
                exec(compile(part, "case.py", "exec"), globals())
            code = 0
        except SystemExit as error:
            code = error.code or 0
        except BaseException as error:
            pass
        finally:
            os._exit(code)
    found.append(os.waitpid(child, 0)[1])
print(json.dumps(found))
"""


def read_cases() -> dict[str, dict[str, str]]:
    text = (Path(__file__).parent / "programs.txt").read_text()
    found = {}
    for case in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        head, _, body = case.partition("\n")
        name, _, names = head.partition("|")
        parts = re.split(r"^--- (\w+)\n", body, flags=re.MULTILINE)[1:]
        found[name.strip()] = {"names": names, "setup": ""} | dict(zip(parts[::2], parts[1::2], strict=True))
    return found


CASES = read_cases()


def passes(case: dict[str, str], code: str) -> bool:
    test = Asserts(code=case["test"], setup=case["setup"], names=tuple(case["names"].split()))
    return check_python(code, [test], Limits(seconds=10.0)).passed == (True,)


def test_plain_python_says_which_is_right(tmp_path):
    programs = [(c["setup"], c[which], c["test"]) for c in CASES.values() for which in ("right", "wrong")]
    command = [sys.executable, "-c", PLAIN]
    ran = subprocess.run(
        command,
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    codes = json.loads(ran.stdout.splitlines()[-1])
    names = [f"{name}, {which}" for name in CASES for which in ("right", "wrong")]
    assert [n for n, code in zip(names, codes, strict=True) if (code == 0) != n.endswith("right")] == []


@runs
@pytest.mark.parametrize("name", CASES)
def test_a_right_program_passes_and_a_wrong_one_does_not(name):
    case = CASES[name]
    assert (passes(case, case["right"]), passes(case, case["wrong"])) == (True, False)
