"""Which models the configured providers have: asked over the network, cached, with a deadline."""
