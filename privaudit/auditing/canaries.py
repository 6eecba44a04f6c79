"""What is planted: the record whose membership an audit tries to tell."""

from __future__ import annotations

import torch

from trainers.data import Dataset


def blank(example: torch.Tensor, *, label: int = 0) -> Dataset:
    """One blank sample of the shape of ``example``, labelled ``label``.

    The canary of appendix D of Bayrooti et al. 2023 (after De et al. 2022).
    """
    return Dataset(torch.zeros_like(example)[None], torch.tensor([label]))
