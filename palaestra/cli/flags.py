"""The flags of every verb. Nothing heavy is imported here: help and mistakes answer at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from palaestra.ledger.axes import columns
from palaestra.ledger.files import TIERS
from palaestra.settings.fields import Settings
from palaestra.settings.flags import FlagParser, setting_flags


def whole_number(least: int) -> Callable[[str], int]:
    """Reads a whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            n = int(text)
        except ValueError:
            n = least - 1
        if n < least:
            raise argparse.ArgumentTypeError(
                f"takes a whole number of at least {least}, not {text!r}"
            )
        return n

    return read


def whole_numbers(least: int) -> Callable[[str], list[int]]:
    """Reads whole numbers of at least `least`, with commas between them."""
    one = whole_number(least)
    return lambda text: list(dict.fromkeys(one(part) for part in text.split(",")))


def run_flags(parser: FlagParser) -> None:
    """What names a run: problem, model, place."""
    setting_flags(parser, "every")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as one JSON object, on the last line of standard output",
    )
    trust_flag(parser)


def trust_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="execute without a question what a settings file or a run folder of somebody else "
        "names: Python files, servers of tools",
    )


def json_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object, on the last line"
    )


def train(parser: FlagParser) -> None:
    training_flags(parser)
    parser.add_argument("--smoke", action="store_true", help="two tiny steps, to see that it runs")


def submit(parser: FlagParser) -> None:
    training_flags(parser)
    add = parser.add_argument
    add(
        "--to", metavar="ADDRESS", required=True, help="of a Ray head's job server: HOST, HOST:8265"
    )
    add("--smoke", action="store_true", help="two tiny steps, to see that it runs there")
    add("--detach", action="store_true", help="hand it over, and do not wait for its end")


def training_flags(parser: FlagParser) -> None:
    """What says which run it is, and where it is kept."""
    run_flags(parser)
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="RECIPE | FILE.py | @FILE.toml | stage.field=value",
        help="a method, files of settings, and values for single fields",
    )
    add("--out", metavar="DIR", help="the run folder (default: runs/RECIPE-TASK-MODEL-sSEED)")
    add("--resume", metavar="DIR", help="go on with the run in this folder")
    add(
        "--accept-changes",
        action="store_true",
        help="with --resume: go on although files that the run was made from have changed",
    )
    setting_flags(parser, "train")


def evaluate(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("words", nargs="*", metavar="@FILE.toml", help="settings of a run")
    add("--n", type=whole_number(1), default=Settings.evaluate, help="held-out problems")
    add(
        "--k",
        type=whole_number(1),
        default=8,
        help="answers that are sampled for each problem, for pass@k and maj@k; 1 = greedy only (default: 8)",
    )
    add("--temperature", type=float, default=1.0, help="of the sampled answers (default: 1)")
    add("--out", metavar="DIR", help="keep the attempts there, for palaestra view")
    add(
        "--key-env",
        metavar="NAME",
        default="",
        help="with --engine openai:URL: the variable that holds its API key",
    )


def view(parser: FlagParser) -> None:
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help="run folders, or folders of them (default: runs)")
    add("--text", action="store_true", help="on the terminal, without a browser")
    add(
        "--step",
        type=whole_number(0),
        metavar="N",
        help="with --text: a group of this step (default: the last)",
    )
    add(
        "--group",
        type=whole_number(0),
        metavar="M",
        help="with --text: this group (default: the first)",
    )
    add("--export", metavar="FILE.html", help="write a file that needs no server, and end")
    add("--megabytes", type=float, default=8.0, help="of that file, about (default: 8)")
    add("--port", type=whole_number(0), default=8717, help="(default: 8717; 0 = any)")
    add("--host", default="127.0.0.1", help="to listen on (default: this machine alone)")
    add("--no-open", action="store_true", help="do not open a browser")
    add(
        "--limits",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="read files of up to N times the usual rows and bytes (default: 1); more of either may "
        "be an attack on this machine's memory",
    )
    trust_flag(parser)
    json_flag(parser)


def docs(parser: FlagParser) -> None:
    add = parser.add_argument
    add("--build", metavar="DIR", help="write the site into this folder, and end")
    add("--port", type=whole_number(0), default=8718, help="(default: 8718; 0 = any)")
    add("--no-open", action="store_true", help="do not open a browser")
    json_flag(parser)


