"""The sandbox as its callers see it: statuses, sessions, unit tests with a verdict, refusal, and what it leaves behind."""

# ruff: noqa: E501 (programs in one line)

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.cli.main import main
from palaestra.errors import Fault, UserError
from palaestra.services import sandbox
from palaestra.services.sandbox import (
    Asserts,
    Calls,
    Limits,
    Stdio,
    bubblewrap,
    check_python,
    open_session,
    run_program,
    sandbox_kind,
    seccomp,
)
from palaestra.services.sandbox.check import check_with
from palaestra.services.sandbox.needs import script
from palaestra.services.sandbox.values import CheckScript, Ran, Tested
from palaestra.services.sandbox.worker import LocalSandbox

REFUSAL = sandbox_kind().refusal()
runs = pytest.mark.skipif(bool(REFUSAL) or sandbox_kind().name != "bubblewrap", reason=REFUSAL or "isolation is off")
QUICK = Limits(seconds=0.3)


@runs
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("code", "status", "stdout", "stderr"),
    [
        ("print(input())", "ok", "3\n", ""),
        ("import sys\nprint(sys.stdin.read(), end='')\nsys.exit(0)", "ok", "3\n4", ""),
        ("print('a'); raise ValueError('b')", "error", "a\n", 'File "main.py", line 1'),
        ("import sys; sys.exit(3)", "error", "", ""),
        ("import sys; sys.exit('why')", "error", "", "why\n"),
        ("x = (", "error", "", "SyntaxError"),
        ("print('a', flush=True)\nwhile True: pass", "timeout", "a\n", ""),
        ("bytearray(1 << 40)", "memory", "", "MemoryError"),
        ("print('x' * 2_000_000)", "output", "x" * 1_000_000, ""),
        ("import os; os.kill(os.getpid(), 11) or exec('import ctypes; ctypes.string_at(0)')", "error", "", "signal 11"),
        ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('t'))).start()", "ok", "t\n", ""),
        ("import atexit\natexit.register(print, 'bye')", "ok", "bye\n", ""),
        ("if __name__ == '__main__': print(__file__)", "ok", "main.py\n", ""),
        ("print(open('data/a.txt').read())", "ok", "A\n", ""),
        ("from helper import f\nprint(f())", "ok", "7\n", ""),
        ("import multiprocessing as m\nif __name__ == '__main__':\n    with m.Pool(2) as p: print(p.map(abs, [-1, -2]))", "ok", "[1, 2]\n", ""),
    ],
)  # fmt: skip
def test_a_program_and_its_status(code, status, stdout, stderr, fresh):
    files = {"data/a.txt": "A", "helper.py": b"def f(): return 7"}
    limits = QUICK if status == "timeout" else Limits()
    ran = run_program(code, stdin="3\n4", files=files, limits=limits, fresh=fresh)
    assert (ran.status, ran.stdout) == (status, stdout), ran
    assert stderr in ran.stderr and "/sandbox" not in ran.stderr


@runs
@settings(max_examples=15)
@given(st.text(max_size=50), st.text(max_size=50))
def test_text_comes_through_unchanged(stdin, text):
    program = f"import sys\nsys.stdout.write({text!r} + sys.stdin.buffer.read().decode(errors='surrogateescape'))"
    ran = run_program(program, stdin=stdin)
    whole = text + stdin
    assert (ran.status, ran.stdout) == ("ok", whole), ran


@runs
def test_large_input_and_output():
    data = "0123456789" * 300_000
    ran = run_program("import sys\nprint(len(sys.stdin.read()))\nprint('y' * 900_000)", stdin=data)
    assert ran.stdout == "3000000\n" + "y" * 900_000 + "\n"


