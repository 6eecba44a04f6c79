"""Messages with noise: the channel, its sensitivities, and the oracle behind it."""
