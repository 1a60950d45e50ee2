"""`palaestra plan --model`: closed forms by hand, what breaks, what is refused, and what others published."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from palaestra.cli.main import main
from palaestra.planning import published, sizing
from palaestra.planning.growth import fit_power
from palaestra.planning.model_sizes import SHORT, SPARSE, ModelSize, size_named
from palaestra.planning.paper import STATE
from palaestra.planning.sizing import GPUS, Assumptions, Work

# 32 layers, 8 heads of keys of 128
EIGHT = ModelSize(
    name="eight", parameters=7e9, active=7e9, layers=32, hidden=4096, middle=14336, vocabulary=128256,
    key_values=2 * 8 * 128, attention=4096,
)  # fmt: skip
H100 = GPUS["h100"]
PLAIN = Assumptions(flops=1, bandwidth=1, links=1, token=0, latency=0, memory=1, context=0, sigma=0)
ONE = Work(prompts=1, group=1, prompt_tokens=0, answer_tokens=1000, max_tokens=1000, old=0)


def test_bytes_of_keys_and_values():
    assert EIGHT.cache_bytes == 32 * 2 * 8 * 128 * 2 == 131_072


def test_state_of_seven_billion_weights_over_eight_gpus():
    parts = sizing.learner_parts(EIGHT, 8, ONE, PLAIN)
    state = [parts[k] for k in ("weights", "gradients", "moments")]
    assert sum(state) == pytest.approx(7 * STATE / 8) == pytest.approx(14.0)
    assert state == pytest.approx([3.5, 3.5, 7.0])
    # two layers are whole while they work: 2 x 2 bytes x 7e9 / 32
    assert parts["gathered"] == pytest.approx(0.875)
    assert sizing.learner_parts(EIGHT, 1, ONE, PLAIN)["gathered"] == 0


def test_activations_of_the_longest_row():
    """The input of each layer, one layer's insides, and the logits of a chunk."""
    long = replace(ONE, prompt_tokens=24, max_tokens=1000)
    kept = 2 * 1024 * (32 * 4096 + 12 * 4096 + 4 * 14336)
    logits = 12 * 128256 * 1024
    assert sizing.learner_parts(EIGHT, 8, long, PLAIN)["activations"] == pytest.approx((kept + logits) / 1e9)


def test_adapters_leave_the_base_in_two_bytes():
    rank = 16
    # query, output: 2 (4096 + 4096); key, value: 2 (4096 + 1024); gate, up, down: 3 (4096 + 14336)
    weights = rank * 32 * (2 * 8192 + 2 * 5120 + 3 * 18432)
    assert EIGHT.adapter_weights(rank) == weights
    parts = sizing.learner_parts(EIGHT, 8, replace(ONE, lora=rank), PLAIN)
    assert parts["weights"] == pytest.approx((2 * 7e9 + 4 * weights) / 8e9)
    assert parts["moments"] == pytest.approx(8 * weights / 8e9)


def test_a_decode_step_reads_weights_and_what_it_remembers():
    one = sizing.decode_seconds(EIGHT, H100, 1, np.array([1]), np.array([0]), PLAIN)
    assert one[0] == pytest.approx(14e9 / 3.35e12)  # 4.18 ms
    many = sizing.decode_seconds(EIGHT, H100, 1, np.array([64]), np.array([64 * 2000]), PLAIN)
    assert many[0] == pytest.approx((14e9 + 64 * 2000 * 131_072) / 3.35e12)
    assert sizing.decode_seconds(EIGHT, H100, 2, np.array([1]), np.array([0]), PLAIN)[0] == pytest.approx(
        7e9 / 3.35e12 + 2 * 32 * (2 * 1 / 2 * 2 * 4096) / 450e9
    )
    # with so many answers arithmetic takes longer than reading
    full = sizing.decode_seconds(EIGHT, H100, 1, np.array([4000]), np.array([0]), PLAIN)
    assert full[0] == pytest.approx(2 * 7e9 * 4000 / 989e12)


def test_a_rollout_is_the_sum_of_its_decode_steps():
    found = sizing.rollout(EIGHT, H100, 1, 1, ONE, PLAIN)
    reads = sum(14e9 + 131_072 * t for t in range(1000))
    assert found.seconds == pytest.approx(reads / 3.35e12) and found.slots == 1 and found.prefill == 0
    # three answers in the room of two take twice as long as one pair
    room = replace(PLAIN, at_once=2)
    three = sizing.rollout(EIGHT, H100, 1, 1, replace(ONE, group=3), room)
    pair = sizing.rollout(EIGHT, H100, 1, 1, replace(ONE, group=2), room)
    assert three.slots == 2 and three.seconds == pytest.approx(pair.seconds + found.seconds)


