"""What written games import of gymnasium, as files for the sandbox, which has no packages but numpy:
the base class, spaces that only say what they hold, and numpy's random generator. The texts are
indented, so that their classes do not count as classes of this package.
"""

from collections.abc import Mapping
from textwrap import dedent

BASE = dedent("""
    from . import spaces
    from .utils import seeding

    class Env:
        metadata = {}
        render_mode = None
        def reset(self, *, seed=None, options=None):
            self.np_random, _ = seeding.np_random(seed)
        def close(self):
            pass
        @property
        def unwrapped(self):
            return self
""")
SPACES = dedent("""
    class Space:
        def __init__(self, shape=None, dtype=None):
            self.shape, self.dtype = shape, dtype
        def contains(self, x):
            return True
        def __contains__(self, x):
            return self.contains(x)

    class Discrete(Space):
        def __init__(self, n, start=0, seed=None):
            super().__init__(())
            self.n, self.start = int(n), int(start)
        def contains(self, x):
            return self.start <= int(x) < self.start + self.n

    class Box(Space):
        def __init__(self, low=0, high=1, shape=None, dtype=None, seed=None):
            super().__init__(getattr(low, "shape", None) if shape is None else shape, dtype)
            self.low, self.high = low, high

    class MultiDiscrete(Space):
        def __init__(self, nvec, dtype=None, seed=None):
            super().__init__(None, dtype)
            self.nvec = nvec

    class MultiBinary(Space):
        def __init__(self, n, seed=None):
            super().__init__(n)
            self.n = n

    class Tuple(Space):
        def __init__(self, spaces, seed=None):
            super().__init__()
            self.spaces = tuple(spaces)

    class Dict(Space):
        def __init__(self, spaces=None, seed=None, **more):
            super().__init__()
            self.spaces = {**(spaces or {}), **more}
""")
SEEDING = dedent("""
    import numpy

    def np_random(seed=None):
        return numpy.random.default_rng(seed), seed
""")
FILES: Mapping[str, str] = {
    f"{name}/{file}": text
    for name in ("gymnasium", "gym")
    for file, text in (
        ("__init__.py", BASE),
        ("spaces.py", SPACES),
        ("utils/__init__.py", ""),
        ("utils/seeding.py", SEEDING),
    )
}
