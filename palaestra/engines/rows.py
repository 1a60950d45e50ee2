"""How many rows a product may have so that each row gets the same bits in any company.

A matrix product adds up a row in the order that its kernel likes. Libraries choose the kernel by the
number of rows (a single row, a few, a remainder that fills no tile), by the processor and by the
number of threads, so that the last bits of a row depend on how many others are in the product. No
constant is right everywhere: what holds for a product is measured here, once for every shape, and
rows of zeros fill up to a number at which it holds.

The measurement takes a fraction of a second for a shape. It is kept in this process and in
`~/.cache/palaestra/rows.json` (`XDG_CACHE_HOME`), by processor, library, threads, and the variables
of the environment that choose kernels.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from palaestra.processor import arithmetic, processor

Product = Callable[[Tensor], Tensor]  # [N, K] -> [N, M], row by row
# numbers of rows that are tried: all where kernels change most often, then those beside powers of two
COUNTS = (*range(1, 34), 36, 40, 47, 48, 49, 63, 64, 65, 96, 100, 127, 128, 129, 192, 252, 255, 256)
MANY = (512, 1000, 3000)  # rows of long prompts
WORK = 2e9  # multiplications that a count may take to be tried; 33 rows are always tried
# of kernels, in the environment
CHOOSERS = ("MKL_", "ONEDNN_", "DNNL_", "FBGEMM_", "ATEN_CPU_CAPABILITY")


class RowRule(NamedTuple):
    """Numbers of rows at which the bits of a row are the same: multiples of `multiple`, at least
    `least`. With `blocks` no more than `least` at a time.
    """

    least: int = 1
    multiple: int = 1
    blocks: bool = False

    def up(self, n: int) -> int:
        """The smallest such number from n on; a number of whole blocks where there are blocks."""
        step = self.least if self.blocks else self.multiple
        return max(self.least, -(-n // step) * step)

    def apply(self, product: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """The product of rows [N, ...], with rows of zeros below where there are too few."""
        n = len(rows[0])
        wanted = self.up(n)
        if wanted > n:
            rows = tuple(pad(x, (0, 0, 0, wanted - n)) for x in rows)
        if self.blocks:
            parts = zip(*(x.split(self.least) for x in rows), strict=True)
            out = torch.cat([product(*part) for part in parts])
        else:
            out = product(*rows)
        return out[:n] if wanted > n else out


ANY = RowRule()
# in the order of what they cost a few rows
CANDIDATES = tuple(
    RowRule(least, multiple)
    for least in (1, 2, 4, 8, 16, 32, 64)
    for multiple in (1, 2, 4, 8, 16, 32, 64)
    if multiple <= least
)
BLOCKS = (RowRule(16, 16, True), RowRule(64, 64, True))


def join(rules: Iterable[RowRule | None]) -> RowRule | None:
    """One rule that meets several; None where one of them is None."""
    every = list(rules)
    known = [r for r in every if r is not None]
    if len(known) < len(every):
        return None
    multiple = math.lcm(*(r.multiple for r in known))
    least = -(-max((r.least for r in known), default=1) // multiple) * multiple
    return RowRule(least, multiple, any(r.blocks for r in known))


@torch.no_grad()
def measure(
    product: Product, width: int, work: float = 0.0, tried: Sequence[int] = (*COUNTS, *MANY)
) -> RowRule | None:
    """The cheapest rule under which a product gives a row the same bits whatever the number of rows
    and its place among them; None where no rule is known that does.

    Args:
        product: of rows [N, width], at any N.
        work: multiplications that it takes for a row; counts that take too long are left out.
        tried: rising numbers of rows, 64 among them.
    """
    most = max(64, int(WORK / max(work, 1.0)))
    counts = [n for n in tried if n <= most]
    x = torch.randn(counts[-1], width, generator=torch.Generator().manual_seed(0))
    base = next(n for n in reversed(counts) if n % 64 == 0)  # which every candidate allows
    whole = product(x[:base])
    turned = product(x[:base].roll(1, 0))
    if torch.equal(turned[1:], whole[:-1]) and torch.equal(turned[0], whole[-1]):
        same = {n for n in counts if _agrees(product, x, n, whole)}
        for rule in CANDIDATES:
            if all(n in same for n in counts if rule.up(n) == n):
                return rule
    return next((rule for rule in BLOCKS if _in_blocks(rule, product, x[:256])), None)


def _agrees(product: Product, x: Tensor, n: int, whole: Tensor) -> bool:
    """Whether n rows have the bits that they have among others."""
    out, both = product(x[:n]), min(n, len(whole))
    return torch.equal(out[:both], whole[:both])


def _in_blocks(rule: RowRule, product: Product, x: Tensor) -> bool:
    """Whether the place in a block does not matter, a block's rows being always as many."""
    whole, turned = rule.apply(product, x), rule.apply(product, x.roll(1, 0))
    return torch.equal(turned[1:], whole[:-1]) and torch.equal(turned[0], whole[-1])


_known: dict[tuple[str, ...], RowRule | None] = {}
_forced: list[RowRule] = []


@contextmanager
def force(rule: RowRule) -> Generator[None]:
    """Within it every product gets this rule, unmeasured: to see that a wrong one is noticed."""
    _forced.append(rule)
    try:
        yield
    finally:
        _forced.pop()


def rule_for(
    kind: str,
    product: Product,
    width: int,
    columns: int,
    dtype: str,
    tried: Sequence[int] = (*COUNTS, *MANY),
) -> RowRule | None:
    """The rule of a product of rows [N, width] with [width, columns], from memory, from the file of
    an earlier process, or measured now.

    Args:
        kind: which operator it is.
        dtype: in which it computes, for instance "float32".
        tried: rising numbers of rows that are measured, 64 among them.
    """
    if _forced:
        return _forced[-1]
    key = (*_surroundings(), kind, str(width), str(columns), dtype, str(torch.get_num_threads()))
    if key not in _known:
        kept, name = _read(), " | ".join(key)
        _known[key] = (
            kept[name] if name in kept else measure(product, width, width * columns, tried)
        )
        if name not in kept:
            _write(name, _known[key])
    return _known[key]


@cache
def _surroundings() -> tuple[str, ...]:
    """What decides which kernels there are."""
    chosen = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(CHOOSERS))
    level = torch.backends.cpu.get_cpu_capability()
    return (processor(), ", ".join(arithmetic()), level, torch.__version__, *chosen)


def _file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "palaestra" / "rows.json"


def _read() -> dict[str, RowRule | None]:
    """What earlier processes measured; nothing of a file that cannot be read or holds anything
    else.
    """
    try:
        kept = json.loads(_file().read_text())
        return {str(k): None if v is None else _checked(*v) for k, v in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError):
        return {}


def _checked(least: int, multiple: int, blocks: bool) -> RowRule:
    rule = RowRule(int(least), int(multiple), bool(blocks))
    if rule not in (*CANDIDATES, *BLOCKS):
        raise ValueError(f"{rule} is no rule")
    return rule


def _write(key: str, rule: RowRule | None) -> None:
    """Adds to the file; two processes that write at once lose a measurement, never the file."""
    try:
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
            json.dump(_read() | {key: rule}, new)
        os.replace(new.name, file)
    except (OSError, RuntimeError):
        pass  # a home that cannot be written: it is measured again
