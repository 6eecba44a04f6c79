"""Collaborative one-pass training: local models and one global model.

Deep-Q learning based collaborative decentralised differentially private SGD ("paper
002"), and its policies whose choices do not look at the data.
"""
