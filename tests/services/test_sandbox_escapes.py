"""What hostile code tries against the sandbox. All of it is contained, in warm and cold runs and in sessions.

An attempt prints ESCAPED where it got through. `host` is what it aims at: a file, a variable, sockets of this process.
"""

# ruff: noqa: E501 (programs in one line)

from __future__ import annotations

import os
import platform
import random
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from palaestra.services.sandbox import (
    Asserts,
    Limits,
    check_python,
    open_session,
    run_program,
    sandbox_kind,
    seccomp,
)

from tests.services.forgeries import FORGERIES

REFUSAL = sandbox_kind().refusal()
pytestmark = pytest.mark.skipif(
    bool(REFUSAL) or sandbox_kind().name != "bubblewrap", reason=REFUSAL or "isolation is off"
)
LIMITS = Limits(seconds=2.0, memory_mb=256, output_bytes=100_000, file_mb=8, processes=16)
QUICK = Limits(seconds=0.4, memory_mb=256, output_bytes=100_000, file_mb=8, processes=16)
SECRET = "canary-3f1c9a"


def tries(body: str) -> str:
    """The attempt succeeded if `body` raises nothing."""
    indented = "\n".join("    " + line for line in body.strip().split("\n"))
    return f"try:\n{indented}\nexcept BaseException as e:\n    print('contained', type(e).__name__)\nelse:\n    print('ESCAPED')"


def call(number: int | None, *arguments: str) -> str:
    """A raw system call that the filter must answer: EPERM, or ENOSYS as if there were none."""
    given = ", ".join(map(str, (number, *arguments)))
    return tries(
        f"import ctypes\nfound = ctypes.CDLL(None, use_errno=True).syscall({given})\n"
        "if found < 0 and ctypes.get_errno() in (1, 38): raise PermissionError"
    )


