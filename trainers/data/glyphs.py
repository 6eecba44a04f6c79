"""Glyphs: artificial images in the shape of MNIST, made here.

The ten digits in matplotlib's fonts, each image with its own stroke width, slant, size,
place and elastic bend (Simard, Steinkraus and Platt 2003), grey level, blot and noise:
70 000 of 28x28, of which `small_cnn` gets 98.5 % right without privacy, as of MNIST. A
glyph is kept as the distance to its outline, which is smooth.
"""

from __future__ import annotations

import pathlib

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn import functional

from trainers.data.fetched import cached, data_folder

SIZE, CLASSES = 28, 10
TRAIN, TEST = 60_000, 10_000
VERSION = 1  # of the drawing; a change makes the cached files old

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique"),
    *("DejaVuSansMono", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralBolIta", "STIXGeneralItalic"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
_GRID = 64  # pixels of a drawn glyph's side, which spans [-1, 1]
_BLOCK = 2_000  # images at a time

# How far an image may be from its glyph, as standard deviations unless said; in units
# of the glyph's half height where they are lengths.
_SLANT, _TURN, _STRETCH, _SHIFT = 0.14, 0.1, 0.09, 0.07
_BEND = 0.06
_WIDTH = 0.03
_NOISE = 0.1  # at most, uniform between 0 and this


def glyphs(
    *, seed: int = 0, data_dir: str | pathlib.Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """70 000 images (samples, 28, 28) of bytes, 60 000 to train on, and their digits.

    Equal seeds give equal images on any machine but for a grey level's rounding.
    """
    path = data_folder(data_dir) / f"glyphs-v{VERSION}-seed{seed}.npz"
    arrays = cached(path, lambda: draw(TRAIN + TEST, seed=seed))
    return arrays["images"], arrays["digits"]


def draw(count: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """``count`` images and digits. Raises ``ValueError`` if matplotlib lacks a font."""
    rng = np.random.default_rng(seed)
    outlines = _distances()  # (fonts, digits, grid, grid)
    digits = rng.permutation(np.arange(count) % CLASSES).astype(np.uint8)
    images = np.empty((count, SIZE, SIZE), dtype=np.uint8)
    for start in range(0, count, _BLOCK):
        here = digits[start : start + _BLOCK]
        fonts = rng.integers(len(FONTS), size=len(here))
        drawn = _images(torch.from_numpy(outlines[fonts, here]), rng)
        images[start : start + _BLOCK] = (drawn * 255).round().byte().numpy()
    return {"images": images, "digits": digits}


def _distances() -> np.ndarray:
    """Signed distance to each glyph's outline, below zero inside, single precision."""
    import matplotlib
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath
    from scipy.ndimage import distance_transform_edt as outside

    folder = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    axis = (np.arange(_GRID) + 0.5) / _GRID * 2 - 1
    across, down = np.meshgrid(axis, axis)
    points = np.stack([across.ravel(), -down.ravel()], 1)
    result = np.empty((len(FONTS), CLASSES, _GRID, _GRID), dtype=np.float32)
    for row, font in enumerate(FONTS):
        file = folder / f"{font}.ttf"
        if not file.exists():
            raise ValueError(
                f"glyphs need the font {font}, which this matplotlib "
                f"({matplotlib.__version__}) does not have; use matplotlib >= 3.8"
            )
        shape = FontProperties(fname=file)
        for digit in range(CLASSES):
            text = TextPath((0, 0), str(digit), size=100, prop=shape)
            left, bottom, right, top = text.get_extents().extents
            # The digit's height fills seven tenths of the picture.
            scale = 1.4 / (top - bottom)
            middle = np.array([left + right, bottom + top]) / 2
            # Even-odd: holes are outlines inside outlines.
            inside = np.zeros(len(points), dtype=int)
            for part in map(np.asarray, text.to_polygons()):
                inside += Path((part - middle) * scale).contains_points(points)
            ink = (inside % 2 == 1).reshape(_GRID, _GRID)
            distance = np.asarray(outside(~ink)) - np.asarray(outside(ink))
            result[row, digit] = distance * (2 / _GRID)
    return result


def _images(outlines: Tensor, rng: Generator) -> Tensor:
    """(samples, 28, 28) in [0, 1] from distances (samples, grid, grid)."""
    count = len(outlines)

    def normal(*shape: int) -> Tensor:
        drawn = rng.standard_normal((count, *shape), dtype=np.float32)
        # No single image that is beyond recognition.
        return torch.from_numpy(drawn).clamp_(-2.5, 2.5)

    def uniform(low: float, high: float) -> Tensor:
        drawn = rng.random(count, dtype=np.float32)
        return torch.from_numpy(low + (high - low) * drawn)[:, None, None]

    turn, slant = _TURN * normal(), _SLANT * normal()
    wide, high = torch.exp(_STRETCH * normal()), torch.exp(_STRETCH * normal())
    cosine, sine = turn.cos(), turn.sin()
    # From a pixel of the image to one of the glyph: turned, slanted, stretched, moved.
    right = torch.stack(
        [wide * (cosine + slant * sine), wide * (slant * cosine - sine)]
    )
    down = torch.stack([high * sine, high * cosine])
    affine = torch.stack([right, down]).permute(2, 0, 1)
    affine = torch.cat([affine, _SHIFT * normal(2, 1)], 2)  # (samples, 2, 3)
    grid = functional.affine_grid(affine, [count, 1, SIZE, SIZE], align_corners=False)
    bend = functional.interpolate(
        _BEND * normal(2, 5, 5), size=SIZE, mode="bicubic", align_corners=False
    )
    grid = grid + bend.permute(0, 2, 3, 1)
    distance = functional.grid_sample(
        outlines[:, None], grid, padding_mode="border", align_corners=False
    )[:, 0]
    edge = uniform(0.05, 0.16)  # how soft the stroke's border is
    ink = torch.sigmoid((_WIDTH * normal()[:, None, None] - distance) / edge * 4)
    ink = ink * uniform(0.6, 1.0)

    # A soft spot, of ink or of paper, somewhere; half of them too faint to see.
    place = torch.linspace(-1, 1, SIZE)
    across, along = uniform(-1, 1), uniform(-1, 1)
    far = (place - across) ** 2 + (place[:, None] - along) ** 2
    spot = torch.exp(-far / (2 * uniform(0.06, 0.14) ** 2))
    ink = ink + uniform(-0.8, 0.8) * spot
    ink = ink + uniform(0, _NOISE) * normal(SIZE, SIZE)
    return ink.clamp_(0, 1)
