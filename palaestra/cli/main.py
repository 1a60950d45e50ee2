"""The command line. Parsing only: each verb's work is in `palaestra.cli`, imported when it is asked
for.

Exit status: 0 the job did what it says, 1 infrastructure failed, 2 the user can mend it (so too
where every episode fails, as behind a dead or mistyped endpoint: the run pauses), 128 + N ended by
signal N.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from palaestra import __version__
from palaestra.cli.flags import FLAGS
from palaestra.errors import FULL_ERRORS, Fault, Stopped, UserError
from palaestra.settings.flags import FlagParser
from palaestra.suggest import suggestion_or_all
from palaestra.terminal.streams import clean_streams, open_streams, silence
from palaestra.trackers.feed import is_stuck

VERBS = {
    "train": "train a model with a recipe",
    "submit": "train on a Ray cluster that is there, and follow what it says",
    "eval": "accuracy of a model on held-out problems",
    "view": "look at runs: every answer, problem and token, in a browser",
    "track": "send the numbers of a run that is over to a tracker",
    "push": "send a trained model to the Hugging Face hub, with a model card",
    "list": "the method catalogue",
    "show": "one method: its card, and its difference from its parent",
    "explain": "what a method makes of given rewards: advantages and token weights",
    "compare": "several methods, same budget, same seeds",
    "reproduce": "a paper's claim as a small experiment, with its verdict",
    "atlas": "the update directions of all methods on the same rollouts",
    "bench": "speed and memory, measured on this machine",
    "score": "what a verifier makes of given responses, or of a run's answers",
    "audit": "where a reward can be earned without solving anything",
    "sandbox": "run a Python program in isolation",
    "doctor": "what is installed, what will run, what it will cost",
    "plan": "how fast a run would be with more workers and lag, simulated",
    "docs": "the documentation, built and shown on this machine",
}

ADVICE = {  # by the cause of a fault, behind what it says
    "starved": ". Where hardly a problem has right and wrong answers: a smaller batch (pool.size), "
    "more answers to each (collect.sample.n), easier problems, or imitation first (sft)",
}


def parser_of(verb: str) -> FlagParser:
    parser = FlagParser(prog=f"palaestra {verb}", description=VERBS[verb] + ".", allow_abbrev=False)
    FLAGS[verb](parser)
    return parser


def usage() -> str:
    lines = "\n".join(f"  {v:<9} {text}" for v, text in VERBS.items())
    hint = (
        "`palaestra train` trains the built-in model on a built-in task; `palaestra VERB --help` "
        "says more, `palaestra --version` which version this is."
    )
    return f"usage: palaestra VERB ...\n\n{lines}\n\n{hint}"


def verb_of(argv: Sequence[str]) -> str:
    if argv[0] in VERBS:
        return argv[0]
    raise UserError(f"no verb {argv[0]!r}{suggestion_or_all(argv[0], VERBS)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `palaestra`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with clean_streams():
        return status_of(sys.argv[1:] if argv is None else list(argv))


def status_of(argv: Sequence[str]) -> int:
    """The exit status of the words, once they are done or it is said why not."""
    try:
        work(argv)
        sys.stdout.flush()  # here, where a reader that has gone is no error
    except UserError as error:
        print(f"palaestra: {error}", file=sys.stderr)
        return 2
    except Fault as fault:
        print(f"palaestra: {fault}{ADVICE.get(fault.cause, '')}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(f"palaestra: {stopped}", file=sys.stderr)
        return 128 + stopped.signal
    except KeyboardInterrupt:
        print("palaestra: interrupted", file=sys.stderr)
        return 130
    except UnicodeEncodeError as error:
        if "surrogates" not in error.reason:
            raise
        odd = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        said = f"a name or an argument holds bytes that are no text: {odd}; rename it"
        print(f"palaestra: {said}, or set LC_ALL=C.UTF-8", file=sys.stderr)
        return 2
    except BrokenPipeError:
        silence(sys.stdout)
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in FULL_ERRORS or error.filename is not None:
            raise
        silence(sys.stdout)
        print(
            f"palaestra: disk: writing the output: {os.strerror(error.errno).lower()}",
            file=sys.stderr,
        )
        return 1
    return 0


def work(argv: Sequence[str]) -> None:
    """What the words ask for."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return
    if argv[0] == "--version":
        print(f"palaestra {__version__}")
        return
    verb = verb_of(argv)
    arguments = parser_of(verb).parse_intermixed_args(argv[1:])
    arguments.command = shlex.join(["palaestra", *argv])
    module = importlib.import_module(f"palaestra.cli.{verb}")
    with trust_of(arguments):
        result: dict[str, Any] | list[Any] | None = module.run(arguments)
    if arguments.json and result is not None:
        print(json.dumps(result))


def trust_of(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """The block in which `--trust` holds, where it was given."""
    if not getattr(arguments, "trust", False):
        return nullcontext()
    from palaestra.run.trust import trusting

    return trusting()


def program() -> NoReturn:
    """`main` as a program, which a tracker that hangs does not keep from ending."""
    open_streams()
    try:
        status: Any = main()
    except SystemExit as ended:
        status = ended.code
    if is_stuck():  # the libraries' own hooks at the end of the interpreter would wait for it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)
    sys.exit(status)


if __name__ == "__main__":
    program()