NETWORK = {
    "tcp to the host": tries("import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)"),
    "udp": tries("import socket\nsocket.socket(2, 2).sendto(b'x', ('8.8.8.8', 53))"),
    "dns": tries("import socket\nsocket.getaddrinfo('localhost.localdomain.example', 80)"),
    "unix socket": tries("import socket\nsocket.socket(1).connect({path!r})"),
    "abstract socket": tries("import socket\nsocket.socket(1).connect('\\0' + {abstract!r})"),
    "vsock": tries("import socket\nsocket.socket(40, 1)"),
    "netlink": tries("import socket\nsocket.socket(16, 3, 0)"),
    "raw packets": tries("import socket\nsocket.socket(17, 3, 0)"),
    "kernel crypto": tries("import socket\nsocket.socket(38, 5, 0)"),
}
FILES = {
    "passwords": tries("open('/etc/passwd').read()"),
    "a host file": tries("open({file!r}).read()"),
    "a symlink to it": tries("import os\nos.symlink({file!r}, 'l')\nopen('l').read()"),
    "climbing out": tries("import os\nopen('/tmp/' + '../' * 20 + {file!r}).read()"),
    "the home": tries("import os\nassert os.listdir({home!r})\nopen({home!r} + '/.bashrc').read()"),
    "write the library": tries("import os\nopen(os.path.dirname(os.__file__) + '/evil.py', 'w').write('x')"),
    "write the supervisor": tries("open('/sandbox/work.py', 'a').write('x')"),
    "write the root": tries("open('/evil', 'w').write('x')"),
    "write devices' folder": tries("open('/dev/evil', 'w').write('x')"),
    "a block device": tries("import os\nos.mknod('d', 0o60600, os.makedev(254, 0))\nopen('d', 'rb').read(1)"),
    "kernel memory": tries("open('/dev/mem', 'rb').read(1)"),
    "chroot": tries("import os\nos.chroot('/tmp')"),
    "mount": tries("import ctypes\nassert ctypes.CDLL(None).mount(b'proc', b'/tmp', b'proc', 0, None) == 0"),
    "proc": tries("import os\nassert os.listdir('/proc')"),
    "another's environment": tries("open('/proc/1/environ').read()"),
    "another's descriptors": tries("import os\nassert os.listdir('/proc/1/fd')"),
    "another's memory": tries("open('/proc/1/mem', 'rb').read(1)"),
    "kernel settings": tries("open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x')"),
    "environment": tries("import os\nassert os.environ['PALAESTRA_TEST_SECRET']"),
    "environment in memory": tries("import os\nassert {secret!r} in str(dict(os.environ))"),
}
RIGHTS = {
    "become root": tries("import os\nos.setuid(0)"),
    "groups": tries("import os\nos.setgroups([0])"),
    "set-user-id file": tries(
        "import os, subprocess\nassert b'euid=0' in subprocess.run(['/usr/bin/su', '-c', 'id'], capture_output=True).stdout"
    ),
    "raise a limit": tries("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))"),
    "priority": tries("import os\nos.setpriority(os.PRIO_PROCESS, 0, -20)"),
    "kill the parent": tries("import os\nassert os.getppid() != 0\nos.kill(os.getppid(), 9)"),
    "kill the supervisor": tries("import os\nfor pid in range(3, 200): os.kill(pid, 9)"),
    "extra descriptors": tries("import os, stat\nassert any(live(n) for n in range({first}, 256))".replace(
        "import os, stat\n", "import os\ndef live(n):\n    try: os.fstat(n); return True\n    except OSError: return False\n")),
    "user namespace by clone": tries("import ctypes\nassert ctypes.CDLL(None).syscall(56, 0x10000011, 0, 0, 0, 0) >= 0"),
    "terminal": tries("import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')"),
}  # fmt: skip
X86 = {
    "ptrace": call(101, "16, 1, 0, 0"),
    "process_vm_readv": call(310, "1, 0, 0, 0, 0, 0"),
    "unshare": call(272, "0x10000000"),
    "setns": call(308, "0, 0"),
    "keyctl": call(250, "0, -3, 1"),
    "bpf": call(321, "0, 0, 0"),
    "userfaultfd": call(323, "0"),
    "perf": call(298, "0, 0, -1, -1, 0"),
    "io_uring": call(425, "1, 0"),
    "memfd": call(319, "b'x', 0"),
    "shared memory": call(29, "0, 4096, 0o1600"),
    "clone3": call(435, "0, 0"),
    "statmount": call(457, "0, 0, 0, 0"),
    "listmount": call(458, "0, 0, 0, 0"),
    "open_tree_attr": call(467, "-100, b'/tmp', 0, 0, 0"),
    "listns": call(470, "0, 0, 0, 0"),
    "security modules": call(461, "0, 0, 0"),
    "cachestat": call(451, "0, 0, 0, 0"),
    "vmsplice": call(278, "0, 0, 0, 0"),
    "asynchronous files": call(206, "1, 0"),
    "a call of a kernel to come": call(471, "0, 0, 0, 0"),
    "a larger socket buffer": tries("import socket\nsocket.socketpair()[0].setsockopt(1, 7, 1 << 22)"),
    "a larger pipe": tries("import fcntl, os\nfcntl.fcntl(os.pipe()[1], 1031, 1 << 20)"),
    "32-bit calls": (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\nprint('ESCAPED')"
    ),
}
ATTEMPTS = NETWORK | FILES | RIGHTS | (X86 if platform.machine() == "x86_64" else {})
FILL = """import os, socket, time
def connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]
kept = []
for _ in range(14):
    if os.fork() == 0:
        try:
            while True:
                kept += {pair}
                kept[-2].setblocking(False)
                try:
                    while True: kept[-2].send(b"x" * {size})
                except BlockingIOError: pass
        except OSError: pass
        time.sleep(9)
time.sleep(9)"""
GREED = {  # (program, statuses it may end with): limits, not rights
    "memory at once": ("x = bytearray(10 << 30)", {"memory"}),
    "memory in steps": ("x = []\nwhile True: x.append(bytearray(1 << 22))", {"memory"}),
    "memory of many": (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = b'x' * (100 << 20)\n        time.sleep(9)\ntime.sleep(9)",
        {"memory"},
    ),
    "disk": ("f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))", {"error"}),
    "disk in many files": ("i = 0\nwhile True:\n    i += 1\n    open(f'f{i}', 'wb').write(bytes(1 << 20))", {"error"}),
    "output": ("while True: print('x' * 1000)", {"output"}),
    "error output": ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", {"output"}),
    "output below python": ("import os\nwhile True: os.write(1, b'x' * 65536)", {"output"}),
    "deep recursion": ("def f(): f()\nf()", {"error"}),
    "recursion into C": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return repr(x) and f([x])\nf([])",
        {"error", "memory", "timeout"},
    ),
    "threads": ("import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()", {"error", "timeout", "memory"}),
    "crash": ("import ctypes\nctypes.string_at(0)", {"error"}),
    "sockets": ("import socket\nx = []\nwhile True: x.append(socket.socketpair())", {"error"}),
    "buffers of sockets": (FILL.format(pair="socket.socketpair()", size=65536), {"memory"}),
    "buffers of datagrams": (FILL.format(pair="socket.socketpair(type=socket.SOCK_DGRAM)", size=8192), {"memory"}),
    "buffers of TCP": (FILL.format(pair="connected()", size=65536), {"memory"}),
}  # fmt: skip
STUBBORN = {  # these never end by themselves
    "busy loop": "while True: pass",
    "deaf to signals": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except: pass\nwhile True: pass",
    "swallows everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "in one C call": "sum(range(10**12))",
    "closed its output": "import os, time\nos.close(1); os.close(2)\ntime.sleep(99)",
    "fork bomb": "import os\nwhile True: os.fork()",
    "sleeping bomb": "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(99)",
    "vfork into another": "import os, sys\nos.execv(sys.executable, ['x', '-c', 'while True: pass'])",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """What there is to steal: an open port, two sockets, a file, a variable."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret").write_text(SECRET)
    tcp, unix, abstract = (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
    )
    names = {"path": str(folder / "s"), "abstract": f"palaestra-{os.getpid()}"}
    for listening, name in ((unix, names["path"]), (abstract, "\0" + names["abstract"])):
        listening.bind(name)
        listening.listen()
    os.environ["PALAESTRA_TEST_SECRET"] = SECRET
    home = os.path.expanduser("~")
    yield names | {"port": tcp.getsockname()[1], "file": str(folder / "secret"), "home": home, "secret": SECRET}
    del os.environ["PALAESTRA_TEST_SECRET"]
    for listening in (tcp, unix, abstract):
        listening.close()


def aimed(code: str, host, first: int = 3) -> str:
    for name, what in (host | {"first": first}).items():
        code = code.replace("{" + name + "}", str(what)).replace("{" + name + "!r}", repr(what))
    return code


def in_session(code: str, limits: Limits):
    with open_session(limits=limits) as opened:
        return opened.run(code)


MODES = {
    "warm": lambda code, limits: run_program(code, limits=limits),
    "cold": lambda code, limits: run_program(code, limits=limits, fresh=True),
    "session": in_session,
}


def clean():
    """The next run finds nothing of the last one's."""
    ran = run_program(
        "import os, builtins, sys\nprint(os.listdir('/tmp'), hasattr(builtins, 'evil'), 'evil' in sys.modules)"
    )
    assert ran.stdout == "['main.py'] False False\n", ran


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_is_contained(mode, name, host):
    code = aimed(ATTEMPTS[name], host, first=4 if mode == "session" else 3)
    ran = MODES[mode](code, LIMITS)
    assert "ESCAPED" not in ran.stdout and SECRET not in ran.stdout
    assert ran.status == ("error" if name == "32-bit calls" else "ok"), ran
    if ran.status == "ok":
        assert "contained" in ran.stdout, ran


@pytest.mark.parametrize(
    "name", ["tcp to the host", "unix socket", "abstract socket", "a host file", "passwords", "environment"]
)
def test_the_attempts_are_real(name, host):
    """The same code gets through where nothing stops it."""
    command = [sys.executable, "-c", aimed(ATTEMPTS[name], host)]
    assert "ESCAPED" in subprocess.run(command, capture_output=True, text=True).stdout


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GREED)
def test_greed_is_bounded(mode, name):
    code, statuses = GREED[name]
    ran = MODES[mode](code, LIMITS)
    assert ran.status in statuses, ran
    assert len(ran.stdout) + len(ran.stderr) <= LIMITS.output_bytes + 100
    assert ran.seconds < LIMITS.seconds + 1
    clean()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STUBBORN)
