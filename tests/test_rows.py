"""A test over all rows names every row that fails."""

import pytest

from tests.rows import every


def test_all_offenders_are_named_and_the_others_are_not():
    @every(("a", "b"), [(1, 1), (1, 2), (3, 3), (4, 0)], ids=lambda row: f"row {row[0]}{row[1]}")
    def law(a, b):
        assert a == b

    with pytest.raises(pytest.fail.Exception, match=r"^2 of 4 rows:\nrow 12: (.|\n)*\nrow 40: ") as failed:
        law()
    assert "row 11" not in str(failed.value) and "row 33" not in str(failed.value)
    assert "assert 1 == 2" in str(failed.value)


def test_errors_and_failures_of_pytest_are_offenders_too():
    @every("row", [0, 1, 2])
    def law(row):
        if row == 1:
            with pytest.raises(ValueError):
                pass
        assert 1 / row

    with pytest.raises(pytest.fail.Exception, match=r"^2 of 3 rows:\n0: ZeroDivisionError(.|\n)*\n1: Failed: DID NOT"):
        law()


def test_a_row_that_skips_hides_no_other():
    @every("row", [0, 1, 2])
    def law(row):
        if row == 0:
            pytest.skip("is not installed")
        assert row == 2

    with pytest.raises(pytest.fail.Exception, match=r"^1 of 3 rows:\n1: "):
        law()
    with pytest.raises(pytest.skip.Exception, match=r"^needs all$"):
        every("row", [1, 2])(lambda row: pytest.skip("needs all"))()


def test_a_table_without_rows_shows_nothing():
    with pytest.raises(ValueError, match="a law about row that has no rows"):
        every("row", [])
    with pytest.raises(ValueError, match="a row with marks is a case of its own"):
        every("row", [pytest.param(1, marks=pytest.mark.slow)])


@pytest.fixture
def ten():
    return 10


@every("row", [1, 2])
def test_fixtures_are_given(row, ten):
    assert row < ten


@every("a", [1, 2])
@every("b", [3, 4])
def test_two_tables_are_crossed(a, b):
    assert a < b
