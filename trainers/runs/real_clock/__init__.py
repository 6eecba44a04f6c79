"""Training by a real clock: one process a worker."""
