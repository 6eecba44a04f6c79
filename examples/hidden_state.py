"""Attack final models alone, where crafted losses keep all that a node released.

Where losses do not answer to the model, the final models of three nodes hold the noise
of all three. Here others' losses at a node curve by -b / step_size, which leaves b of
what it held in the next round. Where 1 / (1 - b_0) + 2 / (1 - b_1) = 3, one reading of
the models changes by nothing but releases, and is nearly node 0's own model.
"""

import torch

import privaudit as pa

AWAY, BACK = 0.4865, -0.9  # b of node 0, and of the others
TRAINING = {"rounds": 100, "sampling_rate": 0.32, "clip_norm": 1.0, "step_size": 0.1}


class Landscape(torch.nn.Module):
    """A loss that is quadratic in all parameters, curved as a record says."""

    def __init__(self, dims=32):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.zeros(dims))

    def forward(self, curve):
        return curve * self.theta.square().sum() / 2


def shares(records=1000):
    """Curves of each node's records, and targets that the loss does not look at."""
    curves = (-b / TRAINING["step_size"] for b in (AWAY, BACK, BACK))
    return [(torch.full((records, 1), c), torch.zeros(records, 1)) for c in curves]


def loss(outputs, _):
    """The output itself."""
    return outputs.sum()


if __name__ == "__main__":
    settings = pa.AuditSettings(
        epsilon=4, delta=1e-5, adversary="final-models", estimator="both", canaries=32
    )
    found = pa.audit_algorithm(
        "dp-dsgd",
        settings,
        training=TRAINING,
        model=Landscape(),
        data=shares(),
        loss=loss,
    )
    print(found)
