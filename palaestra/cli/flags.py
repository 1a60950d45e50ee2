"""The flags of every verb. Nothing heavy is imported here: help and mistakes answer at once."""

from __future__ import annotations

from collections.abc import Callable

from palaestra.cli.flag_forms import (
    gpu_flags,
    jobs_flag,
    json_flag,
    run_flags,
    search_flags,
    share,
    trust_flag,
    whole_number,
)
from palaestra.cli.game_flags import play, serve, tournament
from palaestra.cli.needs_flags import config, guide, init, needs
from palaestra.cli.plan_flags import plan
from palaestra.cli.weight_flags import edit, merge, study
from palaestra.ledger.axes import columns
from palaestra.ledger.files import TIERS
from palaestra.settings.fields import Settings
from palaestra.settings.flags import FlagParser, setting_flag, setting_flags


def train(parser: FlagParser) -> None:
    training_flags(parser)
    parser.add_argument(
        "--smoke", action="store_true", help="run two tiny steps, to check the settings"
    )


def submit(parser: FlagParser) -> None:
    training_flags(parser)
    add = parser.add_argument
    add(
        "--to",
        metavar="ADDRESS",
        required=True,
        help="address of a Ray head's job server: HOST, HOST:8265",
    )
    add("--smoke", action="store_true", help="run two tiny steps, to check the setup there")
    add("--detach", action="store_true", help="submit the run and return at once")


def training_flags(parser: FlagParser) -> None:
    """Flags that say which run it is, and where it is stored."""
    run_flags(parser)
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="RECIPE | FILE.py | @FILE.toml | stage.field=value",
        help="a method, settings files, and values of single fields",
    )
    add("--out", metavar="DIR", help="the run folder (default: runs/RECIPE-TASK-MODEL-sSEED)")
    add("--resume", metavar="DIR", help="continue the run in this folder")
    add(
        "--accept-changes",
        action="store_true",
        help="with --resume: continue although input files of the run have changed",
    )
    setting_flags(parser, "train")


