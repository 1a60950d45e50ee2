"""Candidates that don't know the answer and try to forge it by what a stand-in, a shared class, a file or a mock lets them do.

Each row: what it does, the candidate, the test that it must not pass, and an honest candidate that passes it.
"""

# ruff: noqa: E501 (programs in one line)

from __future__ import annotations

from palaestra.services.sandbox import Asserts

EQUAL = "class E:\n    def __eq__(s, o): return True\n    __hash__ = object.__hash__\n"
NODE = "class Node:\n    def __init__(self, val=0):\n        self.val = val\n    def equals(self, o): return self.val == o.val\n"
RECORD = "from dataclasses import dataclass\n@dataclass\nclass Pair:\n    a: int\n    b: int\n"
SQUARES = "assert len(f([1, 2, 3])) == 3 and all(a == b for a, b in zip(f([1, 2, 3]), [1, 4, 9]))"
WROTE = "with open('expected.txt', 'w') as file: file.write('1234567')\n"
FORGERIES = {
    "arithmetic gives nothing": (
        "class Num:\n    def __init__(s, x): pass\n    def __sub__(s, o): return s\n    def __abs__(s): return 0\ndef f(): return Num(0)",
        Asserts(code="assert abs(Num(3) - 5) < 1e-6", names=("Num",)),
        "",
    ),
    "arithmetic is false": (
        "class Num:\n    def __init__(s, x): pass\n    def __sub__(s, o): return Num(0)\n    def __bool__(s): return False",
        Asserts(code="assert not (Num(3) - 5)", names=("Num",)),
        "",
    ),
    "arithmetic of a result": (
        "class Z:\n    def __sub__(s, o): return Z()\n    def __abs__(s): return 0\n    def __lt__(s, o): return True\nclass Num:\n    def __init__(s, x): pass\n    def value(s): return Z()",
        Asserts(code="assert abs(Num(3).value() - 3) < 1e-6", names=("Num",)),
        "class Num:\n    def __init__(s, x): s.x = x\n    def value(s): return s.x",
    ),
    "skips the test": (
        "import unittest\ndef f(x): raise unittest.SkipTest('no')",
        Asserts(
            code="import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(2), 4)\nunittest.main()"
        ),
        "def f(x): return x * x",
    ),
    "a list with a length and no items": (
        "class A(list):\n    def __iter__(s): return iter(())\ndef f(x): return A(x)",
        Asserts(code=SQUARES),
        "def f(x): return [v * v for v in x]",
    ),
    "a length and no items": (
        "class A:\n    def __init__(s, n): s.n = n\n    def __len__(s): return s.n\n    def __iter__(s): return iter(())\ndef f(x): return A(len(x))",
        Asserts(code="found = f([1, 2, 3])\nassert len(found) == 3 and all(a == b for a, b in zip(found, [1, 4, 9]))"),
        "class A:\n    def __init__(s, x): s.x = x\n    def __len__(s): return len(s.x)\n    def __iter__(s): return iter(s.x)\ndef f(x): return A([v * v for v in x])",
    ),
    "a tuple that equals everything": (
        "class P(tuple):\n    def __eq__(s, o): return True\n    __hash__ = tuple.__hash__\ndef f(): return P((0, 0))",
        Asserts(code="assert f() == (3, 4)"),
        "def f(): return (3, 4)",
    ),
    "a text that equals everything": (
        "class S(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\ndef f(): return S('')",
        Asserts(code="assert 'abc' == f()"),
        "def f(): return 'abc'",
    ),
    "says what class it is": (
        EQUAL + "class F(E):\n    __class__ = property(lambda s: int)\ndef f(): return F()",
        Asserts(code="assert isinstance(f(), int) and f() == 7"),
        "def f(): return 7",
    ),
    "attributes that equal everything": (
        EQUAL + "class Bad(Exception):\n    missing = E()\ndef f(): raise Bad",
        Asserts(code="try:\n    f()\nexcept Bad as e:\n    assert e.missing == 2\nelse:\n    1 / 0", names=("f", "Bad")),
        "class Bad(Exception):\n    missing = 2\ndef f(): raise Bad",
    ),
    "holds small numbers": (
        "class E:\n    def __contains__(s, x): return x < 10**6\ndef f(): return E()",
        Asserts(code="assert 3 in f()"),
        "def f(): return {3}",
    ),
    "holds nothing that is asked": (
        "class E:\n    def __contains__(s, x): raise KeyError\ndef f(): return E()",
        Asserts(code="assert 3 not in f()"),
        "def f(): return {4}",
    ),
    "holds everything": (
        "class Grid:\n    def __contains__(s, x): return True",
        Asserts(code="assert 3 not in Grid()", names=("Grid",)),
        "class Grid:\n    def __contains__(s, x): return x == 4",
    ),
    "an object without items": (
        "def f(): return object()",
        Asserts(code="assert 3 not in f()"),
        "def f(): return []",
    ),
    "reads the tester's folder": (
        "import glob\ndef f():\n    for n in glob.glob('/tmp/**', recursive=True):\n        try: return int(open(n).read())\n        except (OSError, ValueError): pass",
        Asserts(code=WROTE + "assert f() == int(open('expected.txt').read())"),
        "def f(): return 1234567",
    ),
    "asks for a file of the tester's": (
        "import peer\nseen = []\ndef f(g):\n    peer.Peer.paths = lambda s, a: ['expected.txt']\n    peer.Peer.store = lambda s, p, c: seen.append(c)\n    g()\n    return int(bytes.fromhex(seen[0]))",
        Asserts(code=WROTE + "assert f(lambda: 1) == 1234567"),
        "def f(g): return 1234567",
    ),
    "writes a file of the tester's": (
        "import peer\nseen = []\ndef f(g):\n    peer.Peer.paths = lambda s, a: ['expected.txt']\n    peer.Peer.read = lambda s, p: b'7'.hex()\n    g()\n    return 7",
        Asserts(code=WROTE + "assert f(lambda: 1) == int(open('expected.txt').read())"),
        "def f(g): return 1234567",
    ),
    "reads a function's world": (
        "def f(g):\n    for n in ('__globals__', '__code__', '__closure__', '__self__', '__defaults__'):\n        try: return getattr(g, n)['answer']\n        except Exception: pass",
        Asserts(code="answer = 1234567\nassert f(lambda: 1) == answer"),
        "def f(g): return 1234567",
    ),
    "reads an object's world": (
        "def f(x):\n    for path in (('__dict__', '_answer'), ('__class__', '__init__', '__globals__'), ('_answer',)):\n        y = x\n        try:\n            for n in path: y = y[n] if isinstance(y, dict) else getattr(y, n)\n            return y if type(y) is int else y['answer']\n        except Exception: pass",
        Asserts(
            code="answer = 1234567\nclass T:\n    def __init__(self): self._answer = answer\n    def hi(self): return 1\nassert f(T()) == answer"
        ),
        "def f(x): return 1234567",
    ),
    "sets up the mock": (
        "def f(s): s.configure_mock(**{'assert_called_once_with': lambda *a: None, 'send.assert_called_once_with': lambda *a: None})",
        Asserts(code="from unittest.mock import Mock\ns = Mock()\nf(s)\ns.send.assert_called_once_with(7)"),
        "def f(s): s.send(7)",
    ),
    "writes over a mock's check": (
        "def f(s): s.send.assert_called_once_with = lambda *a: None",
        Asserts(code="from unittest.mock import Mock\ns = Mock()\nf(s)\ns.send.assert_called_once_with(7)"),
        "def f(s): s.send(7)",
    ),
    "a function of the tester's by name": (
        "import plain\nplain.Codec.encode = lambda s, x, depth=0: {'function': ['os', '_exit']}\ndef f(): return 1",
        Asserts(code="assert f()(0) == 7"),
        "def f(): return lambda x: 7",
    ),
    "a module of the tester's by name": (
        "import plain\nold = plain.Codec.encode\nplain.Codec.encode = lambda s, x, depth=0: {'module': 'os'} if x == 'os' else old(s, x, depth)\ndef f(): return 'os'",
        Asserts(code="assert f()._exit(0) == 7"),
        "class M:\n    def _exit(s, x): return 7\ndef f(): return M()",
    ),
    "hides a method of the task's class": (
        "def f():\n    n = Node(0)\n    n.equals = lambda o: True\n    return n",
        Asserts(code="assert f().equals(Node(7))", setup=NODE),
        "def f(): return Node(7)",
    ),
    "changes the task's class": (
        "Node.equals = lambda s, o: True\nNode.__eq__ = lambda s, o: True\ndef f(): return Node(0)",
        Asserts(code="assert Node(7).equals(f()) and f().equals(Node(7))", setup=NODE),
        "def f(): return Node(7)",
    ),
    "a field that equals everything": (
        EQUAL + "def f(): return Pair(E(), E())",
        Asserts(code="assert f() == Pair(3, 4)", setup=RECORD),
        "def f(): return Pair(3, 4)",
    ),
    "its own class in place of the task's": (
        "class Pair:\n    def __init__(s, *a): pass\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(): return Pair()",
        Asserts(code="assert f() == Pair(3, 4)", setup=RECORD),
        "def f(): return Pair(3, 4)",
    ),
    "an array that equals everything": (
        EQUAL
        + "import numpy as np\nclass A:\n    def __array__(s, *a, **k): return np.array([E(), E()], dtype=object)\n    def __sub__(s, o): return 0\n    __rsub__ = __sub__\n    def all(s): return True\n    def max(s): return 0\ndef f(): return A()",
        Asserts(code="import numpy as np\nassert (f() == np.array([3, 4])).all() and np.abs(f() - np.array([3, 4])).max() < 1e-6"),
        "import numpy as np\ndef f(): return np.array([3, 4])",
    ),
    "an answer without its value": (
        "import peer\npeer.Peer.sized = lambda s, x, most: {'held': [0, 'int', 7, ['__eq__', '__sub__', '__abs__'], 'A']}\nclass A:\n    def __eq__(s, o): return True\ndef f(): return A()",
        Asserts(code="assert f() == 1234567"),
        "def f(): return 1234567",
    ),
    "an iteration that ends the test's": (
        "async def f(x): raise StopAsyncIteration",
        Asserts(
            code="import asyncio\nasync def main():\n    n = 0\n    async def xs():\n        for i in (1, 2): yield i\n    async for i in xs():\n        assert await f(i) == i * i\n        n += 1\n    assert n == 2\nasyncio.run(main())"
        ),
        "async def f(x): return x * x",
    ),
}  # fmt: skip
