"""Credit by one part of the reward."""

import pytest
from palaestra.credit.labelled import Labelled
from palaestra.credit.preferences import Compare
from palaestra.errors import UserError

from tests.rewards.labelled import group, said


def test_labelled_credit_reads_the_part():
    g = group(said("a", 1.0, gold=0.0), said("b", 0.0, gold=1.0), said("c", 5.0))
    better, worse = Labelled("gold", Compare())([g], [], {})[0]
    assert (better.row.segments[1].text, worse.row.segments[1].text) == ("b", "a")
    with pytest.raises(UserError, match="no reward has the part 'silver'"):
        Labelled("silver", Compare())([g], [], {})
