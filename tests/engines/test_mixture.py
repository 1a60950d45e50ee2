"""A mixture of agents: its objective by hand."""

import numpy as np
import pytest
import torch
from palaestra.engines import mixture


def test_reference_values():
    """pi_ref = (.5, .5), pi_1 = (.9, .1), pi_2 = (.6, .4), Q = .9, .7: alpha 1 takes agent 2, alpha 0 agent 1."""
    law = lambda *p: torch.tensor(p, dtype=torch.float64).log()
    kl = [mixture.kl_nats(law(*p), law(0.5, 0.5)) for p in ((0.9, 0.1), (0.6, 0.4))]
    assert kl == pytest.approx([0.368064, 0.020136], abs=1e-6)
    j = [mixture.regularised_value(q, k, 1.0) for q, k in zip((0.9, 0.7), kl, strict=True)]
    assert j == pytest.approx([0.531936, 0.679864], abs=1e-6)
    assert mixture.regularised_value(0.9, kl[0], 0.0) > mixture.regularised_value(0.7, kl[1], 0.0)
    assert mixture.kl_nats(law(1.0, 0.0), law(0.5, 0.5)) == pytest.approx(np.log(2)), "what has no mass costs nothing"


def test_candidates_are_the_nucleus():
    law = torch.tensor([0.05, 0.6, 0.05, 0.3]).log()
    assert mixture.candidates(law) == [1, 3, 0] or mixture.candidates(law) == [1, 3, 2]
    assert mixture.candidates(law, p=0.5) == [1] and mixture.candidates(law, p=0.99, k=2) == [1, 3]
