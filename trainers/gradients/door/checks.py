"""Checks that a graph of one record neither draws, nor writes, nor looks at values."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from trainers.gradients.door.operators import OURS

# ATen operations that may be in a graph of one record. Of each torch's rule of mapping
# over records is relied on, and tested (tests/trainers/gradients/door). None draws,
# writes, keeps anything or looks at values.
# What may give a view of what it is given, or not.
ALIASING = frozenset(
    """
    broadcast_tensors contiguous dropout flatten meshgrid reshape reshape_as to type_as
    view_as
    """.split()  # noqa: SIM905
)

MAPPED = frozenset(
    """
    __and__ __lshift__ __or__ __rshift__ __xor__ _conj _weight_norm abs absolute
    acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d add addbmm addcdiv addcmul addmm addmv
    adjoint affine_grid_generator all amax amin aminmax angle any arctan argmax
    argmin argsort asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d
    baddbmm batch_norm bilinear binary_cross_entropy
    binary_cross_entropy_with_logits bitwise_and bitwise_not bitwise_xor bmm
    broadcast_tensors broadcast_to bucketize cat cdist ceil celu channel_shuffle
    chunk clamp clamp_min clip clone col2im complex concat concatenate contiguous
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d copysign
    cos cosh cosine_embedding_loss cosine_similarity count_nonzero cross
    cross_entropy_loss cummax cummin cumprod cumsum deg2rad detach diag_embed
    diagonal diff digamma div divide dot einsum elu embedding embedding_bag eq erf
    erfc erfinv exp exp2 expand expand_as expm1 fft_fft fft_fft2 fft_fftshift
    fft_ifft fft_ifft2 fft_irfft fft_irfft2 fft_rfft fft_rfft2 flatten flip floor
    floor_divide fmax fmin fmod frac gather ge gelu glu greater greater_equal
    grid_sampler group_norm gt hardshrink hardsigmoid hardswish hardtanh heaviside
    hinge_embedding_loss hstack huber_loss hypot im2col imag index index_add
    index_copy index_fill index_put index_select inner instance_norm isfinite isinf
    isnan kl_div kron kthvalue l1_loss layer_norm le leaky_relu lerp less less_equal
    lgamma linalg_householder_product linalg_matrix_power linalg_multi_dot
    linalg_norm linalg_vector_norm linear log log10 log1p log2 log_sigmoid
    log_softmax logaddexp logcumsumexp logical_and logical_not logical_or
    logical_xor logit logsumexp lt mT margin_ranking_loss masked_fill matmul max
    max_pool1d max_pool2d max_pool3d maximum mean median meshgrid min minimum mish
    movedim mse_loss mul multi_margin_loss multiply mv nan_to_num nanmean nansum
    narrow ne neg negative nll_loss_nd not_equal numpy_T outer pad pairwise_distance
    permute pixel_shuffle pixel_unshuffle poisson_nll_loss polar positive pow prelu
    ravel real reciprocal relu relu6 remainder repeat repeat_interleave reshape
    reshape_as rms_norm roll rot90 round rsqrt rsub scatter scatter_add
    scatter_reduce select selu sgn sigmoid sign silu sin sinc sinh slice
    slice_scatter smooth_l1_loss soft_margin_loss softmax softplus softshrink sort
    special_expit split split_with_sizes sqrt square squeeze stack std std_mean sub
    subtract sum swapaxes swapdims t take_along_dim tan tanh tensor_split tensordot
    threshold tile to topk trace transpose tril triplet_margin_loss triu true_divide
    trunc type_as unbind unflatten unfold unsqueeze upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d var var_mean vdot view_as_complex view_as_real vstack where
    xlogy
    """.split()  # noqa: SIM905 - a list of so many strings is not read
)


aten = torch.ops.aten
SETS = torch._C._set_grad_enabled
DROPS = ("dropout", "dropout_")
CHANCES = ("bernoulli", "bernoulli_")
_MOST = 50_000  # operations of one record; more would be traced for minutes


class NotTraced(Exception):
    """The function cannot be traced; the message says why, and where in it."""


def check_operations(graph: fx.Graph) -> None:
    """Raise for what is no operation of torch's own, draws, or looks at values."""
    if len(graph.nodes) > _MOST:
        raise NotTraced(f"one record takes {len(graph.nodes):,} operations")
    for node in graph.nodes:
        check_dense(node.meta.get("val"), node)
        if node.op != "call_function" or node.target in (operator.getitem, SETS):
            continue
        if not isinstance(
            node.target, torch._ops.OpOverload
        ) or node.target.namespace not in ("aten", "prims"):
            raise NotTraced(
                f"{name_of(node)} is no operation of torch's{place_of(node)}"
            )
        name = node.target.overloadpacket.__name__
        if name in ("item", "_local_scalar_dense") or _unknown_shape(node):
            raise NotTraced(
                f"{name_of(node)} takes a number or a shape out of a tensor's values"
                f"{place_of(node)}"
            )
        statistics = (name == "batch_norm" and node.args[5]) or (
            name == "instance_norm" and node.args[5] and node.args[3] is not None
        )
        if statistics:
            raise ValueError(
                "the model mixes the records of a batch: "
                f"{name_of(node)} uses or keeps their statistics{place_of(node)}; use "
                "torch.nn.GroupNorm, or privaudit.replace_batch_norm"
            )
        drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        keyed = name in (*DROPS, *CHANCES, "scaled_dot_product_attention")
        if drawn and (not keyed or node.kwargs.get("generator") is not None):
            raise ValueError(
                f"the model draws random numbers ({name_of(node)}{place_of(node)}), "
                "which depend on how many records were drawn before; take out what "
                "draws them, or use dropout"
            )


