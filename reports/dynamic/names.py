"""Names of the methods compared, and of their cells."""

from __future__ import annotations

from typing import Any

EPSILONS = (0.3, 0.7, 1.0, 3.0)
METHODS = ("const-d2p", "dyn-mu-d2p", "dyn-c-d2p", "dyn-d2p")
CALIBRATIONS = ("paper", "certified")
NAMES = {
    "const-d2p": "Const-D2P",
    "dyn-mu-d2p": "Dyn[mu]-D2P",
    "dyn-c-d2p": "Dyn[C]-D2P",
    "dyn-d2p": "Dyn-D2P",
}
GRAPHS = ("directed-ring", "exponential", "complete")
NODES = (5, 10, 20, 40)


def key_of(how: str, method: str, epsilon: float, **network: Any) -> str:
    """By what a cell is kept; what is as in the tables is not said again."""
    usual = {"graph": "exponential", "nodes": 20}
    said = {name: value for name, value in network.items() if usual[name] != value}
    where = "".join(f" {name}={value}" for name, value in said.items())
    return f"cell {how} {method} epsilon={epsilon:g}{where}"
