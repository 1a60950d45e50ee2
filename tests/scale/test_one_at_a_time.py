"""What a sharded learner does with weights one after another is what a whole model gives.

Rank 0 empties the model that it keeps beside its slices: what comes out right came from the slices.
"""

import gc
import weakref
import zlib

import pytest
import torch
import torch.distributed as dist
from palaestra.models import optimiser_files
from palaestra.models.load import SCORE, load, save, weights_sha256
from palaestra.models.optimiser_files import made_state, read_state, without_tensors, write_state
from palaestra.models.weight_files import SHARD, ShardWriter
from palaestra.recipes.base import sft
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare, train
from palaestra.run.plan import Plan
from palaestra.scale import learning
from palaestra.scale.learning import Follower, follow, sharded_context
from palaestra.scale.local_ranks import run_ranks
from palaestra.scale.weights import HeldBucket, publish, sums_of
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tests.models.test_routing import mixture
from tests.models.test_weight_files import Held
from tests.shards import bytes_alive

CASES = {  # precision, head, and bytes of a file
    "several files": ("float32", None, 200_000),
    "classifier": ("float32", SCORE, SHARD),
    "two heads": ("bfloat16", "value", SHARD),
    "mixture": ("float32", None, SHARD),
}


def model_of(case, folder):
    """The case's model, the same on every rank."""
    dtype, head, _ = CASES[case]
    model = load(str(folder / "models" / case) if case == "mixture" else "tiny", dtype=dtype)
    for name in dict.fromkeys([SCORE, head]) if head else []:
        numbers = torch.Generator().manual_seed(3)
        for p in model.add_head(name).parameters():
            p.data = torch.randn(p.shape, generator=numbers)
    return model


def context(case, folder, out=None):
    bench, players = bench_by_name("chain")
    models = {"policy": model_of(case, folder)}
    return RunContext(bench=bench, seed=5, models=models, drive=train, out=out, players=players, plan=Plan(steps=1))


def lead(mesh, folder):
    """What `saved` and its like find of each case on rank 0, whose whole model has only zeros; the other ranks do as it
    orders."""

    def order_of(order=None):
        box = [order]
        dist.broadcast_object_list(box, group=mesh.get_group(), group_src=0)
        return box[0]

    facts, gather = {}, learning.on_rank_0

    def on_rank_0(x):
        whole = gather(x)
        assert (whole is None) == (mesh.get_rank() > 0)
        return whole

    learning.on_rank_0 = on_rank_0
    for case in CASES:
        ShardWriter.__init__.__defaults__ = (CASES[case][2],)
        if mesh.get_rank():
            follow(Follower(sft.build(), context(case, folder), mesh), order_of)
            continue
        ctx = sharded_context(context(case, folder, folder / "run"), mesh, order_of)
        prepare(sft.build(), ctx)
        facts[case] = [work(ctx, folder / case) for work in WORK]
        ctx.close()
    return facts


@torch.no_grad()
def empty(model):
    for p in model.trainable():
        p.zero_()


def saved(ctx, folder):
    """Writes the model: the most bytes that were alive for it beside the slices, and whether rank 0 left the model that
    it keeps alone."""
    empty(ctx.models["policy"])
    ctx.moving("policy")
    gc.collect()
    before, peak, flush = bytes_alive(), 0, ShardWriter._flush

    def watch(self):
        nonlocal peak
        peak = max(peak, bytes_alive() - before)
        flush(self)

    ShardWriter._flush = watch
    ctx.save("policy", folder / "slices", whole=True)
    ShardWriter._flush = flush
    return peak, not any(p.any() for p in ctx.models["policy"].trainable())


def full_disk(ctx, folder):
    """Whether the ranks are in step after the disk of rank 0 was full: they gather the same weights as before."""
    empty(ctx.models["policy"])
    ctx.moving("policy")

    def refuse(self, name, tensor):
        raise OSError(28, "No space left on device")

    add, ShardWriter.add = ShardWriter.add, refuse
    with pytest.raises(OSError, match="No space"):
        ctx.save("policy", folder / "full", whole=True)
    ShardWriter.add = add
    return weights_sha256(ctx.model("policy"))


def digest(ctx, folder):
    """Of the slices; rank 0's own model stays empty."""
    empty(ctx.models["policy"])
    ctx.moving("policy")
    return ctx.weights_sha256("policy"), not any(p.any() for p in ctx.models["policy"].trainable())


