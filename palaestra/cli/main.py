"""The command line. It only parses: the work of each verb is in `palaestra.cli`, which is imported
when the verb is used.

Exit status: 0 = the command did its work, 1 = infrastructure failed, 2 = the user can correct the
cause (also if every episode fails, for example because an endpoint is down: the run pauses),
128 + N = ended by signal N.
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
    "submit": "train on a running Ray cluster, and follow the output",
    "eval": "measure a model on held-out problems",
    "search": "answer problems by a search with a budget of tokens for each",
    "play": "play a game against models, or watch players play one",
    "tournament": "let all players meet in a game of two, and rate them",
    "gateway": "serve a model to your own agent as OpenAI would, and record its episodes",
    "serve": "serve an environment to agents on other machines, over HTTP",
    "view": "look at runs in a browser: every answer, problem and token",
    "track": "send the metrics of a finished run to a tracker",
    "push": "upload a trained model to the Hugging Face hub, with a model card",
    "list": "list the methods of the catalogue",
    "show": "show one method: its card, and how it differs from the method it varies",
    "needs": "show what a method needs of your data, models and environments",
    "init": "write a small project to begin from: data, reward, settings",
    "config": "print the command for a configuration of another trainer (verl)",
    "guide": "name what a simulator shows and does, for a language model that guides its learner",
    "explain": "show the advantages and token weights that a method computes from given rewards",
    "compare": "compare methods with the same budget and the same seeds",
    "reproduce": "test a paper's claim in a small experiment, and print the verdict",
    "atlas": "compare the update directions of all methods on the same rollouts",
    "bench": "measure speed and memory on this machine",
    "score": "score given responses, or a run's answers, with a verifier",
    "audit": "find out what a reward pays for answers that solve nothing",
    "edit": "take a behaviour out of a model by editing rows of its weights",
    "merge": "make one model of two, without training",
    "study": "look at a model: what training did to it, and what it knows",
    "sandbox": "run a Python program in isolation",
    "doctor": "check what is installed, and what a run will cost before it starts",
    "plan": "simulate how fast a run would be with more workers and lag, or compute a step on GPUs",
    "docs": "build the documentation and show it in a browser",
}

ADVICE = {  # by the cause of a fault, behind what it says
    "starved": ". If hardly any problem has right and wrong answers, use a smaller batch (pool.size), "
    "more answers per problem (collect.sample.n), easier problems, or imitation first (sft)",
}


def parser_of(verb: str) -> FlagParser:
    about = VERBS[verb][0].upper() + VERBS[verb][1:] + "."
    parser = FlagParser(prog=f"palaestra {verb}", description=about, allow_abbrev=False)
    FLAGS[verb](parser)
    # argparse formats the usage of intermixed arguments a second time, so "N|P%" needs an escape
    parser.usage = parser.format_usage().removeprefix("usage: ").rstrip().replace("%", "%%")
    return parser


def usage() -> str:
    lines = "\n".join(f"  {v:<10} {text}" for v, text in VERBS.items())
    hint = (
        "`palaestra train` trains the built-in model on a built-in task. `palaestra VERB --help` "
        "lists the flags of a verb. `palaestra --version` prints the version."
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
    """Runs the command, prints its error if it fails, and returns the exit status."""
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
        reason = f"a name or an argument holds bytes that are no text: {odd}; rename it"
        print(f"palaestra: {reason}, or set LC_ALL=C.UTF-8", file=sys.stderr)
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
    """Runs the command."""
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
    """Context in which `--trust` applies, if it was passed."""
    if not getattr(arguments, "trust", False):
        return nullcontext()
    from palaestra.run.trust import trusting

    return trusting()


def program() -> NoReturn:
    """Runs `main` as a program. A tracker that hangs does not keep it from ending."""
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
