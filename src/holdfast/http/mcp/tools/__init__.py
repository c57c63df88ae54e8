"""The tools that clients of this wire may call: one module per subject, each calling use cases; ``table`` lists them."""