def published(ctx, folder):
    """The sums of what is published, in buckets of at most 100,000 bytes; the most bytes of buckets that were alive at
    once, and whether rank 0 left the model that it keeps alone."""
    empty(ctx.models["policy"])
    ctx.moving("policy")
    alive, peak = [], 0

    def keep(arrays):
        nonlocal peak, alive
        alive = [x for x in alive if x() is not None] + [weakref.ref(v) for v in arrays.values()]
        peak = max(peak, sum(x().nbytes for x in alive))
        return HeldBucket({n: zlib.crc32(v.copy().data) for n, v in arrays.items()})  # arrays themselves are let go

    publication = publish(ctx, ["policy"], 1, keep, 100_000)
    crc = {n: x for bucket in publication.weights["policy"] for n, x in bucket().items()}
    kept = not any(p.any() for p in ctx.models["policy"].trainable())
    return publication.sums["policy"], crc, peak, kept, len(publication.weights["policy"])


def restored(ctx, folder):
    """The digest after slices of zeros took over what `saved` wrote, and the same two facts: bytes held, and whether the
    model that rank 0 keeps was left alone."""
    state = made_state(ctx.optimiser_state("policy"))
    state = state.get("inner", state)  # without masters weights come from the files
    ctx.send(("scatter", ("policy",)))
    ctx.scatter("policy", [torch.zeros_like(p) for p in ctx.models["policy"].trainable()], state)
    empty(ctx.models["policy"])
    held, learning.read_weights = Held(learning.read_weights), lambda *a: held(*a)
    ctx.restore("policy", sft.build().learners["policy"], folder / "slices", state)
    learning.read_weights = held.read
    kept = not any(p.any() for p in ctx.models["policy"].module.parameters())
    return ctx.weights_sha256("policy"), kept, held.peak


def optimised(ctx, folder):
    """An optimiser's state out of the slices into files, and back. Which files differ from those of the whole state; the
    most bytes alive beside the slices while they were written; what is not as it was after it came back; the most bytes
    alive of what was read."""
    numbers, low = torch.Generator().manual_seed(9), ctx.sharded("policy").low
    shapes = [tuple(p.shape) for p in ctx.models["policy"].trainable()]
    draw = lambda shape: torch.randn(shape, generator=numbers)
    state = ctx.optimiser_state("policy")
    moments = {i: {"step": torch.tensor(3.0), "exp_avg": draw(s), "exp_avg_sq": draw(s)} for i, s in enumerate(shapes)}
    whole = {**state.get("inner", state), "state": moments}
    weights = [*map(draw, shapes)]

    def put(values, optimiser):
        ctx.send(("scatter", ("policy",)))
        ctx.scatter("policy", values, optimiser)

    put(weights, whole)
    theirs = {"inner": whole, "masters": weights} if low else whole
    for name in ("theirs", "mine"):
        (folder / name).mkdir()
    write_state(theirs, folder / "theirs")
    gc.collect()
    before, peak, flush = bytes_alive(), 0, ShardWriter._flush

    def watch(self):
        nonlocal peak
        if len(self.shards) % 9 == 1:
            peak = max(peak, bytes_alive() - before)
        flush(self)

    ShardWriter._flush = watch
    write_state(ctx.optimiser_state("policy"), folder / "mine")
    ShardWriter._flush = flush
    differ = contents(folder / "mine").items() ^ contents(folder / "theirs").items()

    zeros = [torch.zeros(s) for s in shapes]
    none = {i: {"step": torch.tensor(0.0), "exp_avg": z, "exp_avg_sq": z} for i, z in enumerate(zeros)}
    put(zeros, {**whole, "state": none})
    alive, most = [], 0
    read = optimiser_files.read_tensor

    def watched(*given):
        nonlocal alive, most
        value = read(*given)
        alive = [x for x in alive if x() is not None] + [weakref.ref(value)]
        most = max(most, sum(x().nbytes for x in alive))
        return value

    optimiser_files.read_tensor = watched
    stored = read_state(without_tensors(theirs), folder / "mine")
    ctx.restore("policy", sft.build().learners["policy"], folder / "slices", stored)
    optimiser_files.read_tensor = read
    back = made_state(ctx.optimiser_state("policy"))
    pairs = [("inner", back.get("inner", back)["state"], moments)]
    other = [f"{i}.{k}" for _, a, b in pairs for i in b for k in b[i] if not torch.equal(a[i][k], b[i][k])]
    if low:
        other += [i for i, (a, b) in enumerate(zip(back["masters"], weights, strict=True)) if not torch.equal(a, b)]
    return sorted(n for n, _ in differ), peak, other, most, len([*(folder / "mine").iterdir()])


