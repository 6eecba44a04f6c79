"""Collaborative one-pass training (paper 002): local models and one global model."""
