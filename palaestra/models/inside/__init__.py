"""What models do inside: hidden states, attention, latent actions; read, steered and probed."""