@runs
def test_a_session_keeps_names_and_shows_values():
    with open_session(files={"a.txt": "A"}) as cells:
        assert cells.run("x = 20\ndef f(n): return n + x").status == "ok"
        assert cells.run("y = 1\nf(22)").stdout == "42\n"
        failed = cells.run("print(y)\n1 / 0")
        assert (failed.status, failed.stdout) == ("error", "1\n") and "<cell 3>" in failed.stderr
        assert cells.run("open('a.txt').read()").stdout == "'A'\n"
        assert cells.run("import sys; sys.exit(1)").status == "error"
        assert cells.run("x = (").status == "error"
        assert cells.run("x").stdout == "20\n"
        assert cells.run("bytearray(1 << 40)").status == "memory"
        assert cells.run("input()").status == "error"
        assert cells.run("x").stdout == "20\n"


@runs
def test_a_cell_that_breaks_a_limit_ends_the_session():
    with open_session() as cells:
        cells.run("x = 1")
        assert cells.run("while True: pass", QUICK).status == "timeout"
        after = cells.run("x")
        assert after.status == "error" and "restarted" in after.stderr
        assert cells.run("print('z' * 100)", Limits(output_bytes=50)).status == "output"
        assert cells.run("import os; os._exit(0)").status == "ok"
        assert "restarted" in cells.run("1").stderr


@runs
def test_a_session_is_frozen_between_cells():
    with open_session() as cells:
        cells.run("import threading, itertools\nn = 0\ndef count():\n    global n\n    while True: n += 1")
        cells.run("threading.Thread(target=count, daemon=True).start()")
        first = int(cells.run("n").stdout)
        time.sleep(0.5)
        gained = int(cells.run("n").stdout) - first
        time.sleep(0.01)
        spun = -int(cells.run("n").stdout)
        spun += int(cells.run("import time; time.sleep(0.3); n").stdout)
        assert gained < spun  # half a second of pause counts less than a third of a second of running


@runs
def test_sessions_do_not_see_each_other():
    with open_session() as one, open_session() as two:
        one.run("x = 1\nopen('f', 'w').write('1')")
        assert two.run("x").status == two.run("open('f')").status == "error"


@runs
def test_the_kinds_of_test():
    code = (
        "import math\nclass Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n"
        "    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)\n"
        "    def __add__(self, o): return len(self) + len(o)\n"
        "def sort(x): x.sort()\ndef twice(f, x): return f(f(x))\ndef pairs(n):\n    for i in range(n): yield i, str(i)\n"
        "def fail(): raise KeyError('k')\ndef max(a, b): return a if a > b else b\ndef third(x): return x / 3\nLIMIT = 5\n"
    )
    tests = [
        Asserts(
            code="s = Stack()\ns.push(3)\ns.push((1, {2}))\nassert s.pop() == (1, {2}) and len(s) == 1 and s.items == [3]"
        ),
        Asserts(code="x = [3, 1, 2]\nsort(x)\nassert x == [1, 2, 3]"),
        Asserts(code="assert twice(lambda v: v * 3, 2) == 18"),
        Asserts(
            code="assert list(pairs(2)) == [(0, '0'), (1, '1')] and LIMIT == 5 and math.pi > 3",
            names=("pairs", "LIMIT"),
        ),
        Asserts(code="try:\n    fail()\nexcept KeyError:\n    pass\nelse:\n    raise AssertionError"),
        Asserts(code="def check(candidate):\n    assert candidate(9) == 3.0\ncheck(third)"),
        Asserts(code="a, b = Stack(), Stack()\na.push(1)\nassert a + b == 1"),
        Calls(function="max", args=(3, 4), expected=4),
        Calls(function="third", args=(1,), expected=0.33333333333),
        Calls(function="Stack().__len__", expected=0),
        Stdio(stdin="", stdout="\n"),
    ]
    tested = check_python(code, tests)
    assert tested.passed == (True,) * 11, tested
    wrong = [
        Asserts(code="assert third(9) == 4"),
        Calls(function="max", args=(3, 4), expected=3),
        Stdio(stdin="", stdout="1"),
    ]
    assert check_python(code, wrong).passed == (False,) * 3
    assert check_python("def f(): return [1, (2, 1.0)]", [Calls(function="f", expected=(1, [2, 1]))]).passed == (True,)
    assert check_python("def f(): return True", [Calls(function="f", expected=1)]).passed == (False,)
    assert check_python("x = (", [Asserts(code="pass")]).passed == (False,)


