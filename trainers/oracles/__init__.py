"""The only way to private data: noisy gradients, noisy messages, and their ledgers."""
