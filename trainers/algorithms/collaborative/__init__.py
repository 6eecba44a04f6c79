"""Collaborative training in one pass: local models at home, one global model for all.

Deep-Q learning based collaborative decentralised differentially private SGD ("paper
002"), and its policies whose choices do not look at the data.
"""
