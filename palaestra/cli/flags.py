"""The flags of every verb. Nothing heavy is imported here: help and mistakes answer at once."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from typing import NoReturn

from palaestra.errors import UserError


class FlagParser(argparse.ArgumentParser):
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


def whole_number(least: int) -> Callable[[str], int]:
    """Reads a whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            n = int(text)
        except ValueError:
            n = least - 1
        if n < least:
            raise argparse.ArgumentTypeError(f"takes a whole number of at least {least}, not {text!r}")
        return n

    return read


def run_flags(parser: FlagParser) -> None:
    """What names a run: problem, model, place."""
    add = parser.add_argument
    add(
        "--task",
        metavar="NAME",
        help="chain, count, hop, grid, rec, tictactoe, rg:NAME (extra gym), or a mixture a*2+b (default: chain)",
    )
    add("--data", metavar="FILE", help="your own problems: .jsonl, .json, .parquet or a datasets folder")
    add("--test-data", metavar="FILE", help="held-out problems; else a tenth of --data")
    add(
        "--reward",
        metavar="FILE.py:NAME | VERIFIER",
        help="your own function or reward, or one of `palaestra score --list`",
    )
    add("--env", metavar="FILE.py:Class", help="your own multi-turn environment")
    add("--model", metavar="NAME|DIR", help="tiny (default), smollm2, a Hugging Face folder or hub id")
    add("--dtype", choices=("float32", "bfloat16"), help="of the weights (default: float32)")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--lora", type=int, metavar="RANK", help="train low-rank adapters instead of the whole model")
    add("--engine", metavar="own|vllm", help="what samples (default: own, in this process); see docs/engines.md")
    add("--slots", type=int, metavar="N", help="sequences that are sampled at a time (default: 256)")
    add("--cache-mb", type=int, metavar="MB", help="memory for their keys and values (default: 4096)")
    add(
        "--recompute", action="store_const", const=True, help="less memory, a third more time: activation checkpointing"
    )
    add("--max-tokens", type=int, metavar="N", help="of one answer (default: the task's)")
    add("--seed", type=int, metavar="S", help="(default: 0)")
    add("--json", action="store_true", help="the result as one JSON object on the last line of standard output")


def json_flag(parser: FlagParser) -> None:
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on the last line")


def train(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="RECIPE | FILE.py | @FILE.toml | stage.field=value",
        help="the method, files, overrides",
    )
    add("--steps", type=int, metavar="N", help="(default: the recipe's)")
    add("--tis", type=float, metavar="CAP", help="weight tokens by trainer/engine probability, at most CAP (e.g. 2)")
    add("--out", metavar="DIR", help="the run folder (default: runs/RECIPE-TASK-MODEL-sSEED)")
    add("--resume", metavar="DIR", help="go on with the run in this folder")
    add("--evaluate", type=int, metavar="N", help="held-out problems before and after (default: 512)")
    add("--evaluate-every", type=int, metavar="STEPS", help="also in between (default: 0 = no)")
    add("--checkpoint-every", type=int, metavar="STEPS", help="(default: 1)")
    add(
        "--track",
        action="append",
        metavar="NAME[:PROJECT]",
        help="also send the run to trackio, wandb, tensorboard, accelerate:mlflow; may stand several times",
    )
    add(
        "--track-seconds",
        type=int,
        metavar="S",
        help="a tracker that does not answer for so long is left out (default: 30)",
    )
    add("--smoke", action="store_true", help="two tiny steps, to see that it runs")


