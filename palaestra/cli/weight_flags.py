"""The flags of the verbs that make a model of others without training, or look at one."""

from __future__ import annotations

from palaestra.cli.flag_forms import json_flag, run_flags, whole_number
from palaestra.settings.flags import FlagParser


def merge(parser: FlagParser) -> None:
    add = parser.add_argument
    add("first", metavar="A", help="a model: folder, built-in name, or id of the hub")
    add("second", metavar="B", help="another fine-tune of the same base")
    add(
        "base",
        nargs="?",
        metavar="BASE",
        help="what both were fine-tuned from; not for linear, slerp",
    )
    add(
        "--with",
        dest="how",
        choices=("linear", "slerp", "task", "ties", "dare", "activation", "svd"),
        default="linear",
        help="how to merge (default: linear)",
    )
    add("-o", "--out", metavar="DIR", required=True, help="folder of the merged model")
    add("--data", metavar="FILE", help="texts on which the loss between A and B is measured; "
        "--with activation reads the base's activations on them")  # fmt: skip
    add("--share", type=float, metavar="X", help="linear, slerp: share of B (default: 0.5)")
    add("--scale", type=float, metavar="X",
        help="what the joined task vectors are multiplied by (default: 0.7; joined by TIES 1)")  # fmt: skip
    add("--removed", type=float, metavar="X",
        help="ties: share of the smallest changes that is left out (default: 0.8)")  # fmt: skip
    add("--drop", type=float, metavar="X",
        help="dare: probability with which a change is dropped (default: 0.3)")  # fmt: skip
    add("--then", choices=("task", "ties"),
        help="dare, activation: how the changes are joined (default: task)")  # fmt: skip
    add("--rank", type=whole_number(1), metavar="N",
        help="svd: singular values of each matrix that are kept (default: 16)")  # fmt: skip
    add("--omega", type=float, metavar="X",
        help="activation: share of its change that the most active column keeps (default: 0.4)")  # fmt: skip
    add("--seed", type=int, metavar="N", help="dare: seed of what is dropped (default: 0)")
    add("--tokenizer", choices=("first", "second", "base"), default="first",
        help="whose tokenizer and chat template the merge has (default: first)")  # fmt: skip
    add("--device", default="cpu", help="where the data are read: cpu, cuda (default: cpu)")
    json_flag(parser)


def edit(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add("--unwanted", metavar="FILE", required=True, help="texts that show the behaviour")
    add("--fine", metavar="FILE", required=True, help="texts of the same kind without it")
    add("-o", "--out", metavar="DIR", required=True, help="folder of the edited model")
    add("--rows", type=float, metavar="X",
        help="share of the rows of gate projections that are edited (default: 0.0465)")  # fmt: skip
    add("--strengths", type=float, nargs="+", metavar="X",
        help="strengths to measure, in lengths of a row (default: 1 2 4 8 16)")  # fmt: skip
    add(
        "--word", metavar="TEXT", help="also count continuations with this text, and choose by them"
    )
    add("--cost", type=float, metavar="X",
        help="most that the perplexity of fine texts may rise, as a share (default: 0.05)")  # fmt: skip
    add("--loss", type=float, metavar="X",
        help="most that the accuracy on --task or --data may fall (default: 0.02)")  # fmt: skip
    add("--samples", type=whole_number(1), metavar="N",
        help="continuations for each strength (default: 32)")  # fmt: skip
    add("--n", type=whole_number(1), default=64,
        help="with --task or --data: held-out problems for each strength (default: 64)")  # fmt: skip


def study(parser: FlagParser) -> None:
    run_flags(parser)
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="STUDY | all | @FILE.toml | argument=value",
        help="a study, or all of the check-up, and values of its arguments",
    )
    add("--base", metavar="MODEL", default="",
        help="the model before training (default: what the run of --model began with)")  # fmt: skip
    add("--out", metavar="DIR", help="folder of the page and of all answers; the same command goes on "
        "there (default: runs/study-STUDY-PROBLEM-MODEL-sSEED)")  # fmt: skip
    add("--anyway", action="store_const", const=True,
        help="go on where something is missing that the study acts on")  # fmt: skip
    add("--list", action="store_true", help="list the studies and the question that each answers")
