"""The command line. Parsing only: each verb's work is in `palaestra.commands`, imported when it is asked for.

Exit status: 0 the job did what it says, 1 infrastructure failed, 2 the user can mend it, 128 + N ended by signal N.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from palaestra.flags import FLAGS, Parser
from palaestra.types import Fault, UserError

VERBS = {
    "train": "train a model with a recipe",
    "eval": "accuracy of a model on held-out problems",
    "list": "the method catalogue",
    "show": "one method: its card, and its difference from its parent",
    "explain": "advantages and token weights of a method for given rewards",
    "compare": "several methods, same budget, same seeds",
<<<<<<< HEAD
    "reproduce": "a paper's claim as a small experiment, with its verdict",
    "atlas": "the update directions of all methods on the same rollouts",
=======
    "bench": "speed and memory, measured on this machine",
>>>>>>> main
    "doctor": "what is installed, what will run, what it will cost",
}


def parser_of(verb: str) -> Parser:
    parser = Parser(prog=f"palaestra {verb}", description=VERBS[verb] + ".", allow_abbrev=False)
<<<<<<< HEAD
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
        add("--rollouts", metavar="DIR|FILE", help="a run folder, or one of its .parquet files: a real group")
        add("--picture", metavar="FILE.png|.html", help="draw the token weights")
        add("--json", action="store_true")
    elif verb == "compare":
        run_flags(parser)
        add("words", nargs="+", metavar="RECIPE | stage.field=value")
        add("--seeds", type=int, default=3)
        add("--tokens", type=int, default=200_000, help="sampled policy tokens every run may spend")
        add("--evaluate", type=int, default=512, metavar="N", help="held-out problems")
        add("--jobs", type=int, default=0, metavar="N", help="runs at a time (default: one a core)")
        add("--out", metavar="DIR", default="runs/compare")
    elif verb == "reproduce":
        add("method")
        add("--seeds", type=int, default=0, metavar="N", help="(default: the experiment's)")
        add("--arms", default="", metavar="A,B", help="only these arms")
        add("--tokens", type=int, default=0, metavar="N", help="another budget, for a trial")
        add("--jobs", type=int, default=0, metavar="N", help="runs at a time (default: one a core)")
        add("--out", metavar="DIR", default="ledger", help="for results/ID.json and finished cells (default: ledger)")
        add("--json", action="store_true")
    elif verb == "atlas":
        add("--methods", default="", metavar="A,B", help="only these (default: every recipe)")
        add("--out", metavar="DIR", default="runs/atlas", help="for atlas.md, atlas.json and pictures")
        add("--json", action="store_true")
    elif verb == "doctor":
        add("words", nargs="*", metavar="RECIPE | stage.field=value")
        add("--case", metavar="DIR", help="run a dumped failed update again")
=======
    FLAGS[verb](parser)
>>>>>>> main
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
