"""Partially shared models by push-sum with noisy messages: PartPSP, SGPDP, PEDFL."""