LARGE = """import math
sieve = [True] * 3_000_000
text = 'x' * (1 << 25)
loop = []
loop.append(loop)
deep = []
for _ in range(10**5): deep = [deep]
def fact(n): return math.factorial(n)
def ones(n): return [1] * n
def fill(x): x += [1]
"""


@runs
@pytest.mark.parametrize(
    "test",
    ["assert fact(2000) == math.factorial(2000) and fact(-(-2000)) > 1", "assert ones(10**5) == [1] * 10**5",
     "assert len(sieve) == 3_000_000 and sieve[7] and len(ones(10**7)) == 10**7", "assert loop[0] is not None and len(deep) == 1",
     "x = [0] * 10**5\nfill(x)\nassert len(x) == 10**5 + 1", "x = math.factorial(3000)\nassert ones(1) == [1] and fact(3000) == x"],
)  # fmt: skip
def test_large_values_do_not_refuse_right_code(test):
    names = ("fact", "ones", "sieve", "loop", "deep", "fill")
    assert check_python(LARGE, [Asserts(code=test, names=names)]).passed == (True,)


@runs
def test_a_test_wants_what_it_reads_of_the_candidate():
    assert script(Asserts(code="assert f(1) == 2", names=("f", "g"))).wanted == ("f",)
    assert script(Asserts(code="assert f(1) == 2")).wanted == ("f",)
    assert script(Calls(function="f", args=(math.inf,), expected=-math.inf)).wanted == (
        "f",
    )  # `inf` is no name of the candidate's


def test_the_first_that_does_not_end_by_itself_names_the_status():
    class Fake:
        def __init__(self, *statuses):
            self.statuses, self.seconds = list(statuses), []

        def refusal(self):
            return ""

        def check(self, code, test, limits):
            self.seconds.append(limits.seconds)
            return Ran(status=self.statuses.pop(0))

    tests = [Asserts(code="assert f()")] * 4
    kind = Fake("error", "timeout", "memory", "ok")
    found = check_with(kind, "", tests, Limits(seconds=5.0), budget=2.0)
    assert found == Tested(passed=(False, False, False, True), status="timeout")
    assert all(0 < s <= 2 for s in kind.seconds)  # no more than what is left of the budget
    assert check_with(Fake("ok", "error", "ok", "ok"), "", tests, Limits()).status == "error"


def test_every_test_has_its_own_limit():
    code = "def f(n):\n    while n: pass\n    return n"
    tested = check_python(
        code, [Calls(function="f", args=(1,), expected=0), Calls(function="f", args=(0,), expected=0)], QUICK
    )
    assert (tested.passed, tested.status) == ((False, True), "timeout")


@runs
def test_a_busy_loop_dies_within_its_limit_and_a_second():
    begin = time.monotonic()
    assert run_program("while True: pass", limits=QUICK).status == "timeout"
    assert time.monotonic() - begin < QUICK.seconds + 1


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def inside() -> set[int]:
    """Processes of sandboxes that this process or its ended children started, not those of tests that run beside it."""
    found = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = b"/sandbox/__main__.py" in file.read()
            above = pid
            while ours and above > 1 and above != os.getpid():
                above, below = parent(above), above
                ours = below == os.getpid() or above != os.getppid()
            if ours:
                found.add(pid)
        except OSError:
            pass
    return found


@runs
def test_no_run_leaves_a_process():
    before = inside()
    own = LocalSandbox()
    daemon = "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass\n    os._exit(0)\nprint(1)"
    for _ in range(20):
        assert own.run(daemon, "", {}, Limits()).stdout == "1\n"
    opened = own.session({}, Limits())
    opened.run(daemon)
    opened.close()
    own.close()
    deadline = time.monotonic() + 5
    while inside() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not inside() - before