def test_the_stubborn_end(mode, name):
    ran = MODES[mode](STUBBORN[name], QUICK)
    assert ran.status in {"timeout", "error"}, ran
    assert ran.seconds < QUICK.seconds + 1
    clean()


LEFTOVERS = {
    "a file": "open('evil.py', 'w').write('x')",
    "a file in shared memory": "open('/dev/shm/evil', 'w').write('x')",
    "a module": "import sys, types\nsys.modules['evil'] = types.ModuleType('evil')",
    "a builtin": "import builtins\nbuiltins.evil = 1\nbuiltins.print = lambda *a: None",
    "an import hook": "import sys\nclass Hook:\n    def find_spec(self, *a): raise SystemExit\nsys.meta_path.insert(0, Hook())",
    "a daemon": "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: open('/tmp/evil', 'w')",
    "an exit handler": "import atexit, time\natexit.register(time.sleep, 99)",
    "a semaphore": "import multiprocessing\nmultiprocessing.Lock()",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LEFTOVERS)
def test_nothing_is_left_behind(mode, name):
    MODES[mode](LEFTOVERS[name], QUICK)
    clean()


SCAN = """
import ctypes, gc, re
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
def mapped(page):
    return libc.mincore(ctypes.c_void_p(page), 4096, ctypes.create_string_buffer(1)) == 0
gc.unfreeze()
regions = {id(o) >> 20 for o in gc.get_objects()} | {id(bytes(n)) >> 20 for n in (10, 100, 400)}
pages = {(r << 20) + 4096 * i for r in regions for i in range(-256, 512)}
page = (libc.sbrk(0) & ~4095) - 4096
while mapped(page):
    pages.add(page)
    page -= 4096
print(sum(len(re.findall(rb'[n]eedle-77aa', ctypes.string_at(p, 4096))) for p in pages if mapped(p)))
"""


