"""The models of the papers, as plain modules; any other module serves as well."""

from trainers.models.registry import (
    MODELS,
    Model,
    check_options,
    make_model,
    model_named,
)
from trainers.models.resnets import resnet9, resnet18
from trainers.models.sequences import lstm, vit
from trainers.models.small import logistic, shallow_cnn, small_cnn, softmax, tanh_mlp
from trainers.models.start import (
    cross_entropy,
    hollow_out,
    initial_parameters,
    initial_parts,
)

__all__ = [
    "MODELS",
    "Model",
    "check_options",
    "cross_entropy",
    "hollow_out",
    "initial_parameters",
    "initial_parts",
    "logistic",
    "lstm",
    "make_model",
    "model_named",
    "resnet9",
    "resnet18",
    "shallow_cnn",
    "small_cnn",
    "softmax",
    "tanh_mlp",
    "vit",
]
