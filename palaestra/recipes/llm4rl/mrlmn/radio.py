"""Radio of drones: signal-to-noise ratios by distance, interference on the ground, and rates over several hops.

n games, A drones, U users. Ratios are linear where their name does not end in `_db`; rates are bits a second and hertz.
"""

from __future__ import annotations

import numpy as np

import palaestra as pl

NEAREST = 0.5  # cells; nearer than this the ratio grows no more


@pl.stage
class RadioLinks:
    """A ratio falls with distance d as d^-exponent, and is `threshold_db` at the range of a link.

        SNR(d)  = 10^(threshold_db / 10) (range / max(d, 1/2))^exponent        in units of the noise
        SINR_ua = SNR_ua / (1 + interference * sum of SNR_ub over drones b != a that transmit)
        rate    = min(log2(1 + SINR_ua) / (users of a),  min over hops of log2(1 + SNR_hop) / (users over the hop))

    A user has a link from `threshold_db` on. Hops have bands of their own; on the ground, drones share one, of which
    `interference` leaks from one to the other, and a drone shares out its own evenly (Shannon; constants are ours).

    Args:
        threshold_db: below which there is no link.
        exponent: of the path loss; 2 = free space.
        interference: share of other drones' power that a user hears; 0 = links are there within their range.
    """

    threshold_db: float = 5.0
    exponent: float = 2.5
    interference: float = 0.05

    def __post_init__(self) -> None:
        pl.check_bounds("drones: exponent", self.exponent, least=0)
        pl.check_bounds("drones: interference", self.interference, least=0, most=1)

    @property
    def least(self) -> float:
        """The ratio below which there is no link."""
        return float(10 ** (self.threshold_db / 10))

    def snr(self, away: np.ndarray, reach: float) -> np.ndarray:
        """[...] of links `away` long, in cells, whose range is `reach`."""
        return self.least * (reach / np.maximum(away, NEAREST)) ** self.exponent

    def sinr(self, snr_nUA: np.ndarray, sends_nA: np.ndarray) -> np.ndarray:
        """[n, U, A] of each drone that transmits, 0 of others."""
        heard_nUA = snr_nUA * sends_nA[:, None]
        others_nUA = heard_nUA.sum(-1, keepdims=True) - heard_nUA
        return heard_nUA / (1 + self.interference * others_nUA)


def shares_of_hops(
    snr_nA: np.ndarray, hops_nA: np.ndarray, next_nA: np.ndarray, load_nA: np.ndarray
) -> np.ndarray:
    """[n, A] what a user of each drone has of the narrowest hop on its way: min over hops of log2(1 + SNR) / load.

    Args:
        snr_nA: of the hop from a drone to the next one, or a base station.
        hops_nA, next_nA: of a drone to a base station, and the next drone on the way, -1 = the base station.
        load_nA: users whose traffic the hop carries.
    """
    own_nA = np.log2(1 + snr_nA) / np.maximum(load_nA, 1)
    share_nA = own_nA.copy()
    A = snr_nA.shape[1]
    for hop in range(2, A + 1):  # the way of a drone is known once that of the next one is
        before_nA = np.take_along_axis(share_nA, np.maximum(next_nA, 0), 1)
        share_nA = np.where(hops_nA == hop, np.minimum(own_nA, before_nA), share_nA)
    return share_nA
