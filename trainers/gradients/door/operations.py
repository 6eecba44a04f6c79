"""ATen operations that may be in a graph of one record.

For each of them torch's rule of mapping over records is relied on, and tested: mapped,
it gives what it gives record by record (`tests/trainers/gradients/door`). None draws,
writes, keeps anything or looks at values.
"""

from __future__ import annotations

# What may give a view of what it is given, or not.
ALIASING = frozenset(
    ("contiguous", "flatten", "reshape", "reshape_as", "to", "type_as", "view_as")
)

MAPPED = frozenset(
    """
    __and__ __lshift__ __or__ __rshift__ __xor__ _conj _softmax _to_copy
    _weight_norm abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d add addbmm addcdiv
    addcmul addmm addmv adjoint affine_grid_generator all amax amin aminmax angle
    any arctan argmax argmin argsort asin asinh atan atan2 atanh avg_pool1d
    avg_pool2d avg_pool3d baddbmm batch_norm bilinear binary_cross_entropy
    binary_cross_entropy_with_logits bitwise_and bitwise_not bitwise_xor bmm
    broadcast_tensors broadcast_to bucketize cat cdist ceil celu channel_shuffle
    chunk clamp clamp_min clip clone col2im complex concat concatenate
    contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d copysign cos cosh cosine_embedding_loss cosine_similarity
    count_nonzero cross cross_entropy_loss cummax cummin cumprod cumsum deg2rad
    detach diag_embed diagonal diff digamma div divide dot einsum elu
    embedding embedding_bag eq erf erfc erfinv exp exp2 expand expand_as expm1
    fft_fft fft_fft2 fft_fftshift fft_ifft fft_ifft2 fft_irfft fft_irfft2 fft_rfft
    fft_rfft2 flatten flip floor floor_divide fmax fmin fmod frac full_like gather
    ge gelu glu greater greater_equal grid_sampler group_norm gt hardshrink
    hardsigmoid hardswish hardtanh heaviside hinge_embedding_loss hstack huber_loss
    hypot im2col imag index index_add index_copy index_fill index_put index_select
    inner instance_norm isfinite isinf isnan kl_div kron kthvalue l1_loss layer_norm
    le leaky_relu lerp less less_equal lgamma linalg_householder_product
    linalg_matrix_power linalg_multi_dot linalg_norm linalg_vector_norm linear log
    log10 log1p log2 log_sigmoid log_softmax logaddexp logcumsumexp logical_and
    logical_not logical_or logical_xor logit logsumexp lt mT margin_ranking_loss
    masked_fill matmul max max_pool1d max_pool2d max_pool3d maximum mean median
    meshgrid min minimum mish movedim mse_loss mul multi_margin_loss
    multiply mv nan_to_num nanmean nansum narrow native_layer_norm ne neg negative
    new_full new_ones new_zeros nll_loss_nd not_equal numpy_T ones_like outer pad
    pairwise_distance permute pixel_shuffle pixel_unshuffle poisson_nll_loss polar
    positive pow prelu ravel real reciprocal relu relu6 remainder repeat
    repeat_interleave reshape reshape_as rms_norm roll rot90 round rsqrt rsub
    scatter scatter_add scatter_reduce select selu sgn sigmoid sign
    silu sin sinc sinh slice slice_scatter smooth_l1_loss soft_margin_loss softmax
    softplus softshrink sort special_expit split split_with_sizes sqrt square
    squeeze stack std std_mean sub subtract sum swapaxes swapdims t take_along_dim
    tan tanh tensor_split tensordot threshold tile to topk trace transpose tril
    triplet_margin_loss triu true_divide trunc type_as unbind unflatten unfold
    unsqueeze upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d var var_mean vdot
    view_as_complex view_as_real vstack where xlogy zeros_like
    """.split()  # noqa: SIM905 - a list of so many strings is not read
)