def test_arithmetic_of_a_pass_and_an_update():
    work = replace(ONE, prompts=10)
    flops = 2 * 7e9 * 10_000 + 2 * 32 * 4096 * 10 * 1000**2
    assert sizing.pass_flops(EIGHT, work, PLAIN) == pytest.approx(flops)
    # a log-prob of ten rows waits for the weights that are gathered: 2 x 7e9 x 7 / 8 bytes
    assert sizing.log_prob_seconds(EIGHT, H100, 8, work, PLAIN) == pytest.approx(
        max(flops / (8 * 989e12), 14e9 * 7 / 8 / 450e9)
    )
    many = replace(ONE, prompts=4096)
    state = 2 * 16 * 7e9 / 8 / 3.35e12
    assert sizing.update_seconds(EIGHT, H100, 8, many, PLAIN) == pytest.approx(4 * 409.6 * flops / (8 * 989e12) + state)
    assert sizing.publish_seconds(EIGHT, H100, 16, ONE, PLAIN) == pytest.approx(14e9 / 400e9)


def test_lengths_have_their_mean():
    for mean, longest, sigma in ((1000, 4096, 1.0), (3206, 4096, 1.0), (50, 50, 1.0), (7.0, 9, 0)):
        length_N = sizing.answer_lengths(mean, longest, sigma, 501)
        assert length_N.mean() == pytest.approx(mean, rel=1e-3) and length_N.max() <= longest


def test_named_models_have_their_published_sizes():
    seven = size_named("7b")
    assert seven.parameters == pytest.approx(7_615_616_512, rel=1e-4)  # which has biases as well
    assert seven.cache_bytes == 28 * 2 * 4 * 128 * 2
    assert size_named("70b").parameters == pytest.approx(70_553_706_496)
    thirty = size_named("qwen3-30b-a3b")
    assert (thirty.parameters, thirty.active) == pytest.approx((30.5e9, 3.3e9), rel=0.03)
    # one token reads the weights that it meets, many read all
    assert thirty.read_bytes(np.array([1.0]))[0] == pytest.approx(2 * thirty.active, rel=0.01)
    assert thirty.read_bytes(np.array([1e6]))[0] == pytest.approx(2 * thirty.parameters)