def track(parser: FlagParser) -> None:
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder; the run may have been stopped")
    add(
        "--to",
        action="append",
        required=True,
        metavar="NAME[:PROJECT]",
        help="as --track of train; may be repeated",
    )
    json_flag(parser)


def push(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "folder",
        metavar="FOLDER",
        help="a run folder (its last checkpoint), or a checkpoint in one",
    )
    add(
        "repo",
        nargs="?",
        default="",
        metavar="REPO",
        help="OWNER/NAME, or NAME (default: the run's name)",
    )
    add("--private", action="store_true", help="a new repository is for you alone")
    add(
        "--dry-run",
        action="store_true",
        help="print the model card and the files, and send nothing",
    )
    trust_flag(parser)
    json_flag(parser)


def listing(parser: FlagParser) -> None:
    parser.add_argument(
        "--family", help="only this family; base = the methods that the others vary"
    )
    parser.add_argument("--status", help="only this status")
    for name, column in columns().items():
        parser.add_argument(
            f"--{name}", metavar="VALUE,...", help=f"{column.asks}: {', '.join(column.values)}"
        )
    json_flag(parser)


def show(parser: FlagParser) -> None:
    parser.add_argument("method", help="a method of `palaestra list`, or FILE.py")
    parser.add_argument(
        "--fields", action="store_true", help="also list every field that PATH=VALUE can set"
    )
    json_flag(parser)


def explain(parser: FlagParser) -> None:
    add = parser.add_argument
    add("method", help="a method of `palaestra list`, or FILE.py")
    add("words", nargs="*", metavar="stage.field=value", help="values for single fields")
    add("--rewards", help="the rewards of each group's answers: '[[1,0,0,0]]'")
    add("--lengths", help="their lengths in tokens: '[[5,9,3,7]]'")
    add("--group", metavar="FILE.json", help="groups of trajectories with more fields")
    add(
        "--rollouts",
        metavar="DIR|FILE",
        help="take a group that a run recorded: its folder, or one of its .parquet files",
    )
    add("--picture", metavar="FILE.png|.html", help="draw the token weights")
    trust_flag(parser)
    json_flag(parser)


