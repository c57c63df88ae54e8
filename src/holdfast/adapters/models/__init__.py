"""Models: the table of providers, how they are asked, which models they have, and the scripted guide."""
