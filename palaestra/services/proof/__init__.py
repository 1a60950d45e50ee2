"""Proof kernels: what decides whether a proof is one, a step at a time (`base.ProofKernel`)."""