def evaluate(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("words", nargs="*", metavar="@FILE.toml", help="settings files")
    add("--n", type=whole_number(1), default=Settings.evaluate, help="number of held-out problems")
    add(
        "--k",
        type=whole_number(1),
        default=8,
        help="answers sampled per problem, for pass@k and maj@k; 1 = greedy only (default: 8)",
    )
    add("--temperature", type=float, default=1.0, help="sampling temperature (default: 1)")
    add("--out", metavar="DIR", help="store the answers in this folder, for palaestra view")
    search_flags(parser, several=True)
    add(
        "--key-env",
        metavar="NAME",
        default="",
        help="with --engine openai:URL: the environment variable with its API key",
    )


def search(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("words", nargs="*", metavar="@FILE.toml", help="settings files")
    search_flags(parser)
    add(
        "--n",
        type=whole_number(1),
        default=0,
        help="number of problems (default: all rows of --data, 64 of a task)",
    )
    add("--out", metavar="DIR", help="folder of the answers; the same command goes on there "
        "(default: runs/search-STRATEGY-TASK-MODEL-sSEED)")  # fmt: skip


def gateway(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("words", nargs="*", metavar="@FILE.toml", help="settings files")
    add("--port", type=whole_number(0), default=8765, help="0 = any free one (default: 8765)")
    text = "add the episodes to this file (default: episodes.jsonl)"
    add("--out", metavar="FILE.jsonl", default="episodes.jsonl", help=text)
    text = "sampling temperature of requests that name none (default: 1)"
    add("--temperature", type=float, default=1.0, help=text)
    text = "the environment variable with the key of clients (default: a random key, printed)"
    add("--key-env", metavar="NAME", default="", help=text)


def view(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "runs",
        nargs="*",
        metavar="RUN",
        help="run folders, or folders that contain runs (default: runs)",
    )
    add("--text", action="store_true", help="print to the terminal instead of opening a browser")
    add(
        "--step",
        type=whole_number(0),
        metavar="N",
        help="with --text: show a group of this step (default: the last)",
    )
    add(
        "--group",
        type=whole_number(0),
        metavar="M",
        help="with --text: show this group (default: the first)",
    )
    add(
        "--export",
        metavar="FILE.html",
        help="write a single HTML file that needs no server, and exit",
    )
    add(
        "--megabytes",
        type=float,
        default=8.0,
        help="with --export: approximate size of the file (default: 8)",
    )
    add(
        "--port",
        type=whole_number(0),
        default=8717,
        help="port of the viewer (default: 8717; 0 = any free port)",
    )
    add(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, this machine only)",
    )
    add("--no-open", action="store_true", help="do not open a browser")
    add(
        "--limits",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="read files with up to N times the usual rows and bytes (default: 1); larger files may "
        "be an attack on this machine's memory",
    )
    trust_flag(parser)
    json_flag(parser)


def docs(parser: FlagParser) -> None:
    add = parser.add_argument
    add("--build", metavar="DIR", help="write the site into this folder, and exit")
    add(
        "--port",
        type=whole_number(0),
        default=8718,
        help="port of the site (default: 8718; 0 = any free port)",
    )
    add("--no-open", action="store_true", help="do not open a browser")
    json_flag(parser)


def track(parser: FlagParser) -> None:
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder, finished or stopped")
    add(
        "--to",
        action="append",
        required=True,
        metavar="NAME[:PROJECT]",
        help="the tracker, as for --track of train; may be repeated",
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
    add("--private", action="store_true", help="create a new repository as private")
    add(
        "--dry-run",
        action="store_true",
        help="print the model card and the list of files, without uploading",
    )
    trust_flag(parser)
    json_flag(parser)


def listing(parser: FlagParser) -> None:
    parser.add_argument(
        "--family", help="only this family; base = the methods that others are based on"
    )
    parser.add_argument("--status", help="only this status")
    parser.add_argument(
        "--domain", help="only this field of application, such as chemistry, finance, search"
    )
    for name, column in columns().items():
        parser.add_argument(
            f"--{name}", metavar="VALUE,...", help=f"{column.asks}: {', '.join(column.values)}"
        )
    json_flag(parser)


def show(parser: FlagParser) -> None:
    parser.add_argument("method", help="a method of `palaestra list`, or FILE.py")
    parser.add_argument(
        "--fields", action="store_true", help="also list all fields that stage.field=value can set"
    )
    json_flag(parser)


def explain(parser: FlagParser) -> None:
    add = parser.add_argument
    add("method", help="a method of `palaestra list`, or FILE.py")
    add("words", nargs="*", metavar="stage.field=value", help="values of single fields")
    add("--rewards", help="rewards of the answers, one list per group: '[[1,0,0,0]]'")
    add("--lengths", help="lengths of the answers in tokens: '[[5,9,3,7]]'")
    add(
        "--group",
        metavar="FILE.json",
        help="read groups of trajectories, with further fields, from a file",
    )
    add(
        "--rollouts",
        metavar="DIR|FILE",
        help="use a group recorded by a run: its folder, or one of its .parquet files",
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
        help="at least two methods; quote a method with its own settings: grpo 'grpo objective.high=0.28' "
        "(settings outside quotes apply to all). Or folders of finished runs, or of eval --out",
    )
    add(
        "--seeds",
        type=whole_number(1),
        default=3,
        help="runs of each method, one per seed (default: 3)",
    )
    add(
        "--tokens",
        type=whole_number(1),
        default=200_000,
        help="sampled tokens of each run (default: 200000)",
    )
    setting_flag(parser, "data_seed")
    add(
        "--evaluate",
        type=whole_number(1),
        default=Settings.evaluate,
        metavar="N",
        help="number of held-out problems",
    )
    jobs_flag(parser)
    add(
        "--out",
        metavar="DIR",
        default="runs/compare",
        help="folder of the results (default: runs/compare)",
    )


def reproduce(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "methods",
        nargs="*",
        metavar="ID | FILE.py",
        help="methods with a claim; see docs/ledger.md",
    )
    add(
        "--check",
        action="store_true",
        help="recompute verdicts from their numbers, and run the canaries",
    )
    add(
        "--share",
        type=share,
        default=(1, 1),
        metavar="K/N",
        help="with --check: run the K-th of N shares of the canaries; 0/1 = none; with --again: of the "
        "arms of all published results",
    )
    add("--record", action="store_true", help="record the canaries again")
    add("--fresh", action="store_true", help="run a third block of seeds for a published result")
    add("--again", action="store_true", help="run one seed of each arm with today's code")
    add("--seeds", type=whole_number(0), default=0, metavar="N", help="run a trial with N seeds")
    add("--arms", default="", metavar="A,B", help="run a trial of these arms only")
    add(
        "--tier",
        choices=sorted(TIERS),
        default="",
        help="test the claim on a real model (extra smollm2)",
    )
    add(
        "--tokens",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="run a trial with N sampled tokens per run",
    )
    add("--device", choices=("cpu", "cuda"), default="", help="device of the runs (default: cpu)")
    jobs_flag(parser)
    add(
        "--out",
        metavar="DIR",
        default="ledger",
        help="folder for results/ID.json and finished cells (default: ledger)",
    )
    json_flag(parser)


def atlas(parser: FlagParser) -> None:
    add = parser.add_argument
    add("--methods", default="", metavar="A,B", help="only these (default: every recipe)")
    add(
        "--out",
        metavar="DIR",
        default="runs/atlas",
        help="folder for atlas.md, atlas.json and pictures (default: runs/atlas)",
    )
    json_flag(parser)


BENCHES = (
    "step", "engine", "drafts", "formats", "company", "trl", "ablation", "memory", "scaling", "busy", "sandbox", "notebook",
    "episodes", "verifiers", "control", "learners", "view", "gpu",
)  # fmt: skip


def bench(parser: FlagParser) -> None:
    add = parser.add_argument
    add("what", choices=BENCHES,
        help="what to measure; gpu: a programme of one to two hours, in slices")  # fmt: skip
    add("--model", default="tiny", metavar="NAME|DIR")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add(
        "--device",
        choices=("cpu", "cuda"),
        help="for all but busy, control, episodes, learners, notebook, sandbox, verifiers and view (default: cuda if available)",
    )
    add(
        "--prompts",
        type=whole_number(1),
        default=16,
        metavar="N",
        help="prompts per step (default: 16)",
    )
    add("--group", type=whole_number(1), default=8, metavar="N",
        help="answers per prompt (default: 8)")  # fmt: skip
    add("--max-tokens", type=whole_number(1), default=64, metavar="N",
        help="most tokens of an answer (default: 64)")  # fmt: skip
    add("--full", action="store_true", help="every answer has the full length")
    add("--recompute", action="store_true", help="use activation checkpointing, in TRL too")
    add("--peer-batch", type=whole_number(0), default=0,
        help="answers in one forward pass of TRL, with gradient accumulation; 0 = all")  # fmt: skip
    add("--positions", type=whole_number(0), default=0, metavar="N",
        help="places for tokens that the model gets, beside its weights as they are; 0 = its own")  # fmt: skip
    add("--repeats", type=whole_number(1), default=5, metavar="N",
        help="measured steps, or pairs of measurements (default: 5)")  # fmt: skip
    add("--n", type=whole_number(1), default=200, metavar="N",
        help="sandbox: runs, notebook: sessions, verifiers: answers per kind (default: 200)")  # fmt: skip
    add("--orphans", type=whole_number(0), default=0, metavar="N",
        help="sandbox: also count the processes that N runs leave behind")  # fmt: skip
    gpu_flags(parser)
    add(
        "--out",
        metavar="DIR",
        help="also write the result to this folder, as JSON; gpu: default benchmarks",
    )
    json_flag(parser)


def sandbox(parser: FlagParser) -> None:
    add = parser.add_argument
    add("action", choices=("run",))
    add("file", metavar="FILE.py", help="the program to run")
    add("--stdin", metavar="FILE", help="standard input of the program (default: empty)")
    add(
        "--timeout",
        type=float,
        default=5.0,
        metavar="S",
        help="time limit in seconds (default: 5)",
    )
    add(
        "--memory-mb",
        type=whole_number(1),
        default=512,
        metavar="N",
        help="memory limit of all its processes together (default: 512)",
    )
    json_flag(parser)


def score(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "verifier",
        nargs="?",
        metavar="VERIFIER",
        help="NAME, NAME(setting=value), or a weighted sum a*0.1+b; with --run any reward of --reward",
    )
    add(
        "--run",
        metavar="DIR",
        help="score the answers of a run again, and compare with its own reward",
    )
    add("--steps", type=whole_number(1), metavar="N",
        help="with --run: score the last N steps (default: 10)")  # fmt: skip
    add("--cases", metavar="FILE.jsonl", help='lines {"response": ..., "answer": ..., more fields}')
    add("--list", action="store_true", help="list all verifiers with their fields")
    trust_flag(parser)
    json_flag(parser)


def audit(parser: FlagParser) -> None:
    add = parser.add_argument
    add("reward", metavar="FILE.py:NAME | VERIFIER", help="the reward to audit")
    add("--data", metavar="FILE", help="problems with their answers, as for `palaestra train`")
    add("--columns", metavar="COLUMN=USE,...", default="", help="as for `palaestra train`")
    add(
        "--model",
        default=Settings.model,
        metavar="NAME|DIR",
        help="model whose tokenizer is used if the reward takes token ids (default: tiny)",
    )
    add("--n", type=whole_number(1), default=32, help="number of problems to try (default: 32)")
    add(
        "--manner",
        action="store_true",
        help="test instead what the reward pays for style: the same answers, longer, polite, certain",
    )
    add(
        "--reward-timeout",
        type=whole_number(1),
        default=Settings.reward_timeout,
        metavar="S",
        help="time limit of one call in seconds (default: 60)",
    )
    json_flag(parser)


def doctor(parser: FlagParser) -> None:
    run_flags(parser)
    setting_flags(parser, "train")
    add = parser.add_argument
    what = "the run to estimate; for a model's CONFIG.json, doctor computes the GPUs and memory without weights"
    add("words", nargs="*", metavar="RECIPE | CONFIG.json | MODEL | stage.field=value", help=what)  # fmt: skip
    add("--quick", action="store_true", help="estimate from a single step, without an evaluation")
    what = "compute what of a MODEL's training fits in so many GB"
    add("--gpu", type=whole_number(1), metavar="GB", help=what)
    add("--case", metavar="DIR", help="repeat a failed update, from the folder cases of a run")
    add("--out", metavar="DIR", help="with --cluster: the run folder that the nodes should share")
    parser.add_argument(
        "--paper",
        action="store_true",
        help="compute what the recipe needs at its paper's size, or at that of --model, --lora and "
        "--max-tokens, without weights",
    )


FLAGS: dict[str, Callable[[FlagParser], None]] = {
    "train": train,
    "submit": submit,
    "eval": evaluate,
    "search": search,
    "play": play,
    "tournament": tournament,
    "gateway": gateway,
    "serve": serve,
    "view": view,
    "track": track,
    "push": push,
    "list": listing,
    "show": show,
    "needs": needs,
    "init": init,
    "config": config,
    "guide": guide,
    "explain": explain,
    "compare": compare,
    "reproduce": reproduce,
    "atlas": atlas,
    "bench": bench,
    "score": score,
    "audit": audit,
    "edit": edit,
    "merge": merge,
    "study": study,
    "sandbox": sandbox,
    "doctor": doctor,
    "plan": plan,
    "docs": docs,
}
