"""What `doctor` says of samples in company: true of the engine, and seen where it is not."""

import asyncio

import pytest
from palaestra.engines import rows
from palaestra.engines.company import check_company
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load


@pytest.mark.parametrize("compact", [True, False])
def test_the_engine_keeps_its_promise(compact):
    engine = OwnEngine(load("tiny"))
    engine.decoder.compact = engine.decoder.compact if compact else None
    assert asyncio.run(check_company(engine)) == "the same to the bit"


def test_what_is_different_is_counted():
    """Rows of any number, where the processor needs more than one."""
    with rows.force(rows.ANY):
        broken = asyncio.run(check_company(OwnEngine(load("tiny"))))
    needed = OwnEngine(load("tiny")).decoder.compact.rows() != rows.ANY
    assert broken.endswith("answers differ in the last bits") == needed


def test_another_precision_is_no_fault():
    said = asyncio.run(check_company(OwnEngine(load("tiny", dtype="bfloat16"))))
    assert said == "the same to the bit" or said.endswith("promised on a processor in float32 alone")
