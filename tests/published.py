"""Publications taken apart and put together, for tests that change what travels."""

import torch
from palaestra.scale.weights import HeldBucket, Publication, sums_of


def arrays_of(publication):
    """The arrays of each learner by the names of its tensors."""
    return {n: {k: v for bucket in buckets for k, v in bucket().items()} for n, buckets in publication.weights.items()}


def in_buckets_of_one(arrays):
    return {n: [HeldBucket({k: v}) for k, v in of.items()] for n, of in arrays.items()}


def published(step, arrays):
    """Of so and so weights, as whoever has them in his models would publish them."""
    sums = {n: sums_of({k: torch.from_numpy(v.copy()) for k, v in of.items()}) for n, of in arrays.items()}
    return Publication(step=step, weights=in_buckets_of_one(arrays), sums=sums)