def check_dense(value: Any, node: fx.Node) -> None:
    """`NotTraced` for a tensor at ``node`` that is sparse: rules are for dense ones."""
    if getattr(value, "layout", torch.strided) is not torch.strided:
        raise NotTraced(f"it uses a sparse tensor, in {name_of(node)}{place_of(node)}")


def _unknown_shape(node: fx.Node) -> bool:
    values = node.meta.get("val")
    parts = values if isinstance(values, (tuple, list)) else [values]
    return any(
        isinstance(part, (torch.SymInt, torch.SymFloat, torch.SymBool))
        or (isinstance(part, Tensor) and any(type(n) is not int for n in part.shape))
        for part in parts
    )


def written(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operation writes to."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return []
    found = []
    for number, each in enumerate(node.target._schema.arguments):
        if each.alias_info is not None and each.alias_info.is_write:
            value = (
                node.args[number]
                if number < len(node.args) and not each.kwarg_only
                else node.kwargs.get(each.name)
            )
            parts = value if isinstance(value, (list, tuple)) else [value]
            found += [part for part in parts if isinstance(part, fx.Node)]
    return found


def whose(node: fx.Node) -> fx.Node:
    """Whose memory a node shares."""
    while node.op == "call_function":
        inputs = written(node)
        if not inputs:
            same = None, _memory(node)
            inputs = [one for one in _seen(node) if _memory(one) in same]
        if not inputs:
            return node
        node = inputs[0]
    return node


def _seen(node: fx.Node) -> list[fx.Node]:
    """Nodes of which one may be a view."""
    if node.target is operator.getitem:
        return _seen(node.args[0])  # type: ignore[arg-type]
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    views = any(out.alias_info for out in node.target._schema.returns)
    aliasing = views or node.target.overloadpacket.__name__ in ALIASING
    return node.all_input_nodes if aliasing else []


def _memory(node: fx.Node) -> int | None:
    """Memory of what a node gave as it was traced, of several tensors the first's."""
    value = node.meta.get("val")
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    known = isinstance(value, Tensor) and node.op != "get_attr"
    return value.untyped_storage()._cdata if known else None  # type: ignore


def check_writes(graph: fx.Graph, called: dict[fx.Node, str]) -> None:
    """``ValueError`` for a write to what outlives a call: those that are ``called``."""
    for node in graph.nodes:
        if node.target is aten.detach_.default:
            continue
        for into in written(node):
            base = whose(into)
            if base in called:
                raise ValueError(
                    "the model, or the loss, keeps something of its records in "
                    f"{called[base] or 'a tensor'} ({name_of(node)}{place_of(node)}), "
                    "from which it reaches others, so that clipping bounds nothing; "
                    "take out what keeps it, such as running statistics, max_norm or "
                    "spectral_norm"
                )


def is_mapped(target: Any) -> bool:
    if target is operator.getitem or target in OURS:
        return True
    return target.overloadpacket.__name__ in MAPPED and target.namespace == "aten"


def name_of(node: fx.Node) -> str:
    return str(getattr(node.target, "_name", None) or node.target).replace("::", ".")


def place_of(node: fx.Node) -> str:
    """The place in the source that an operation came from, " (file, line 3)"."""
    lines = [
        line.strip()
        for line in (node.meta.get("stack_trace") or "").splitlines()
        if line.strip().startswith("File ")
    ]
    theirs = [line for line in lines if "/torch/" not in line]
    if not theirs:
        return ""
    file, line = theirs[-1].split(", ")[:2]
    return f" ({file.removeprefix('File ').strip(chr(34))}, {line})"
