"""Per-sample gradients, clipped and summed."""
