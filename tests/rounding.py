"""How far log-probs of the same weights may lie apart in float32, where two passes add up in different orders.

A logit of the embedded model is a sum of D = 160 products whose absolute values add up to S = 45 at most. With the unit
roundoff u = 2^-24 such a sum has an error of about sqrt(D) u S = 3.4e-5 (Higham and Mary, SIAM J. Sci. Comput. 41, 2019;
D u S = 4.3e-4 is the worst that can happen), and two of them are compared. Measured against float64 a pass is 0.8e-5 to 1.3e-5
off at its worst token, whichever processor's kernels run. In the mean over tokens 1e-5 holds everywhere. Wrong weights, a wrong
picture or a wrong mask give gaps of 1e-3 and more.
"""

import numpy as np

TOKEN, MEAN = 7e-5, 1e-5  # nats


def agree(gaps) -> bool:
    """Whether absolute differences of log-probs are rounding alone."""
    gaps = np.asarray(gaps, dtype=np.float64)
    return bool(gaps.max() < TOKEN and gaps.mean() < MEAN)