def test_nothing_of_a_run_is_in_the_memory_of_the_next():
    """The interpreter that forks the runs never holds their code, input, tests or output."""
    needle = "needle-" + "77aa"
    for size in (1, 5, 100, 3000):
        run_program(f"x = input()\nprint('{needle}' + x)", stdin=needle * size)
        check_python(f"x = '{needle}'", [Asserts(code=f"assert x == '{needle}'")])
    assert (
        int(run_program("kept = ''.join(['needle', '-77aa']) * 20\n" + SCAN).stdout) >= 20
    )  # the scan does find things
    assert run_program(SCAN).stdout == "0\n"


ADD = "def add(a, b): return a + b\n"
CHEATS = {  # candidates that don't know the answer and want the point
    "exits well": "import sys\nsys.exit(0)",
    "exits well at once": "import os\nos._exit(0)",
    "exits well when called": "import os\ndef add(a, b): os._exit(0)",
    "raises SystemExit when called": "def add(a, b): raise SystemExit(0)",
    "equals everything": "class A:\n    def __eq__(self, o): return True\ndef add(a, b): return A()",
    "an int that equals everything": "class A(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\ndef add(a, b): return A(0)",
    "differs by nothing": "class A:\n    def __sub__(self, o): return 0\n    __rsub__ = __sub__\n    def __abs__(self): return 0\ndef add(a, b): return A()",
    "patches assert": "import builtins\nbuiltins.AssertionError = None\ndef add(a, b): return 0",
    "patches builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.isinstance = lambda *a: True\nabs = lambda x: 0\ndef add(a, b): return 0",
    "shadows builtins": "all = any = abs = lambda *a: True\ndef add(a, b): return 0",
    "kills the tester": "import os, signal\nfor s in (9, 15, 19):\n    try: os.kill(1, s)\n    except OSError: pass\ndef add(a, b): return 0",
    "writes modules": "for n in ('peer', 'json', 'test', 'math', 'wire'): open(f'/tmp/{n}.py', 'w').write('def same(*a): return True')\ndef add(a, b): return 0",
    "writes the test": "open('/tmp/test.py', 'w').write('')\nopen('/tmp/main.py', 'w').write('')\ndef add(a, b): return 0",
    "floods the descriptors": "import os\nfor n in range(3, 256):\n    try: os.write(n, b'\\x02\\0\\0\\0{}' * 99)\n    except OSError: pass\ndef add(a, b): return 0",
    "looks in the frames": "import re, sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        for n in re.findall(r'== (\\d{4,})', repr(f.f_locals) + repr(f.f_globals)): return int(n)\n        f = f.f_back\n    return 0",
    "looks in the heap": "import gc, re\ndef add(a, b):\n    gc.unfreeze()\n    for o in gc.get_objects():\n        for n in re.findall(r'== (\\d{4,})', str(o) if type(o) in (list, dict, tuple) else ''): return int(n)\n    return 0",
    "traces": "import sys\nsys.settrace(lambda *a: sys.exit(0))\ndef add(a, b): return 0",
    "answers nonsense": "import os\ndef add(a, b):\n    os.write(3, b'\\xff' * 1000)\n    os._exit(0)",
    "answers for itself": "import os, struct\ndef add(a, b):\n    m = b'{\"value\": true, \"args\": [1, 2]}'\n    os.write(3, struct.pack('<I', len(m)) + m)\n    return 0",
    "says it is deep": "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "hangs": "def add(a, b):\n    while True: pass",
    "forks a tester": "import os\nif os.fork():\n    os._exit(0)\ndef add(a, b): return 0",
}  # fmt: skip
DRAW = random.Random(18)
A, B = DRAW.randrange(10**6, 10**7), DRAW.randrange(10**6)
TESTS = [
    Asserts(code=f"assert add({A}, {B}) == {A + B}"),
    Asserts(code=f"assert abs(add({A}, {B}) - {A + B}) < 1e-6"),
    Asserts(code=f"try:\n    x = add({A}, {B})\nexcept Exception:\n    x = 0\nassert x == {A + B}"),
    Asserts(code=f"import math, json\nassert all([math.isclose(add({A}, {B}), {A + B})]) and isinstance(add({A}, {B}), int)"),
]  # fmt: skip