def compare(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add(
        "words",
        nargs="+",
        metavar="RECIPE | FILE.py | RUN | stage.field=value",
        help="at least two methods, those with settings of their own in quotes: grpo 'grpo objective.high=0.28' "
        "(settings outside quotes are for all); or folders of runs that are over, or of eval --out",
    )
    add("--seeds", type=whole_number(1), default=3, help="runs of each method (default: 3)")
    add(
        "--tokens",
        type=whole_number(1),
        default=200_000,
        help="tokens that each run may sample (default: 200000)",
    )
    add(
        "--evaluate",
        type=whole_number(1),
        default=Settings.evaluate,
        metavar="N",
        help="held-out problems",
    )
    jobs_flag(parser)
    add("--out", metavar="DIR", default="runs/compare", help="(default: runs/compare)")


def reproduce(parser: FlagParser) -> None:
    add = parser.add_argument
    add("methods", nargs="*", metavar="ID | FILE.py", help="with a claim; see docs/ledger.md")
    add("--check", action="store_true", help="recompute verdicts from their numbers; run canaries")
    add(
        "--share",
        type=share,
        default=(1, 1),
        metavar="K/N",
        help="with --check: the canaries of the K-th of N shares of all arms; 0/1 = of none",
    )
    add("--record", action="store_true", help="record canaries anew")
    add("--fresh", action="store_true", help="run a third block of seeds for a published result")
    add("--again", action="store_true", help="one seed of each arm with today's code")
    add("--seeds", type=whole_number(0), default=0, metavar="N", help="a trial with N seeds")
    add("--arms", default="", metavar="A,B", help="a trial of these arms only")
    add(
        "--tier",
        choices=sorted(TIERS),
        default="",
        help="the claim on a real model (extra smollm2)",
    )
    add("--tokens", type=whole_number(0), default=0, metavar="N", help="a trial of N tokens a run")
    add("--device", choices=("cpu", "cuda"), default="", help="where the runs are (default: cpu)")
    jobs_flag(parser)
    add(
        "--out",
        metavar="DIR",
        default="ledger",
        help="for results/ID.json and finished cells (default: ledger)",
    )
    json_flag(parser)


def share(text: str) -> tuple[int, int]:
    """ "3/10" as (3, 10). Raises argparse.ArgumentTypeError for what is no share."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 0 <= int(k) <= int(n) and int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write the third tenth as 3/10")
    return int(k), int(n)


def jobs_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--jobs",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="runs at the same time (default: one a core)",
    )


def atlas(parser: FlagParser) -> None:
    add = parser.add_argument
    add("--methods", default="", metavar="A,B", help="only these (default: every recipe)")
    add("--out", metavar="DIR", default="runs/atlas", help="for atlas.md, atlas.json and pictures")
    json_flag(parser)


BENCHES = (
    "step", "engine", "trl", "ablation", "memory", "scaling", "busy", "sandbox", "notebook", "verifiers",
    "control", "view", "gpu",
)  # fmt: skip


def bench(parser: FlagParser) -> None:
    add = parser.add_argument
    add("what", choices=BENCHES,
        help="what is measured; gpu: a programme of an hour or two, in slices")  # fmt: skip
    add("--model", default="tiny", metavar="NAME|DIR")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add(
        "--device",
        choices=("cpu", "cuda"),
        help="of all but busy, control, sandbox, notebook, verifiers and view (default: cuda where there is one)",
    )
    add("--prompts", type=whole_number(1), default=16, metavar="N", help="a step (default: 16)")
    add("--group", type=whole_number(1), default=8, metavar="N",
        help="answers a prompt (default: 8)")  # fmt: skip
    add("--max-tokens", type=whole_number(1), default=64, metavar="N",
        help="the most tokens of an answer (default: 64)")  # fmt: skip
    add("--full", action="store_true", help="no answer ends before its last token")
    add("--recompute", action="store_true", help="use activation checkpointing, in TRL too")
    add("--peer-batch", type=whole_number(0), default=0,
        help="answers in one forward pass of TRL, the rest accumulated; 0: all")  # fmt: skip
    add("--repeats", type=whole_number(1), default=5, metavar="N",
        help="steps, or pairs of measurements, that count (default: 5)")  # fmt: skip
    add("--n", type=whole_number(1), default=200, metavar="N",
        help="runs of sandbox, sessions of notebook, answers of verifiers, each (default: 200)")  # fmt: skip
    add("--orphans", type=whole_number(0), default=0, metavar="N",
        help="sandbox: also count what N runs leave behind")  # fmt: skip
    gpu_flags(parser)
    add("--out", metavar="DIR", help="also write the result there, as JSON; gpu: or in benchmarks")
    json_flag(parser)


def gpu_flags(parser: FlagParser) -> None:
    """What chooses slices of the GPU programme."""
    add = parser.add_argument
    names: dict[str, Any] = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME"}
    add("--only", help="gpu: these slices, kinds or sizes, where they are not done", **names)
    add("--again", help="gpu: these anew, and without --only nothing else", **names)
    add("--list", action="store_true", help="gpu: the slices with their state")
    add(
        "--limit",
        type=whole_number(10),
        default=480,
        metavar="S",
        help="gpu: seconds that a slice may take (default: 480)",
    )
    add(
        "--models",
        metavar="DIR",
        help="gpu: keep its models of random weights there; one of yours under the same name is "
        "used instead (default: a temporary folder)",
    )


def sandbox(parser: FlagParser) -> None:
    add = parser.add_argument
    add("action", choices=("run",))
    add("file", metavar="FILE.py", help="the program")
    add("--stdin", metavar="FILE", help="its standard input (default: empty)")
    add(
        "--timeout",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds that it may take (default: 5)",
    )
    add(
        "--memory-mb",
        type=whole_number(1),
        default=512,
        metavar="N",
        help="memory of all its processes together (default: 512)",
    )
    json_flag(parser)


def score(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "verifier",
        nargs="?",
        metavar="VERIFIER",
        help="NAME, NAME(setting=value), or a weighted sum a*0.1+b; with --run any --reward",
    )
    add("--run", metavar="DIR", help="judge the answers of a run again, beside its own reward")
    add("--steps", type=whole_number(1), metavar="N",
        help="with --run: its last N steps (default: 10)")  # fmt: skip
    add("--cases", metavar="FILE.jsonl", help='lines {"response": ..., "answer": ..., more fields}')
    add("--list", action="store_true", help="all verifiers with their fields")
    trust_flag(parser)
    json_flag(parser)


def audit(parser: FlagParser) -> None:
    add = parser.add_argument
    add("reward", metavar="FILE.py:NAME | VERIFIER", help="what is audited")
    add("--data", metavar="FILE", help="problems with their answers, as for `palaestra train`")
    add("--columns", metavar="COLUMN=USE,...", default="", help="as for `palaestra train`")
    add(
        "--model",
        default=Settings.model,
        metavar="NAME|DIR",
        help="whose tokenizer counts, for a reward that is given token ids (default: tiny)",
    )
    add("--n", type=whole_number(1), default=32, help="problems to try (default: 32)")
    add(
        "--manner",
        action="store_true",
        help="what is paid for the same answers said longer, politely, with certainty",
    )
    add(
        "--reward-timeout",
        type=whole_number(1),
        default=Settings.reward_timeout,
        metavar="S",
        help="seconds of one call of a function (default: 60)",
    )
    json_flag(parser)


def doctor(parser: FlagParser) -> None:
    run_flags(parser)
    setting_flags(parser, "train")
    add = parser.add_argument
    words = "RECIPE | CONFIG.json | stage.field=value"
    add(
        "words",
        nargs="*",
        metavar=words,
        help="the run that is estimated; of a model's CONFIG.json the GPUs and memory are counted, "
        "without weights",
    )
    add("--quick", action="store_true", help="estimate from one step, without an evaluation")
    add("--case", metavar="DIR", help="repeat an update that failed, from the run folder's cases")
    add("--out", metavar="DIR", help="with --cluster: the run folder that nodes should share")
    parser.add_argument(
        "--paper",
        action="store_true",
        help="what the recipe needs at its paper's size, or that of --model, --lora, --max-tokens; "
        "built without weights",
    )


def plan(parser: FlagParser) -> None:
    add = parser.add_argument
    add("recipe", nargs="?", metavar="RECIPE | FILE.py", help="with --costs: whose costs they are")
    add(
        "--costs",
        metavar="FILE.json",
        help='seconds of each piece of work: {"ticket": {"median": 1.2, "sigma": 0.8}, "learn": '
        '0.9, "publish": 0.01, "load": 0.005, "waves": 8, "tokens": 8192}',
    )
    add("--run", metavar="DIR", help="a run folder that the costs are taken from instead")
    add(
        "--workers",
        type=whole_numbers(1),
        default=[1, 2, 4, 8],
        metavar="N,N,...",
        help="rollout workers to try (default: 1,2,4,8)",
    )
    add(
        "--lag",
        type=whole_numbers(0),
        default=[0, 1, 2],
        metavar="N,N,...",
        help="lags to try (default: 0,1,2)",
    )
    add(
        "--waves",
        type=whole_number(1),
        metavar="N",
        help="with --run: tickets that a step's prompts are cut into (default: 8)",
    )
    add(
        "--order",
        choices=("issue", "window"),
        default="issue",
        help="in which results are learned from (default: issue)",
    )
    add(
        "--streaming",
        action="store_true",
        help="the learner accumulates gradients of tickets as they land",
    )
    add("--depth", type=whole_number(1), default=1, metavar="N",
        help="tickets at a worker, as in a cluster file (default: 1)")  # fmt: skip
    add("--concurrent", type=whole_number(0), default=0, metavar="N",
        help="tickets that may be under way (default: 0, as many as the lag allows)")  # fmt: skip
    add(
        "--steps",
        type=whole_number(1),
        default=50,
        metavar="N",
        help="of each simulated run (default: 50)",
    )
    add("--seed", type=int, default=0, help="decides the simulated seconds (default: 0)")
    add("--trace", metavar="FILE.json", help="write the best run as a trace for Perfetto")
    add(
        "--picture",
        metavar="FILE.svg",
        help="the first steps with the best number of workers, at every lag",
    )
    json_flag(parser)


FLAGS: dict[str, Callable[[FlagParser], None]] = {
    "train": train,
    "submit": submit,
    "eval": evaluate,
    "view": view,
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
    "plan": plan,
    "docs": docs,
}
