"""Several cameras, and a masked autoencoder whose code of a frame is what the world model sees.

B clips, C frames of one, V views of a frame, P patches of a view, D numbers of a code, n frames, c channels, s pixels a
side.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl

PATCH, WIDTH, CODE, HEADS = 4, 48, 24, 4  # pixels of a patch's side; of tokens; of a code
CLIP = 3  # frames of a clip: the first, the middle and the last one of a key-horizon
FRONT = 0  # the camera from which the policy acts


@runtime_checkable
class HasCameras(Protocol):
    """A simulator that shows an observation as several cameras see it."""

    @property
    def camera_shape(self) -> tuple[int, int, int]:
        """Views, channels and pixels a side, a multiple of four."""
        ...

    def render(self, obs: np.ndarray) -> np.ndarray:
        """[n, V, c, s, s] from 0 to 1, of observations [n, O]; view 0 is the one that a policy acts from."""
        ...


def patches_of(images: Tensor) -> Tensor:
    """[n, V P, c 16] the patches of images [n, V, c, s, s], row by row."""
    n, V, c, s, _ = images.shape
    k = s // PATCH
    cut = images.reshape(n, V, c, k, PATCH, k, PATCH).permute(0, 1, 3, 5, 2, 4, 6)
    return cut.reshape(n, V * k * k, c * PATCH * PATCH)


def visible_patches(
    views: int, patches: int, masked: float, rng: np.random.Generator, n: int
) -> np.ndarray:
    """[n, K] which of V P patches are seen: of one view, drawn, all but the share `masked`, one at least; nothing of the
    others. A clip has one such mask for all of its frames.
    """
    kept = max(1, round((1 - masked) * patches))
    view_n = rng.integers(views, size=n)
    order = rng.random((n, patches)).argsort(1)[:, :kept]
    return view_n[:, None] * patches + np.sort(order, 1)


class MaskedViews(nn.Module):
    """Codes of frames by the patches that are seen, and pixels and rewards by codes.

    L = -ln p(pixels of all views | z) - ln p(reward | z)          unit variances
    """

    def __init__(self, views: int, channels: int, size: int):
        super().__init__()
        if size % PATCH or min(views, channels, size) < 1:
            raise pl.UserError(
                f"robohorizon: camera_shape is views, channels and pixels, a multiple of {PATCH}; not "
                f"{(views, channels, size)}"
            )
        self.shape = (views, channels, size)
        self.patches = (size // PATCH) ** 2
        pixels = channels * PATCH * PATCH
        self.embed = nn.Linear(pixels, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(views * self.patches, WIDTH))
        self.time = nn.Parameter(0.02 * torch.randn(CLIP, WIDTH))
        layer = lambda: nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.ModuleList([layer(), layer()])
        self.code = nn.Linear(WIDTH, CODE)
        every = views * self.patches * pixels
        self.decoder = nn.Sequential(
            nn.Linear(CODE, 4 * WIDTH), nn.ELU(), nn.Linear(4 * WIDTH, every)
        )
        self.reward = nn.Linear(CODE, 1)

    def encode(self, patches: Tensor, seen: Tensor) -> Tensor:
        """[B, C, D] codes of clips of patches [B, C, V P, pixels], of which those of `seen` [B, K] are looked at."""
        B, C = patches.shape[:2]
        index = seen[:, None, :, None].expand(B, C, -1, patches.shape[-1])
        x = self.embed(patches.gather(2, index)) + self.place[seen][:, None]
        x = x + self.time[:C][:, None]
        flat = x.reshape(B, -1, WIDTH)
        for layer in self.encoder:
            flat = layer(flat)
        return self.code(flat.reshape(B, C, -1, WIDTH).mean(2))

    def decode(self, code: Tensor) -> Tensor:
        """[..., V P, pixels] of codes [..., D]."""
        return self.decoder(code).unflatten(-1, (len(self.place), -1))

    def loss(self, patches: Tensor, reward: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """L, and of the pixels alone the mean squared error."""
        code = self.encode(patches, seen)
        error = (self.decode(code) - patches).square()
        paid = (self.reward(code)[..., 0] - reward).square()
        return 0.5 * (error.sum((-1, -2)) + paid).mean(), error.mean()

    @torch.no_grad()
    def front_codes(self, images: Tensor) -> Tensor:
        """[n, D] codes by the front camera alone, of images [n, V, c, s, s]."""
        seen = torch.arange(self.patches).expand(len(images), -1) + FRONT * self.patches
        return self.encode(patches_of(images)[:, None], seen)[:, 0]


@pl.stage
class ViewLearner:
    """Fits a `MaskedViews` to clips of games.

    Args:
        updates: of Adam.
        clips: of an update.
        masked: share of the patches of the one view that is seen; 0.95 in the paper, whose views have more of them. Half
            of the updates show that view whole, as the policy sees it.
    """

    updates: int = 600
    clips: int = 16
    masked: float = 0.75
    lr: float = 3e-3
    smallest: ClassVar[Mapping[str, float]] = {"updates": 4}

    def __post_init__(self) -> None:
        pl.check_bounds("robohorizon: views.updates", self.updates, least=1)
        pl.check_bounds("robohorizon: views.clips", self.clips, least=1)
        pl.check_bounds("robohorizon: views.masked", self.masked, least=0, most=1)

    def fit(
        self,
        sim: Any,
        paths: pl.control.Paths,
        reward: np.ndarray,
        segments: Sequence[tuple[int, int, int]],
        key: pl.Key,
    ) -> tuple[MaskedViews, dict[str, float]]:
        """The autoencoder, and the share of the variance of all views' pixels that it explains in the last tenth of its
        updates: "views_explained" by one whole view, "masked_explained" by what the mask leaves of one.

        Args:
            reward: of steps [n, T].
            segments: (game, first step, last step) between keyframes; a clip is of one.
        """
        shape = sim.camera_shape
        net = pl.control.draw_network(lambda: MaskedViews(*shape), (*key, "views"))
        images = render_games(sim, paths)
        seen = images[paths["alive"]]
        variance = float(patches_of(seen).var(0, unbiased=False).mean()) or 1.0
        optimiser = torch.optim.Adam(net.parameters(), self.lr)
        rng, errors = pl.rng_of((*key, "clips")), list[float]()
        rewards = torch.from_numpy(np.asarray(reward, np.float32))
        for i in range(self.updates):
            chosen = [segments[int(j)] for j in rng.integers(len(segments), size=self.clips)]
            game = torch.tensor([g for g, _, _ in chosen])[:, None]
            step = torch.tensor([[a, (a + b) // 2, b] for _, a, b in chosen])
            masked = self.masked if i % 2 else 0.0
            mask = visible_patches(shape[0], net.patches, masked, rng, self.clips)
            clips = images[game, step]
            cut = patches_of(clips.flatten(0, 1)).unflatten(0, (self.clips, CLIP))
            loss, error = net.loss(cut, rewards[game, step], torch.from_numpy(mask))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            errors.append(float(error.detach()))
        last = errors[-max(2, self.updates // 10) :]
        turn = self.updates - len(last)  # even updates show a whole view
        share = lambda odd: 1 - float(np.mean(last[(turn + odd) % 2 :: 2] or last)) / variance
        numbers = {"views_explained": share(0), "masked_explained": share(1)}
        return net.requires_grad_(False), numbers


def render_games(sim: Any, paths: pl.control.Paths) -> Tensor:
    """[n, T, V, c, s, s] what the cameras see before each step."""
    obs = paths["obs"][:, 0]
    images = np.asarray(sim.render(obs.reshape(-1, obs.shape[-1])), np.float32)
    wanted = (len(images), *sim.camera_shape, sim.camera_shape[-1])
    if images.shape != wanted:
        raise pl.UserError(
            f"robohorizon: render gives {images.shape}, and camera_shape says {wanted}"
        )
    return torch.from_numpy(images).reshape(*obs.shape[:2], *images.shape[1:])


def draw_spots(at: np.ndarray, centre: np.ndarray, half: float, size: int) -> np.ndarray:
    """[n, s, s] the brightest of soft spots at [n, K, 2], of a window `half` around `centre` [n, 2]; rows go up."""
    ticks = ((np.arange(size) + 0.5) / size * 2 - 1) * half
    grid = np.stack(np.meshgrid(ticks, ticks, indexing="xy"), -1)  # [s, s, 2] of (x, y)
    away = at[:, :, None, None] - centre[:, None, None, None] - grid
    return np.exp(-0.5 * np.square(away / (2 * half / size)).sum(-1)).max(1)