@runs
def test_a_worker_outlives_the_thread_that_asked_for_it():
    own, found = LocalSandbox(), []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(own.run("print(1)", "", {}, Limits()).stdout))
        thread.start()
        thread.join()
    assert found == ["1\n"] * 3 and len(own.pool.idle) == 1
    own.close()


@runs
def test_the_sandbox_ends_with_the_program_that_started_it():
    program = (
        "import os, threading, time\nfrom palaestra.services.sandbox import run_program as run\nprint(run('1').status, flush=True)\n"
        "threading.Thread(target=run, args=('while True: pass',), daemon=True).start()\ntime.sleep(.3)\nos.kill(os.getpid(), 9)"
    )
    before = inside()
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "ok\n"
    deadline = time.monotonic() + 5
    while inside() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not inside() - before


INTERRUPTED = r"""import os, signal, sys, threading
from palaestra.services import sandbox
from palaestra.services.sandbox import Limits, open_session, run_program
def interrupt(): os.kill(os.getpid(), signal.SIGINT)
run_program("1")
long = Limits(seconds=60)
with open_session() as cells:
    doings = {
        "run": lambda: run_program("while True: pass", limits=long),
        "cold": lambda: run_program("while True: pass", limits=long, fresh=True),
        "check": lambda: sandbox.check_python("def f(): return f()\nwhile True: pass", [sandbox.Asserts(code="assert f()")], long),
        "session": lambda: cells.run("while True: pass", long),
    }
    threading.Timer(0.5, interrupt).start()
    try:
        doings[sys.argv[1]]()
    except KeyboardInterrupt:
        print("interrupted", run_program("print(7)").stdout.strip(), cells.run("8").stdout.strip(), flush=True)
        sys.stdin.read()
"""


@runs
@pytest.mark.parametrize("doing", ["run", "cold", "check", "session"])
def test_an_interrupted_run_ends_while_the_program_goes_on(doing):
    """Of what ran nothing is left, although the program that was interrupted lives and runs more."""
    busy = lambda: {p for p in inside() if is_busy(p)}
    before = busy()
    command = [sys.executable, "-c", INTERRUPTED, doing]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "interrupted 7 8\n"
        deadline = time.monotonic() + 5
        while busy() - before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not busy() - before
        process.stdin.close()  # type: ignore[union-attr]


def is_busy(pid: int) -> bool:
    """Whether it is running, and still is a moment later: an idle worker waits."""
    for _ in range(3):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] != "R":
                    return False
        except OSError:
            return False
        time.sleep(0.02)
    return True


@runs
def test_a_worker_that_died_is_replaced_and_a_second_death_is_a_fault(monkeypatch):
    own = LocalSandbox()
    own.run("1", "", {}, Limits())
    own.pool.idle[0].process.kill()
    assert own.run("print(1)", "", {}, Limits()).stdout == "1\n"
    own.close()
    monkeypatch.setattr(bubblewrap, "find", lambda: "/bin/false")
    with pytest.raises(Fault, match="ended with status 1"):
        own.run("1", "", {}, Limits())


@runs
@pytest.mark.parametrize("mode", ["run", "check", "session"])
def test_a_set_up_that_fails_is_a_fault_and_nobodys_outcome(mode):
    """Here the run's folder is too small for its files; a mount that is refused or a machine that is too slow is the same."""
    own, files, limits = LocalSandbox(), {"main.py": "#" * (2 << 20)}, Limits(file_mb=1)
    with pytest.raises(Fault, match=r"could not be set up: .*No space left"):
        if mode == "run":
            own.run(files["main.py"], "", {}, limits)
        elif mode == "check":
            own.check(files["main.py"], CheckScript(code="pass"), limits)
        else:
            own.session(files, limits).run("1")
    assert own.run("print(1)", "", {}, Limits()).stdout == "1\n"
    own.close()


def test_limits_and_names_are_checked():
    with pytest.raises(UserError, match="memory_mb"):
        Limits(memory_mb=1)
    with pytest.raises(UserError, match="seconds"):
        Limits(seconds=0)
    if not REFUSAL:
        with pytest.raises(UserError, match=r"\.\./x"):
            run_program("", files={"../x": ""})


