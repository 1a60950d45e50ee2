"""The public names of `pl.objective`, and where each lies."""

# ruff: noqa: I001

from .algebra import (
    Couples as Couples,
    Reduction as Reduction,
    Scaled as Scaled,
    Sum as Sum,
    sum_by_unit as sum_by_unit,
)
from .anchored import (
    AnchoredPair as AnchoredPair,
    GeometricMean as GeometricMean,
    LogRatioModulated as LogRatioModulated,
    NoiseContrastive as NoiseContrastive,
    PowerReward as PowerReward,
    ReversePairKL as ReversePairKL,
    SquaredSides as SquaredSides,
)
from .covariance import (
    ClipCov as ClipCov,
    KLCov as KLCov,
)
from .divergence import (
    GeneralisedJSD as GeneralisedJSD,
    SpanKL as SpanKL,
    TopJSD as TopJSD,
    generalised_jsd as generalised_jsd,
)
from .kl import (
    KLKind as KLKind,
    kl_quantity as kl_quantity,
    kl_terms as kl_terms,
)
from .mismatch import (
    TIS as TIS,
)
from .policy import (
    RatioLevel as RatioLevel,
    Trust as Trust,
)
from .preference import (
    AOT as AOT,
    Hinge as Hinge,
    IPO as IPO,
    ImitatePreferred as ImitatePreferred,
    JensenShannon as JensenShannon,
    OddsRatio as OddsRatio,
    chosen_nll as chosen_nll,
    pair_column as pair_column,
    preference_margins as preference_margins,
)
from .residual import (
    Balance as Balance,
    PathConsistency as PathConsistency,
    ValueConsistency as ValueConsistency,
)
from .reward_model import (
    BradleyTerryAhead as BradleyTerryAhead,
    CritiqueNLL as CritiqueNLL,
    Gaussian as Gaussian,
)
from .shaped import (
    GammaWeighted as GammaWeighted,
    SoftGated as SoftGated,
)
from .terms import (
    LegalMass as LegalMass,
    TargetEntropy as TargetEntropy,
)
from .tokens import (
    TokenWeighted as TokenWeighted,
    TopTokens as TopTokens,
    Unmastered as Unmastered,
)
from .unpaired import (
    BCO as BCO,
    KTO as KTO,
)
