"""The command line. Parsing only: each verb's work is in `palaestra.commands`, imported when it is asked for.

Exit status: 0 the job did what it says, 1 infrastructure failed, 2 the user can mend it, 128 + N ended by signal N.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from palaestra.types import Fault, UserError

VERBS = {
    "train": "train a model with a recipe",
    "eval": "accuracy of a model on held-out problems",
    "list": "the method catalogue",
    "show": "one method: its card, and its difference from its parent",
    "explain": "advantages and token weights of a method for given rewards",
    "compare": "several methods, same budget, same seeds",
    "doctor": "what is installed, what will run, what it will cost",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the closest flag."""

    def error(self, message: str) -> NoReturn:
        if "unrecognized arguments:" in message:
            word = message.split("unrecognized arguments:")[1].split()[0]
            flags = [f for action in self._actions for f in action.option_strings]
            close = difflib.get_close_matches(word.split("=")[0], flags, n=1, cutoff=0.5)
            message = f"unknown argument {word}" + (
                f"; did you mean {close[0]}?" if close else f"; see {self.prog} --help"
            )
        raise UserError(message)


def run_flags(parser: Parser) -> None:
    """What names a run: problem, model, place."""
    add = parser.add_argument
    add(
        "--task",
        metavar="NAME",
        help="chain, count, hop, grid, rec, tictactoe, rg:NAME, or a mixture a*2+b (default: chain)",
    )
    add("--data", metavar="FILE", help="your own problems: .jsonl, .json, .parquet or a datasets folder")
    add("--test-data", metavar="FILE", help="held-out problems; else a tenth of --data")
    add("--reward", metavar="FILE.py:function", help="your own reward: score(responses, answers, **fields) -> list")
    add("--env", metavar="FILE.py:Class", help="your own multi-turn environment")
    add("--model", metavar="NAME|DIR", help="tiny (default), smollm2, a Hugging Face folder or hub id")
    add("--dtype", choices=("float32", "bfloat16"), help="of the weights (default: float32)")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--lora", type=int, metavar="RANK", help="train low-rank adapters instead of the whole model")
    add(
        "--engine",
        metavar="own|openai:URL",
        help="what samples (default: own, in this process); an endpoint for eval only",
    )
    add("--slots", type=int, metavar="N", help="sequences that are sampled at a time (default: 256)")
    add("--cache-mb", type=int, metavar="MB", help="memory for their keys and values (default: 4096)")
    add(
        "--recompute", action="store_const", const=True, help="less memory, a third more time: activation checkpointing"
    )
    add("--max-tokens", type=int, metavar="N", help="of one answer (default: the task's)")
    add("--seed", type=int, metavar="S", help="(default: 0)")
    add("--json", action="store_true", help="the result as one JSON object on the last line of standard output")


def parser_of(verb: str) -> Parser:
    parser = Parser(prog=f"palaestra {verb}", description=VERBS[verb] + ".", allow_abbrev=False)
    add = parser.add_argument
    if verb in ("train", "eval", "doctor"):
        run_flags(parser)
    if verb == "train":
        add("words", nargs="*", metavar="RECIPE | @FILE.toml | stage.field=value", help="the method, files, overrides")
        add("--steps", type=int, metavar="N", help="(default: the recipe's)")
        add("--out", metavar="DIR", help="the run folder (default: runs/RECIPE-TASK-MODEL-sSEED)")
        add("--resume", metavar="DIR", help="go on with the run in this folder")
        add("--evaluate", type=int, metavar="N", help="held-out problems before and after (default: 512)")
        add("--evaluate-every", type=int, metavar="STEPS", help="also in between (default: 0 = no)")
        add("--checkpoint-every", type=int, metavar="STEPS", help="(default: 1)")
        add("--smoke", action="store_true", help="two tiny steps, to see that it runs")
    elif verb == "eval":
        add("words", nargs="*", metavar="@FILE.toml", help="settings of a run")
        add("--n", type=int, default=512, help="held-out problems")
        add("--k", type=int, default=8, help="samples a problem, for pass@k and maj@k; 1 = greedy only")
        add("--temperature", type=float, default=1.0)
        add(
            "--key-env", metavar="NAME", default="", help="environment variable with the API key of --engine openai:URL"
        )
    elif verb == "list":
        add("--family", help="only this family; base = the methods that the others vary")
        add("--status", help="only this status")
        add("--json", action="store_true")
    elif verb == "show":
        add("method")
        add("--json", action="store_true")
    elif verb == "explain":
        add("method")
        add("words", nargs="*", metavar="stage.field=value")
        add("--rewards", help="groups of rewards: '[[1,0,0,0]]'")
        add("--lengths", help="their lengths in tokens: '[[5,9,3,7]]'")
        add("--group", metavar="FILE.json", help="groups of trajectories with more fields")
        add("--picture", metavar="FILE.png", help="draw the token weights")
        add("--json", action="store_true")
    elif verb == "compare":
        run_flags(parser)
        add("words", nargs="+", metavar="RECIPE | stage.field=value")
        add("--seeds", type=int, default=3)
        add("--tokens", type=int, default=200_000, help="sampled policy tokens every run may spend")
        add("--evaluate", type=int, default=512, metavar="N", help="held-out problems")
        add("--out", metavar="DIR", default="runs/compare")
    elif verb == "doctor":
        add("words", nargs="*", metavar="RECIPE | stage.field=value")
        add("--case", metavar="DIR", help="run a dumped failed update again")
    return parser


def usage() -> str:
    lines = "\n".join(f"  {v:<9} {text}" for v, text in VERBS.items())
    hint = "`palaestra train` trains the built-in model on a built-in task; `palaestra VERB --help` says more."
    return f"usage: palaestra VERB ...\n\n{lines}\n\n{hint}"


def verb_of(argv: Sequence[str]) -> str:
    if argv[0] in VERBS:
        return argv[0]
    close = difflib.get_close_matches(argv[0], VERBS, n=1)
    raise UserError(
        f"no verb {argv[0]!r}" + (f"; did you mean {close[0]}?" if close else f"; there are {', '.join(VERBS)}")
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `palaestra`."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        verb = verb_of(argv)
        arguments = parser_of(verb).parse_intermixed_args(argv[1:])
        module = importlib.import_module(f"palaestra.commands.{verb}")
        result: dict[str, Any] | list[Any] | None = module.run(arguments)
    except UserError as error:
        print(f"palaestra: {error}", file=sys.stderr)
        return 2
    except Fault as fault:
        print(f"palaestra: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("palaestra: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    if arguments.json and result is not None:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
