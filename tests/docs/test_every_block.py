"""Every command of every page is one that the parsers accept, with methods that are there; every program is Python.

Most of them also run, in the tests of their pages: those that do not are counted here, with the reason.
"""

import ast
import re
import shlex

import pytest
from palaestra import catalogue
from palaestra.cli.main import VERBS, parser_of

from tests.docs.blocks import HAND, METHODS, ROOT, commands, indented, programs
from tests.rows import every

OTHERS = {"ray", "pip", "pytest", "python", "export", "vllm-env/bin/pip", "cd", "pre-commit", "ruff"}
WITH_METHODS = ("train", "show", "explain", "compare", "reproduce")
FENCED = {(p.name, c) for p in [*HAND, *METHODS] for c in commands(p)}
COMMANDS = sorted(FENCED | {(p.name, c) for p in HAND for c in indented(p)})
INLINE = sorted(
    {
        (p.name, c)
        for p in HAND
        for c in re.findall(
            r"(?<![`\w])`(palaestra (?!as )[a-z]+[^`\n]*)`", re.sub(r"```.*?```", "", p.read_text(), flags=re.DOTALL)
        )
        if not re.search(r"[A-Z]{2,}|\.\.\.|…", c)  # DIR, NAME, METHOD stand for what a reader fills in
    }
)
RUN = {  # pages whose commands a test runs
    "README.md", "first-run.md", "examples.md", "howto.md", "beside.md", "environments.md", "plan.md", "viewer.md",
    "models.md", "agents.md", "documents.md", "errands.md", "rewards.md", "trackers.md", "curricula.md",
    "search.md", "studies.md", "games.md", "questions.md",
    # those of surveys: tests/docs/test_surveys.py
    "choose.md", "essay-procedural-rhetoric.md", "survey-irl.md", "taxonomy.md",
}  # fmt: skip
NOT_RUN = {  # what a test cannot run
    "cluster.md": "more than one process or machine: tests/scale runs the same on one",
    "engines.md": "vLLM, which is installed apart",
    "sounds.md": "a file of sounds: tests/recipes/multimodal/test_omni_r1.py makes one",
    "pictures.md": "a vision-language model: tests/errands/test_pictures.py takes a small random one",
    "one-row.md": "an experiment of hours: tests/ledger runs small ones",
}


def check(command):
    """Parses one command as the program would; a UserError where it would be refused."""
    verb, *argv = shlex.split(command)[1:]
    assert verb in VERBS, command
    given = parser_of(verb).parse_intermixed_args(argv)
    words = [w for w in getattr(given, "words", None) or getattr(given, "methods", None) or [] if "=" not in w]
    named = [*words, *([given.method] if getattr(given, "method", None) else [])]
    known = {e.id for e in catalogue.all_entries() if e.built}
    if verb in WITH_METHODS:
        assert all(w in known or "@" in w or w.endswith(".py") or "/" in w for w in named), (command, named)


@every("page", sorted({p for p, _ in COMMANDS}))
def test_commands_are_accepted(page):
    for command in [c for p, c in COMMANDS if p == page]:
        if command.startswith("palaestra"):
            check(command)
        else:
            assert command.split()[0] in OTHERS, command


@every(("page", "command"), INLINE)
def test_commands_in_sentences_are_accepted(page, command):
    if len(command.split()) > 2:
        check(command)
    else:
        assert command.split()[1] in VERBS


def test_a_command_that_is_wrong_is_seen():
    for wrong in ("palaestra trian", "palaestra train --stepz 3", "palaestra show nothing-such"):
        with pytest.raises((AssertionError, Exception)):
            check(wrong)


@every("page", [p for p in HAND if programs(p)], ids=lambda p: p.name)
def test_programs_are_python(page):
    for code in programs(page):
        ast.parse(code)


def test_what_no_test_runs_has_a_reason():
    """Of the commands on pages that are written by hand."""
    ours = [(p, c) for p, c in FENCED if (p in {h.name for h in HAND}) and c.startswith("palaestra")]
    left = [(p, c) for p, c in ours if p not in RUN]
    assert {p for p, _ in left} <= set(NOT_RUN), sorted({p for p, _ in left} - set(NOT_RUN))
    assert len(left) / len(ours) < 0.12
    assert all((ROOT / "docs" / p).is_file() for p in NOT_RUN)