@pytest.fixture
def without_bubblewrap(monkeypatch):
    monkeypatch.setattr(bubblewrap, "find", lambda: None)
    monkeypatch.delenv(bubblewrap.UNSAFE_VARIABLE, raising=False)
    sandbox_kind.cache_clear()
    yield
    sandbox_kind.cache_clear()


def test_without_bubblewrap_it_refuses(without_bubblewrap, tmp_path, capsys):
    ran = run_program("open('/tmp/ran', 'w')")
    assert ran.status == "refused" and "install bubblewrap" in ran.stderr
    with open_session() as cells:
        assert cells.run("1").status == "refused"
    assert check_python("", [Asserts(code="")]) == sandbox.Tested(passed=(False,), status="refused")
    (tmp_path / "a.py").write_text("print(1)")
    assert main(["sandbox", "run", str(tmp_path / "a.py")]) == 2
    out = capsys.readouterr()
    assert "install bubblewrap" in out.err and out.out == ""
    assert main(["sandbox", "run", str(tmp_path / "a.py"), "--json"]) == 2
    out = capsys.readouterr()
    found = json.loads(out.out)
    assert found.keys() == {"status", "stdout", "stderr", "seconds"} and (found["status"], found["stdout"]) == (
        "refused",
        "",
    )
    assert "install bubblewrap" in found["stderr"] and "install bubblewrap" in out.err


def test_namespaces_that_are_forbidden_are_a_reason(monkeypatch):
    monkeypatch.setattr(bubblewrap, "find", lambda: "/bin/false")
    reason = LocalSandbox().refusal()
    assert "namespaces" in reason and bubblewrap.UNSAFE_VARIABLE in reason


def test_the_opt_out_is_loud(without_bubblewrap, monkeypatch, capsys):
    monkeypatch.setenv(bubblewrap.UNSAFE_VARIABLE, "1")
    with pytest.warns(RuntimeWarning, match="runs as you"):
        assert run_program("print(input())", stdin="4").stdout == "4\n"
    assert "WARNING" in capsys.readouterr().err and sandbox_kind().name == "unsafe"
    assert run_program("while True: pass", limits=QUICK).status == "timeout"
    assert run_program("bytearray(1 << 40)").status == "memory"
    with open_session() as cells:
        cells.run("x = 1")
        assert cells.run("x").stdout == "1\n"
    assert check_python("def f(): return 1", [Calls(function="f", expected=1)]).passed == (True,)
    sandbox_kind().close()


def test_the_filter_of_either_machine():
    """Every jump stays inside the program, which ends in a return."""
    for machine in seccomp.MACHINES:
        program = seccomp.program(machine)
        n = len(program) // 8
        for i in range(n):
            code, yes, no = program[8 * i], program[8 * i + 2], program[8 * i + 3]
            assert code == seccomp.RETURN or i + 1 + max(yes, no) < n
        assert program[-8] == seccomp.RETURN


@runs
def test_the_command_line(tmp_path, capsys):
    (tmp_path / "a.py").write_text("print(input() * 2)\nimport time\ntime.sleep(float(input()))")
    (tmp_path / "in").write_text("ab\n9\n")
    words = ["sandbox", "run", str(tmp_path / "a.py"), "--stdin", str(tmp_path / "in"), "--timeout", "0.3", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"status", "stdout", "stderr", "seconds"}
    assert (found["status"], found["stdout"]) == ("timeout", "abab\n")
    assert main(["sandbox", "run", str(tmp_path / "none.py")]) == 2


@runs
def test_the_bench_writes_what_it_measured(tmp_path, capsys):
    assert main(["bench", "sandbox", "--n", "10", "--orphans", "0", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "sandbox.json").read_text())
    assert "orphans" not in found and found["per_second"].keys() == {"bare", "cold", "warm"}
    assert found["busy_loop"]["seconds"] < 2 and {"machine", "command"} <= found.keys()
