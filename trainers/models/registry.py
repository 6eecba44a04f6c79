"""Models by name, and any user's by ``module:function``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from privaudit.files.arguments import near
from privaudit.files.user_code import checked, function_named, is_place
from trainers.models.resnets import resnet9, resnet18
from trainers.models.sequences import lstm, vit
from trainers.models.small import (
    logistic,
    one_vs_all,
    shallow_cnn,
    small_cnn,
    softmax,
    tanh_mlp,
)

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """A model by name."""

    # from an input's shape (without the samples), the number of classes and options to
    # the module
    make: Callable[..., nn.Module]
    options: dict[str, int | None]  # what may be set, by name, with its default

    def __call__(self, input_shape: Shape, classes: int, **options: Any) -> nn.Module:
        """The module. Raises ``ValueError`` for a shape that it cannot take."""
        return self.make(input_shape, classes, **options)


def _of_images(make: Callable[..., nn.Module], **options: int | None) -> Model:
    def of(shape: Shape, classes: int, **given: Any) -> nn.Module:
        if len(shape) != 3 or shape[1] != shape[2]:
            raise ValueError(
                "it takes square images, (channels, size, size), not inputs of shape "
                f"{_text(shape)}, which softmax and tanh-mlp take"
            )
        return make(size=shape[1], channels=shape[0], classes=classes, **given)

    return Model(of, options)


def _of_vectors(make: Callable[..., nn.Module], **options: int | None) -> Model:
    def of(shape: Shape, classes: int, **given: Any) -> nn.Module:
        return make(math.prod(shape), classes, **given)

    return Model(of, options)


def _logistic(shape: Shape, classes: int) -> nn.Module:
    if classes != 2:
        raise ValueError(
            f"it tells two classes apart, not {classes}; use softmax for more"
        )
    return logistic(math.prod(shape))


def _lstm(
    shape: Shape, classes: int, *, hidden: int = 64, vocabulary: int | None = None
) -> nn.Module:
    if vocabulary is None and (len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)):
        return lstm(shape[-1], classes, hidden=hidden)
    if vocabulary is not None and len(shape) == 1:
        return lstm(hidden, classes, hidden=hidden, vocabulary=vocabulary)
    raise ValueError(
        "it takes (steps, features), images of one channel row by row, or with a "
        f"vocabulary (steps,) of tokens, not inputs of shape {_text(shape)}"
    )


MODELS: dict[str, Model] = {
    "logistic": Model(_logistic, {}),
    "softmax": _of_vectors(softmax),
    "one-vs-all": _of_vectors(one_vs_all),
    "small-cnn": _of_images(small_cnn, filters=3, kernel=5, hidden=64),
    "shallow-cnn": _of_images(shallow_cnn, filters=16, hidden=32),
    "tanh-mlp": _of_vectors(tanh_mlp, hidden=10),
    "resnet9": _of_images(resnet9, groups=16),
    "resnet18": _of_images(resnet18, groups=32),
    "vit": _of_images(vit, patch=4, features=64, depth=4, heads=4),
    "lstm": Model(_lstm, {"hidden": 64, "vocabulary": None}),
}


def model_named(text: str) -> tuple[str, dict[str, int]]:
    """Name and options of a model such as ``vit:depth=2,features=32``, checked."""
    name, colon, given = text.rpartition(":")
    if "=" not in given or not colon:
        name, given = text, ""
    options = {}
    for part in filter(None, given.split(",")):
        option, _, value = part.partition("=")
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise ValueError(
                f"model {text}: {option or 'an option'} must be a whole number >= 1, "
                f"got {value!r}; options are written as vit:depth=2,features=32"
            )
        options[option] = int(value)
    if name not in MODELS and not is_place(name):
        raise ValueError(
            f"there is no model {name!r}; "
            f"{near(name, MODELS, 'your own as module:function')}"
        )
    check_options(name, options)
    return name, options


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise ``ValueError`` if the model of that name has not all of the options."""
    entry = MODELS.get(name)
    for option in options:
        if entry is not None and option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise ValueError(f"{name} has no option {option}; it has: {known}")


def make_model(
    name: str, input_shape: Shape, classes: int, **options: Any
) -> nn.Module:
    """The model called ``name``, for inputs of a shape and a number of classes.

    A name in `MODELS`, or ``module:function``, and after a colon its options,
    ``vit:depth=2``. The function is called with ``input_shape``, ``classes`` and the
    options, by keyword, and returns a `torch.nn.Module` from (samples, *input_shape) to
    (samples, classes), whose parameters are then drawn anew. ``ValueError`` if the
    model cannot take the shape.
    """
    name, named = model_named(name)
    options = {**named, **options}
    if classes < 2:
        raise ValueError(f"a model needs at least 2 classes, got {classes}")
    if name not in MODELS:
        return _own(name, input_shape, classes, options)
    check_options(name, options)
    try:
        return MODELS[name](input_shape, classes, **options)
    except ValueError as error:
        raise ValueError(f"model {name}: {error}") from None


def _own(
    name: str, input_shape: Shape, classes: int, options: dict[str, Any]
) -> nn.Module:
    try:
        make = function_named(name)
    except ValueError as error:
        raise ValueError(f"model {name}: {error}") from error
    with checked(f"model {name}: cannot call it with input_shape and classes"):
        module = make(input_shape=input_shape, classes=classes, **options)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"model {name}: it must return a torch.nn.Module, got "
            f"{type(module).__name__}"
        )
    if next(module.parameters(), None) is None:
        raise ValueError(f"model {name}: it has no parameters to train")
    shape = _text(input_shape)
    cannot = f"model {name}: it cannot take inputs of shape {shape}"
    with checked(cannot), torch.no_grad():
        outputs = module(torch.zeros(2, *input_shape))
    if outputs.shape != (2, classes):
        raise ValueError(
            f"model {name}: two samples give outputs of shape {_text(outputs.shape)}, "
            f"not (2, {classes})"
        )
    return module


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