def evaluate(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("words", nargs="*", metavar="@FILE.toml", help="settings of a run")
    add("--n", type=whole_number(1), default=512, help="held-out problems")
    add("--k", type=whole_number(1), default=8, help="samples a problem, for pass@k and maj@k; 1 = greedy only")
    add("--temperature", type=float, default=1.0)
    add("--key-env", metavar="NAME", default="", help="with --engine openai:URL: the variable that holds its API key")


def track(parser: FlagParser) -> None:
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder, also of a run that was stopped")
    add("--to", action="append", required=True, metavar="NAME[:PROJECT]", help="as --track of train; may be repeated")
    json_flag(parser)


def push(parser: FlagParser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="a run folder (its last checkpoint), or a checkpoint in one")
    add("repo", nargs="?", default="", metavar="REPO", help="OWNER/NAME, or NAME (default: the run's name)")
    add("--private", action="store_true", help="a new repository is for you alone")
    add("--dry-run", action="store_true", help="print the model card and the files, and send nothing")
    json_flag(parser)


def listing(parser: FlagParser) -> None:
    parser.add_argument("--family", help="only this family; base = the methods that the others vary")
    parser.add_argument("--status", help="only this status")
    json_flag(parser)


def show(parser: FlagParser) -> None:
    parser.add_argument("method")
    json_flag(parser)


def explain(parser: FlagParser) -> None:
    add = parser.add_argument
    add("method")
    add("words", nargs="*", metavar="stage.field=value")
    add("--rewards", help="groups of rewards: '[[1,0,0,0]]'")
    add("--lengths", help="their lengths in tokens: '[[5,9,3,7]]'")
    add("--group", metavar="FILE.json", help="groups of trajectories with more fields")
    add("--rollouts", metavar="DIR|FILE", help="a run folder, or one of its .parquet files: a real group")
    add("--picture", metavar="FILE.png|.html", help="draw the token weights")
    json_flag(parser)


def compare(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("words", nargs="+", metavar="RECIPE | FILE.py | stage.field=value")
    add("--seeds", type=whole_number(1), default=3)
    add("--tokens", type=whole_number(1), default=200_000, help="sampled policy tokens every run may spend")
    add("--evaluate", type=whole_number(1), default=512, metavar="N", help="held-out problems")
    jobs_flag(parser)
    add("--out", metavar="DIR", default="runs/compare")


def reproduce(parser: FlagParser) -> None:
    add = parser.add_argument
    add("method")
    add("--seeds", type=whole_number(0), default=0, metavar="N", help="(default: the experiment's)")
    add("--arms", default="", metavar="A,B", help="only these arms")
    add("--tokens", type=whole_number(0), default=0, metavar="N", help="another budget, for a trial")
    jobs_flag(parser)
    add("--out", metavar="DIR", default="ledger", help="for results/ID.json and finished cells (default: ledger)")
    json_flag(parser)


def jobs_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--jobs", type=whole_number(0), default=0, metavar="N", help="runs at a time (default: one a core)"
    )


def atlas(parser: FlagParser) -> None:
    add = parser.add_argument
    add("--methods", default="", metavar="A,B", help="only these (default: every recipe)")
    add("--out", metavar="DIR", default="runs/atlas", help="for atlas.md, atlas.json and pictures")
    json_flag(parser)


def bench(parser: FlagParser) -> None:
    add = parser.add_argument
    add("what", choices=("step", "engine", "trl", "ablation", "memory", "scaling", "sandbox"), help="what is measured")
    add("--model", default="tiny", metavar="NAME|DIR")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--device", choices=("cpu", "cuda"), help="of all but the sandbox (default: cuda where there is one)")
    add("--prompts", type=whole_number(1), default=16, metavar="N", help="a step (default: 16)")
    add("--group", type=whole_number(1), default=8, metavar="N", help="answers a prompt (default: 8)")
    add("--max-tokens", type=whole_number(1), default=64, metavar="N", help="of an answer (default: 64)")
    add("--full", action="store_true", help="no answer ends before its last token")
    add("--recompute", action="store_true", help="activation checkpointing, in TRL too")
    add(
        "--peer-batch",
        type=whole_number(0),
        default=0,
        help="answers in one forward pass of TRL, the rest accumulated; 0: all",
    )
    add("--repeats", type=whole_number(1), default=5, metavar="N", help="steps or pairs that count (default: 5)")
    add("--n", type=whole_number(1), default=200, metavar="N", help="sandbox: runs of each sort (default: 200)")
    add("--orphans", type=whole_number(0), default=0, metavar="N", help="sandbox: also count what N runs leave behind")
    add("--out", metavar="DIR", help="also write the result there, as JSON")
    json_flag(parser)


def sandbox(parser: FlagParser) -> None:
    add = parser.add_argument
    add("action", choices=("run",))
    add("file", metavar="FILE.py", help="the program")
    add("--stdin", metavar="FILE", help="its standard input (default: empty)")
    add("--timeout", type=float, default=5.0, metavar="S", help="seconds of the wall clock (default: 5)")
    add("--memory-mb", type=whole_number(1), default=512, metavar="N", help="of all its processes (default: 512)")
    json_flag(parser)


def score(parser: FlagParser) -> None:
    add = parser.add_argument
    add("verifier", nargs="?", metavar="VERIFIER", help="NAME, NAME(setting=value), or a weighted sum a*0.1+b")
    add("--cases", metavar="FILE.jsonl", help='lines {"response": ..., "answer": ..., more fields}')
    add("--list", action="store_true", help="all verifiers with their fields")
    json_flag(parser)


def audit(parser: FlagParser) -> None:
    add = parser.add_argument
    add("reward", metavar="FILE.py:NAME | VERIFIER")
    add("--data", metavar="FILE", help="problems with their answers, as for train")
    add("--n", type=whole_number(1), default=32, help="problems to try")
    json_flag(parser)


def doctor(parser: FlagParser) -> None:
    run_flags(parser)
    parser.add_argument("words", nargs="*", metavar="RECIPE | stage.field=value")
    parser.add_argument("--case", metavar="DIR", help="run a dumped failed update again")
    parser.add_argument(
        "--paper",
        action="store_true",
        help="build the recipe at its paper's size, or that of --model, --lora, --max-tokens, without weights",
    )


FLAGS: dict[str, Callable[[FlagParser], None]] = {
    "train": train,
    "eval": evaluate,
    "track": track,
    "push": push,
    "list": listing,
    "show": show,
    "explain": explain,
    "compare": compare,
    "reproduce": reproduce,
    "atlas": atlas,
    "bench": bench,
    "score": score,
    "audit": audit,
    "sandbox": sandbox,
    "doctor": doctor,
}
