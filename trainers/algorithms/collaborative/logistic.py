"""One-vs-all L2-regularised logistic regression, many models at once.

f(w, (x, y)) = ln(1 + exp(-y w.x)) + lambda/2 |w|^2 for y = +1 or -1 and |x| <= 1
(paper 002, equation 2). Class c's model has y = +1 where c is the label. There is no
constant feature: of all classes together it would only shift the scores.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

from privaudit.files.arguments import Checked
from privaudit.task_settings import NotNegative


@dataclasses.dataclass(frozen=True, slots=True)
class Constants(Checked):
    """Constants of the loss for rows in the unit ball, before any data.

    ``lipschitz`` leaves the regulariser out, which is equal in both worlds; the paper's
    has lambda R more (``paper_lipschitz``), for models within radius R.
    """

    regularisation: NotNegative  # lambda

    @property
    def lipschitz(self) -> float:
        """L = 1: the logistic loss has slope at most 1, times a row of length 1."""
        return 1.0

    @property
    def paper_lipschitz(self) -> float:
        """1 + lambda R with the paper's R = 1/lambda: 2, or 1 where lambda is 0."""
        return 2.0 if self.regularisation else 1.0

    @property
    def smoothness(self) -> float:
        """1 + lambda, as in the paper; the least would be 1/4 + lambda."""
        return 1.0 + self.regularisation

    @property
    def largest_step(self) -> float:
        """Up to it Lemma 4 holds: 1 / (2 smoothness)."""
        return 1 / (2 * self.smoothness)

    def check_step(self, step_size: float) -> None:
        """Raise ``ValueError`` if Lemma 4 says nothing for ``step_size``."""
        if not 0 < step_size <= self.largest_step:
            raise ValueError(
                f"the sensitivity (Lemma 4) holds for step sizes in (0, "
                f"{self.largest_step:.6g}] = (0, 1 / (2 (1 + lambda))], got "
                f"{step_size:g}; lower step_size"
            )


def unit_rows(inputs: Tensor) -> Tensor:
    """Rows of length 1, or 0, (..., features), each scaled by itself, never longer."""
    if not torch.isfinite(inputs).all():
        raise ValueError("a row has a value that is not finite: it has no length")
    # Scaled twice: the squares of tiny or huge rows have no length in floats.
    largest = inputs.abs().amax(-1, keepdim=True)
    rows = inputs / torch.where(largest > 0, largest, torch.ones_like(largest))
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    slack = 1 + 64 * torch.finfo(inputs.dtype).eps
    return rows / torch.where(lengths > 0, lengths * slack, torch.ones_like(lengths))


def signs(targets: Tensor, classes: int) -> Tensor:
    """+1 for a record's own class, -1 for all others, (..., classes)."""
    return 2.0 * functional.one_hot(targets, classes) - 1.0


def losses(weights: Tensor, rows: Tensor, signs: Tensor, constants: Constants):
    """Mean loss of each class's model on a batch, (..., classes)."""
    margins = signs * (rows @ weights.mT)
    penalty = constants.regularisation / 2 * weights.square().sum(-1)
    return functional.softplus(-margins).mean(-2) + penalty


def gradient(
    weights: Tensor, rows: Tensor, signs: Tensor, constants: Constants
) -> Tensor:
    """Gradient of `losses`, (..., classes, features)."""
    slopes = -signs * torch.sigmoid(-signs * (rows @ weights.mT))
    return slopes.mT @ rows / rows.shape[-2] + constants.regularisation * weights