def test_a_container_of_the_candidates_does_not_say_what_is_in_it():
    """`in` is decided beside the test, by the items."""
    universal = "class E:\n    def __contains__(s, x): return True\n    def __iter__(s): return iter((1, 2))\ndef f(*a): return E()"
    tests = [Asserts(code=f"assert {x} in f(10)") for x in (3, "'a'", 2)]
    assert check_python(universal, tests, QUICK).passed == (False, False, True)
    assert not any(check_python(universal.replace("__iter__", "other"), tests, QUICK).passed)
    assert check_python("def f(n): return {n: 1}", [Asserts(code="assert 3 in f(3) and 4 not in f(3)")]).passed == (
        True,
    )


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gets_nothing(name):
    tested = check_python(CHEATS[name], TESTS, QUICK)
    assert tested.passed == (False,) * len(TESTS), tested


def test_honest_code_passes_the_same_tests():
    assert check_python(ADD, TESTS, LIMITS).passed == (True,) * len(TESTS)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_gets_nothing_where_honest_code_passes(name):
    cheat, test, honest = FORGERIES[name]
    assert check_python(cheat, [test], LIMITS).passed == (False,)
    assert not honest or check_python(honest, [test], LIMITS).passed == (True,)


def answer(number: int, arguments: tuple[int, ...] = (), machine: str = "x86_64", arch: int | None = None) -> int:
    """What the filter's program returns for a system call, by the rules of classic BPF."""
    program = seccomp.program(machine)
    _, own = seccomp.MACHINES[machine]
    data = struct.pack("<IIQ6Q", number, own if arch is None else arch, 0, *(*arguments, *[0] * 6)[:6])
    at = accumulator = 0
    while True:
        code, yes, no, k = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == seccomp.RETURN:
            return k
        if code == seccomp.LOAD:
            (accumulator,) = struct.unpack_from("<I", data, k)
        else:
            holds = {
                seccomp.EQUAL: accumulator == k,
                seccomp.ABOVE: accumulator >= k,
                seccomp.ANY_BIT: bool(accumulator & k),
            }
            at += yes if holds[code] else no


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_closes_what_it_names_and_lets_the_rest_through(machine):
    column, _ = seccomp.MACHINES[machine]
    closed = {n[column] for n in seccomp.NUMBERS.values() if n[column] is not None}
    assert all(answer(n, machine=machine) == seccomp.ERRNO | 1 for n in closed)
    new = range(seccomp.LAST + 1, seccomp.LAST + 60)
    assert all(answer(n, machine=machine) in (seccomp.ERRNO | 38, seccomp.ERRNO | 1) for n in new)
    special = {x[column] for x in (seccomp.CLONE, seccomp.CLONE3, seccomp.SOCKET)}
    rest = set(range(seccomp.LAST + 1)) - closed - special
    assert all(answer(n, machine=machine) == seccomp.ALLOW for n in rest)
    option = seccomp.SETSOCKOPT[column]
    assert [answer(option, (3, 1, o), machine) for o in (7, 8, 32, 33, 2)] == [seccomp.ERRNO | 1] * 4 + [seccomp.ALLOW]
    assert answer(option, (3, 6, 7), machine) == seccomp.ALLOW  # another level's option 7
    pipe = seccomp.FCNTL[column]
    assert [answer(pipe, (3, x), machine) for x in (1031, 1032)] == [seccomp.ERRNO | 1, seccomp.ALLOW]
    families = [answer(seccomp.SOCKET[column], (f,), machine) for f in (1, 2, 10, 16, 17, 40)]
    assert families == [seccomp.ALLOW] * 3 + [seccomp.ERRNO | 97] * 3
    assert answer(0, machine=machine, arch=0x40000003) == answer(0x40000001, machine=machine) == seccomp.KILL


def test_a_few_sockets_are_no_memory():
    code = "import socket\nkept = [socket.socketpair() for _ in range(40)]\nkept[0][0].send(b'x' * 1000)\n"
    assert run_program(code + "import time\ntime.sleep(.2)\nprint(1)", limits=LIMITS).stdout == "1\n"


def test_the_page_counts_what_is_tried_here():
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    counted = {
        "attempts": len(ATTEMPTS) * len(MODES),
        "greed": len(GREED) * len(MODES),
        "never end": len(STUBBORN) * len(MODES),
        "left behind": len(LEFTOVERS) * len(MODES),
        "cheats": len(CHEATS) * len(TESTS),
        "forgeries": len(FORGERIES),
    }
    rows = dict(re.findall(r"^\| ([a-z ]+) \|.*\| (\d+) \| 0 \|$", page, flags=re.MULTILINE))
    assert {k: int(v) for k, v in rows.items()} == counted