def test_a_folder_is_read_as_its_name_says(tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert replace(size_named(str(tmp_path)), name="") == replace(size_named("llama-3.1-8b"), name="")
    width, middle, layers, heads, keys, vocabulary, head, experts, chosen = SPARSE["qwen3-30b-a3b"]
    sparse = {
        "model_type": "qwen3_moe", "hidden_size": width, "intermediate_size": 6144, "moe_intermediate_size": middle,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": keys, "head_dim": head,
        "vocab_size": vocabulary, "tie_word_embeddings": False, "num_experts": experts, "num_experts_per_tok": chosen,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(sparse))
    read, known = size_named(str(tmp_path)), size_named("qwen3-30b-a3b")
    assert read.parameters == pytest.approx(known.parameters, rel=1e-5)
    assert read.active == pytest.approx(known.active, rel=1e-3)
    assert (read.middle, read.chosen, read.key_values) == (known.middle, known.chosen, known.key_values)


def test_what_breaks():
    work = Work(prompts=128, group=16, prompt_tokens=256, answer_tokens=2048, max_tokens=8192)
    line, start = sizing.breaks(size_named("32b"), H100, 8, work)
    assert "does not start" in start
    assert "the update does not fit" in line and "moments" in line
    # keys and values of Qwen2.5 7B are small and those of Llama 2 7B are not: 8 times the bytes
    long = replace(work, group=64)
    (small,) = sizing.breaks(size_named("7b"), H100, 8, long)
    (large,) = sizing.breaks(size_named("llama-2-7b"), H100, 8, long)
    limit = lambda name: sizing.longest_group(size_named(name), H100, 8, long, Assumptions())
    first = "keys and values of a group on a replica of 1 break first"
    assert first in small and first in large
    assert limit("7b") > 6 * limit("llama-2-7b")
    # one answer to a prompt: the update's activations are first
    (alone,) = sizing.breaks(size_named("7b"), H100, 4, replace(work, group=1))
    assert "the update's activations break first" in alone
    # the limits are where the parts stop to fit
    own = Assumptions()
    most = sizing.longest_row(size_named("7b"), H100, 8, work, own)
    at = lambda tokens: replace(work, prompt_tokens=0, max_tokens=tokens)
    assert sizing.fits(size_named("7b"), H100, 8, at(most), own)
    assert not sizing.fits(size_named("7b"), H100, 8, at(most + 200), own)


def test_the_first_rank_holds_the_whole_model():
    """7e9 weights: 14 GB in bfloat16 beside the share of 64; on 2 ranks a share of its weights is 14 GB, and cutting it takes
    a layer of 218,750,000 weights in float32, or in bfloat16 where only adapters are trained."""
    for work in (ONE, replace(ONE, lora=8)):
        parts = sum(sizing.learner_parts(EIGHT, 64, work, PLAIN).values())
        assert sizing.first_rank_gb(EIGHT, 64, work, PLAIN) == pytest.approx(14 + parts)
    still = lambda *given: {"weights": 14.0, "context": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "learner_parts", still)
        assert sizing.first_rank_gb(EIGHT, 2, ONE, PLAIN) == pytest.approx(14 + 14 + 0.875)
        assert sizing.first_rank_gb(EIGHT, 2, replace(ONE, lora=8), PLAIN) == pytest.approx(14 + 14 + 0.4375)
    work = Work(prompts=128, group=16, prompt_tokens=256, answer_tokens=2048, max_tokens=8192)
    lag = lambda name, n: next(w for w in sizing.ways(size_named(name), H100, n, work) if w.name == "separate, lag 1")
    assert "not tried" in lag("7b", 8).here and "too large for its first rank" in lag("70b", 64).here
    starts, _ = sizing.breaks(size_named("70b"), H100, 64, work)
    parts = sizing.learner_parts(size_named("70b"), 64, work, Assumptions())
    needed = 2 * 70.553706496 + sum(parts.values())
    assert "does not start" in starts and f"{needed:.1f} of 72.0 GB" in starts


def test_ways_of_eight_gpus():
    work = Work(prompts=64, group=8, prompt_tokens=128, answer_tokens=512, max_tokens=2048)
    rows = {w.name: w for w in sizing.ways(size_named("7b"), H100, 8, work)}
    assert list(rows) == ["colocated", "separate, lag 0", "separate, lag 1", "separate, any lag"]
    none, one = rows["separate, lag 0"], rows["separate, lag 1"]
    assert one.step == pytest.approx(max(one.rollout, one.log_probs + one.update) + one.weights)
    assert none.step == pytest.approx(none.rollout + none.log_probs + none.update + none.weights)
    assert rows["separate, any lag"].step <= one.step <= none.step
    assert all(w.sampling + w.learning == 8 for n, w in rows.items() if n != "colocated")
    assert "not built" in rows["colocated"].here
    assert sizing.ways(size_named("70b"), H100, 8, work) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nothing"], "no folder of a model"),
        (["dpo", "--model", "7b"], "counts a step of grpo"),
        (["--gpus", "4"], "--gpus goes with --model"),
        (["--model", "7b", "--run", "r"], "leave --run out"),
        (["--model", "7b", "--max-tokens", "10"], "answers have 2048 tokens on average"),
        (["--model", "7b", "--gpus", "2", "--tensor", "4"], "there are 2 GPUs"),
        (["--published", "--model", "7b"], "leave --model out"),
        (["--published", "--gpu", "a100"], "--gpu goes with --model"),
    ],
)
def test_refusals_of_one_line(words, said, capsys):
    assert main(["plan", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_the_command_shows_parts_seconds_breaks_and_assumptions(capsys):
    small = ["--prompts", "16", "--group", "4", "--answer-tokens", "256"]
    assert main(["plan", "--model", "7b", *small]) == 0
    out = capsys.readouterr().out
    for part in ("computed and not measured", "gradients", "moments", "activations", "each longest answer",
                 "57,344 bytes of keys and values", "separate, lag 1", "what breaks", "products reach 40%"):  # fmt: skip
        assert part in out
    assert main(["plan", "--model", "sizes", "--json", *small]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [r["model"] for r in rows] == list(SHORT.values())
    least = [r["least_learner"] for r in rows]
    assert least == sorted(least) and least[0] == 1 and least[-1] > 8


def test_published_rows_and_their_predictions(capsys):
    rows = published.compare()
    assert {c.row.system for c in rows} == {"NeMo RL", "verl", "AReaL", "OpenRLHF"}
    assert len({c.row.source for c in rows}) >= 5 and all(c.row.gpu in GPUS for c in rows)
    given = [c for c in rows if not c.tests]
    assert len(given) == 3 and all(c.ratio == pytest.approx(1, abs=0.01) for c in given)
    # faster GPUs, and nothing else, make every prediction smaller
    fast = published.compare(Assumptions(flops=0.8, bandwidth=1.0, links=1.0, token=1e-3))
    for slow, c in zip(rows, fast, strict=True):
        assert slow.inferred or c.predicted < slow.predicted
    assert main(["plan", "--published"]) == 0
    out = capsys.readouterr().out
    assert out.count("qwen3-32b") == 2 and "sources" in out and "(given)" in out


def test_the_interval_of_an_exponent_by_hand():
    """Residuals of +e, -e, -e, +e about a line of slope 2 are orthogonal to it."""
    x, e = [1, math.e, math.e**2, math.e**3], 0.1
    law = fit_power(x, [math.exp(2 * i + s) for i, s in enumerate((e, -e, -e, e))])
    error = math.sqrt(4 * e**2 / 2 / 5)  # residual variance over sum (u - mean)^2 = 5
    assert law.exponent == pytest.approx(2) and law.high - law.exponent == pytest.approx(4.303 * error, rel=1e-3)
    assert fit_power([1, 2], [1, 4]).low is None and str(fit_power([1, 2], [1, 4])) == "2.00"
