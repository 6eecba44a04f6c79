"""Group normalisation in place of what mixes the records of a batch."""

from __future__ import annotations

import copy

from torch import nn

from privaudit.files.arguments import public


@public
def replace_batch_norm(module: nn.Module, groups: int = 32) -> nn.Module:
    """Copy ``module``, with group normalisation in place of every batch normalisation.

    Batch statistics mix the records of a batch, so that clipping a record's gradient
    does not bound its influence. Group normalisation (Wu and He 2018) reads one record
    alone. Learned scales and shifts are kept; running statistics are dropped, so
    outputs change.

    Parameters
    ----------
    module
        Any module; it is not changed.
    groups
        Largest number of groups of channels. A layer gets the largest number up to
        this that divides its channels. BatchNorm1d always gets one group (a layer
        normalisation), as a channel may be a single number.

    Raises
    ------
    ValueError
        If ``groups`` is less than 1.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), torch.nn.BatchNorm2d(6))
    >>> pa.replace_batch_norm(net)[1]
    GroupNorm(6, 6, eps=1e-05, affine=True, bias=True)
    """
    if groups < 1:
        raise ValueError(f"groups must be >= 1, got {groups}")
    module = copy.deepcopy(module)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return _group_norm(module, groups)
    for name, layer in list(module.named_modules()):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            module.set_submodule(name, _group_norm(layer, groups))
    return module


def _group_norm(layer: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    if isinstance(layer, nn.BatchNorm1d):
        groups = 1
    parts = next(n for n in range(min(groups, channels), 0, -1) if channels % n == 0)
    made = nn.GroupNorm(parts, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        made.weight, made.bias = layer.weight, layer.bias
    return made
