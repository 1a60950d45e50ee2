"""What the machine's processor is called, and in which numbers it computes."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# flags of Linux by what they stand for, x86 and ARM
ARITHMETIC = {
    "AVX2": {"avx2"},
    "AVX-512": {"avx512f"},
    "NEON": {"asimd"},
    "AVX-512 bfloat16": {"avx512_bf16"},
    "AMX bfloat16": {"amx_bf16", "amx_tile"},
    "NEON bfloat16": {"bf16", "asimd"},
    "AVX-512 VNNI": {"avx512_vnni"},
    "AVX VNNI": {"avx_vnni"},
    "AMX int8": {"amx_int8", "amx_tile"},
    "NEON dot products": {"asimddp"},
}


def processor() -> str:
    return _line("model name") or platform.processor()


def arithmetic() -> list[str]:
    """What of ARITHMETIC the processor has; nothing where Linux does not say it."""
    flags = set((_line("flags") or _line("Features")).split())
    return [name for name, needed in ARITHMETIC.items() if needed <= flags]


def computes_bfloat16() -> bool:
    """Whether products in bfloat16 are instructions here, and not put together from others."""
    return any(name.endswith("bfloat16") for name in arithmetic())


def _line(name: str) -> str:
    """Of the first core's description; "" where there is none."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return ""
    return next(
        (x.partition(":")[2].strip() for x in lines if x.partition(":")[0].strip() == name), ""
    )
