"""The settings that an audit starts from unless the user sets others."""

from __future__ import annotations

from typing import Any

# Appendix D of Bayrooti et al. 2023 with digits for MNIST: 300 images of 0, 1, 2, a
# node a digit, clip 10, 100 rounds. Lot, step size and start are not given there.
AUDITED: dict[str, Any] = {
    "nodes": 3,
    "digits": (0, 1, 2),
    "train": 300,
    "split": 1.0,
    "hidden": 16,
    "gain": 6.0,
    "rounds": 100,
    "lot_size": 32.0,
    "clip_norm": 10.0,
    "step_size": 0.1,
}