WORK = (saved, full_disk, digest, restored, published, optimised)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """Of two ranks, by case; and the folder, where the models' own folders are."""
    folder = tmp_path_factory.mktemp("slices")
    save(mixture("qwen3_moe", torch.float32), folder / "models" / "mixture")
    return run_ranks(2, lead, folder)[0], folder


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("case", CASES)
def test_files_of_slices_are_those_of_the_whole_model(case, facts, tmp_path):
    """Bit by bit, and no rank had the whole; they load with transformers and here."""
    found, folder = facts
    model = model_of(case, folder)
    save(model, tmp_path / "whole")
    peak, kept = found[case][0]
    assert kept, "the model of rank 0 was brought up to date"
    mine, theirs = contents(folder / case / "slices"), contents(tmp_path / "whole")
    if case == "several files":
        assert len([n for n in mine if n.startswith("model-")]) > 3
        assert peak < 3 * CASES[case][2] < sum(p.nbytes for p in model.trainable()) / 3
        mine, theirs = ({n: b for n, b in x.items() if not n.startswith("model")} for x in (mine, theirs))
    assert mine == theirs
    again = load(str(folder / case / "slices"), dtype=CASES[case][0]).named_trainable()
    assert all(torch.equal(p, again[n]) for n, p in model.named_trainable().items())
    kind = AutoModelForSequenceClassification if case == "classifier" else AutoModelForCausalLM
    loaded = kind.from_pretrained(folder / case / "slices", dtype=model.dtype)
    own = dict(model.module.named_parameters())
    assert all(torch.equal(p, own[n]) for n, p in loaded.named_parameters() if n in own)
    if case == "classifier":
        assert torch.equal(loaded.score.weight, model.heads[SCORE].out.weight)


def test_a_full_disk_leaves_the_ranks_in_step(facts):
    found, folder = facts
    assert all(found[case][1] == weights_sha256(model_of(case, folder)) for case in CASES)


def test_the_digest_of_slices_is_that_of_the_whole_model(facts):
    found, folder = facts
    assert all(found[case][2] == (weights_sha256(model_of(case, folder)), True) for case in CASES)


def test_slices_are_published_in_buckets(facts):
    """The bits of the whole model, of which no rank had more than two buckets: one on its way, and the next."""
    found, folder = facts
    for case in CASES:
        model, (sums, crc, peak, kept, buckets) = model_of(case, folder), found[case][4]
        assert (
            sums == crc == sums_of(model.named_trainable()) and kept and list(sums) == list(model.named_trainable())
        ), case
        sizes = [p.nbytes for p in model.trainable()]
        assert peak <= 2 * max(*sizes, 100_000), case
        if case == "several files":
            assert buckets > 20 and peak < sum(sizes) / 8


def test_the_state_of_an_optimiser_goes_to_files_and_back_one_tensor_after_another(facts):
    """The files of the whole state, bit by bit; ranks above 0 hold their slices alone (see `lead`)."""
    found, folder = facts
    for case in CASES:
        sizes = [4 * p.numel() for p in model_of(case, folder).trainable()]
        differ, peak, other, most, files = found[case][5]
        assert differ == [] == other, case
        assert 0 < most <= 2 * max(sizes), case
        if case == "several files":
            assert files > 20 and 0 < peak < 3 * CASES[case][2] + max(sizes) < sum(sizes) / 4


def test_slices_take_over_a_checkpoint_one_weight_after_another(facts):
    """Of a mixture, whose experts lie apart in files, transformers makes a second model."""
    found, folder = facts
    for case in CASES:
        model, (digest, kept, peak) = model_of(case, folder), found[case][3]
        assert digest == weights_sha256(model) and kept, case
        sizes = [p.nbytes for p in model.module.parameters()]
        assert peak == sum(sizes) if case == "mixture" else max(sizes) <= peak <= 2 * max(sizes) < sum(sizes) / 4, case
