"""What training made, as a file that torch and safetensors read without privaudit."""

from __future__ import annotations

from collections.abc import Mapping

import safetensors.torch
from torch import Tensor, nn

from privaudit.files import json as _json
from privaudit.files.manifest import digest
from privaudit.version import __version__
from trainers.gradients.per_sample import parameter_places
from trainers.runs.outcome import TrainingResult
from trainers.runs.training import Training


def packed(
    training: Training, module: nn.Module, models: Mapping[int, Tensor]
) -> bytes:
    """The models of the nodes, each (dims,), as the content of a safetensors file.

    A parameter of node 3 is called ``node3.`` and its name in ``module``. The metadata
    have, under ``privaudit``, the version and the SHA-256 of the settings; these are
    without the noise multiplier and the seed, which tell of the data and of the noise.
    """
    shapes = {name: value.shape for name, value in module.named_parameters()}
    tensors = {
        f"node{node}.{name}": vector[place.start : place.stop]
        .detach()
        .cpu()
        .reshape(shapes[name])
        .clone()  # of its own memory, as the format wants it
        for node, vector in models.items()
        for name, place in parameter_places(module).items()
    }
    about = {"version": __version__, "settings": digest(_json.encode(training))}
    # One entry: several would be written in an order of chance.
    metadata = {"privaudit": _json.encode(about, indent=0).decode()}
    return safetensors.torch.save(tensors, metadata)


def may_be_released(training: Training, result: TrainingResult) -> bool:
    """Whether the account of a run covers its models, all of them, for anybody.

    Not if parts of them stay at their nodes, the noise is not secret, or nothing finite
    is certified.
    """
    return (
        result.protected
        and not training.family.stays_home(training.setting())
        and all(
            node.standing == "certified" and node.epsilon < float("inf")
            for node in result.nodes
        )
    )
