"""Per-record gradients, clipped and summed.

choose          the fastest exact way for a module
clipping        clipped sums over batches: `Summation`
clip_weights    the weights that clip each record's gradient
bookkeeping     sums without per-record gradients; ``stacked`` has the layers
per_sample      the reference, by `torch.func`, for any module
shapes          the fixed shape of a call, tried; ``rounding`` what is paid: sums.md
bfloat16        other arithmetic; ``graphs`` starts kernels together
"""
