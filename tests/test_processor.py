import pytest
from palaestra import processor
from palaestra.models.precision import precision_for
from palaestra.settings.fields import Settings

X86 = "processor\t: 0\nmodel name\t: Some Xeon\nflags\t\t: fpu fma avx2 {}\n\nprocessor\t: 1\nflags\t: none\n"


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """Stands in for the processor of this machine."""

    def have(text):
        monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
        (tmp_path / "cpuinfo").write_text(text)

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    return have


@pytest.mark.parametrize(
    ("text", "arithmetic", "bfloat16"),
    [
        (X86.format(""), ["AVX2"], False),
        (X86.format("avx512f avx512_bf16"), ["AVX2", "AVX-512", "AVX-512 bfloat16"], True),
        (X86.format("avx512f amx_bf16"), ["AVX2", "AVX-512"], False),  # no tiles
        (X86.format("amx_bf16 amx_tile"), ["AVX2", "AMX bfloat16"], True),
        (X86.format("avx_vnni amx_int8 amx_tile"), ["AVX2", "AVX VNNI", "AMX int8"], False),
        (X86.format("avx512f avx512_vnni"), ["AVX2", "AVX-512", "AVX-512 VNNI"], False),
        ("Features\t: fp asimd bf16\n", ["NEON", "NEON bfloat16"], True),
        ("Features\t: fp asimd asimddp\n", ["NEON", "NEON dot products"], False),
        ("", [], False),
    ],
)
def test_what_a_processor_has(flags, text, arithmetic, bfloat16):
    flags(text)
    assert (processor.arithmetic(), processor.computes_bfloat16()) == (arithmetic, bfloat16)
    assert processor.processor() == ("Some Xeon" if "Xeon" in text else processor.platform.processor())


def test_without_linux_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    assert processor.arithmetic() == []


def test_bfloat16_where_it_is_faster(flags, tmp_path):
    flags(X86.format("avx512f avx512_bf16"))
    assert precision_for("smollm2", "cpu").dtype == precision_for("org/model", "cpu").dtype == "bfloat16"
    assert precision_for("tiny", "cpu").dtype == precision_for("tiny", "cuda").dtype == "float32"
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    assert precision_for(str(tmp_path), "cuda").dtype == "float32"
    flags(X86.format(""))
    assert precision_for("smollm2", "cpu").dtype == "float32"
    assert precision_for("smollm2", "cuda").dtype == "bfloat16"


def test_a_command_names_a_dtype_that_is_not_the_same_everywhere(flags):
    flags(X86.format(""))
    assert not Settings(model="smollm2").says("dtype")
    assert not Settings(model="smollm2", dtype="float32").says("dtype")
    assert Settings(model="smollm2", dtype="bfloat16").says("dtype")
    flags(X86.format("avx512_bf16"))
    assert Settings(model="smollm2").says("dtype")
    assert Settings(model="smollm2", dtype="float32").says("dtype")
    assert not Settings(model="tiny", dtype="float32").says("dtype")
