"""What other packages add by Python entry points: recipes, problems, verifiers, engines, trackers.

    [project.entry-points."palaestra.verifiers"]
    vowels = "my_package.vowels:Vowels"

The groups are `palaestra.` and a kind of `KINDS`; `examples/plugin` is such a package. Entry points
are read where a name is none of ours, and for listings, never on import. A name of ours always
means ours: what else is called so is not used, and `palaestra doctor` says it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from palaestra.errors import PalaestraError, UserError
from palaestra.suggest import suggestion_or_all
from palaestra.types import value_class

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
KINDS: Mapping[str, str] = {  # and what one of a kind is called
    "recipes": "recipe",
    "tasks": "task",
    "worlds": "world",
    "verifiers": "verifier",
    "engines": "engine",
    "trackers": "tracker",
}
PROBLEMS = ("tasks", "worlds")  # --task names both, so none may be called as another
NAME = re.compile(r"[a-z][a-z0-9-]*")  # every flag can hold it beside brackets, weights, projects
LONGEST = 300  # characters of another package's error that are shown
IMPORT = {"importlib", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}


@value_class
class Plugin:
    """One thing that a package adds: its kind, its name, and where it comes from."""

    kind: str
    name: str
    package: str  # the distribution and its version
    summary: str  # what the package says of itself
    entry: EntryPoint

    def __str__(self) -> str:
        return f"the {KINDS[self.kind]} {self.name!r} of the package {self.package}"

    @property
    def module(self) -> str:
        """The module that it is imported from."""
        return re.split(r"[:\s\[]", self.entry.value, maxsplit=1)[0]

    def refusal(self, why: str, given: bool = False) -> UserError:
        """The one line for what is wrong with it; `given`: perhaps the settings that it got are."""
        settings = "change its settings, or " if given else ""
        brief = " ".join(why.split())[:LONGEST]
        return UserError(f"{self}: {brief}; {settings}mend or uninstall the package")

    def load(self) -> Any:
        """The object. Raises UserError with what happened while it was imported."""
        try:
            with kept_streams():
                return self.entry.load()
        except (Exception, SystemExit) as error:
            why = f"cannot be loaded from {self.entry.value}: {blame(error)}"
            raise self.refusal(why) from error

    def factory(self, kind: type | UnionType, noun: str) -> Callable[..., Any]:
        """The object as what makes values of a kind. A call raises UserError for another kind."""
        make = self.load()
        try:
            inspect.signature(make)  # which says the settings that it takes
        except (TypeError, ValueError):
            why = f"{self.entry.value} is no class or function; it should make {noun}"
            raise self.refusal(why) from None

        @functools.wraps(make, updated=())  # of a class, its attributes are not its maker's
        def made(*arguments: Any, **settings: Any) -> Any:
            try:
                with kept_streams():
                    x = make(*arguments, **settings)
            except PalaestraError:  # which says itself what is wrong
                raise
            except (Exception, SystemExit) as error:
                raise self.refusal(f"fails: {blame(error)}", bool(settings)) from error
            if not isinstance(x, kind):
                why = f"{self.entry.value} made {type(x).__name__}; it should make {noun}"
                raise self.refusal(why)
            return x

        return made


@contextmanager
def kept_streams() -> Generator[None]:
    """Standard output and error are open behind the block as they were before it, whatever another
    package does with them.
    """
    before = {1: sys.stdout, 2: sys.stderr}
    copies: dict[int, int] = {}
    for number in before:
        with suppress(OSError):  # closed already
            copies[number] = os.dup(number)
    try:
        yield
    finally:
        for number, copy in copies.items():
            if not _is_same(number, copy):
                os.dup2(copy, number)
            os.close(copy)
        streams = {n: s if _is_open(s) else _reopened(n) for n, s in before.items()}
        sys.stdout, sys.stderr = streams[1], streams[2]


def _is_same(number: int, copy: int) -> bool:
    try:
        return os.path.samestat(os.fstat(number), os.fstat(copy))
    except OSError:
        return False


def _is_open(stream: TextIO | None) -> bool:
    try:
        if stream is not None:
            stream.flush()
    except (ValueError, OSError):
        return False
    return True


def _reopened(number: int) -> TextIO:
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


class Extended(Mapping[str, Any]):
    """Ours by name, then the plugins of a kind, as `take` makes something of each.

    Which plugins there are is read when a name is asked for that is none of ours, or all names are.
    """

    def __init__(
        self,
        ours: Mapping[str, Any],
        kind: str,
        take: Callable[[Plugin], Any] = Plugin.load,
    ) -> None:
        self.ours, self.kind, self.take = ours, kind, take

    def __getitem__(self, name: str) -> Any:
        if name in self.ours:
            return self.ours[name]
        plugin = find(self.kind, name)
        if plugin is None:
            raise KeyError(name)
        return self.take(plugin)

    def __contains__(self, name: object) -> bool:
        return name in self.ours or any(p.name == name for p in plugins(self.kind))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.ours, *(p.name for p in plugins(self.kind))]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def plugins(kind: str) -> tuple[Plugin, ...]:
    """All that installed packages add of a kind, by name; two packages may add the same name."""
    return _read(kind, tuple(sys.path))


@functools.lru_cache(maxsize=16)
def _read(kind: str, path: tuple[str, ...]) -> tuple[Plugin, ...]:
    from importlib.metadata import entry_points  # which nobody waits for who adds nothing

    every: list[Plugin] = []
    for entry in entry_points(group=f"palaestra.{kind}"):
        package, summary = "without a name", ""
        if entry.dist is not None:
            package = f"{entry.dist.name} {entry.dist.version}"
            summary = str(entry.dist.metadata.json.get("summary", ""))
        plugin = Plugin(kind=kind, name=entry.name, package=package, summary=summary, entry=entry)
        every.append(plugin)
    return tuple(sorted(every, key=lambda p: (p.name, p.package)))


def find(kind: str, name: str) -> Plugin | None:
    """The plugin of a name that is none of ours; None = there is none.

    Raises UserError where another one has the name too, or the name is none that a flag can hold.
    """
    mine = [p for p in plugins(kind) if p.name == name]
    if mine and (why := _reason(mine[0], ())):
        raise UserError(f"{mine[0]}: {why}")
    return mine[0] if mine else None


def pick(kind: str, name: str, ours: Mapping[str, T], take: Callable[[Plugin], T]) -> T:
    """What a name means: ours, else what `take` makes of the plugin.

    Raises UserError, with what may have been meant, where there is neither.
    """
    if name in ours:
        return ours[name]
    if (plugin := find(kind, name)) is not None:
        return take(plugin)
    known = [*ours, *(p.name for p in plugins(kind))]
    raise UserError(f"no {KINDS[kind]} {name!r}{suggestion_or_all(name, known)}")


def refused(kind: str, ours: Collection[str]) -> Mapping[Plugin, str]:
    """The plugins of a kind, each with the reason why it is not used; "" = it is."""
    return {p: _reason(p, ours) for p in plugins(kind)}


def _reason(plugin: Plugin, ours: Collection[str]) -> str:
    if plugin.name in ours:
        noun = "problem" if plugin.kind in PROBLEMS else KINDS[plugin.kind]
        return f"{plugin.name!r} means palaestra's own {noun}; rename this one"
    if not NAME.fullmatch(plugin.name):
        return "its name is to be lower-case letters, digits and -, and to begin with a letter"
    kinds = PROBLEMS if plugin.kind in PROBLEMS else (plugin.kind,)
    same = [p for k in kinds for p in plugins(k) if p.name == plugin.name and p is not plugin]
    return f"there is also {same[0]}; uninstall one of the packages" if same else ""


def providers(modules: Iterable[str]) -> frozenset[Plugin]:
    """The plugins of those packages that some of these modules, which are imported, belong to."""
    ours = {"", "palaestra", *sys.stdlib_module_names}
    homes = {home(m) for m in modules} - ours
    kinds = KINDS if homes else ()
    return frozenset(p for k in kinds for p in plugins(k) if home(p.module) in homes)


def home(module: str) -> str:
    """The outermost package or module with a file that an imported module lies in; "" = none.

    A namespace package has no file: what lies in it may come from several distributions.
    """
    parts = module.split(".")
    outwards = (".".join(parts[: i + 1]) for i in range(len(parts)))
    return next((m for m in outwards if m in sys.modules and file_of(m)), "")


def file_of(module: str) -> str:
    """Where an imported module was read from; "" = nowhere."""
    return str(getattr(sys.modules[module], "__file__", None) or "")


def blame(error: BaseException) -> str:
    """What happened, and the last place of it that is neither here nor in Python's own import."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [f for f in frames if f.filename != __file__]
    theirs = [f for f in others if not IMPORT & {*Path(f.filename).parts}]
    place = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{place}"
