"""Training runs: settings, problem, measures, checkpoints, folders."""
