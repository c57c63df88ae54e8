"""The wires: one module for each API over which models are asked, and the readers of their streams."""
