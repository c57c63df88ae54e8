"""Request bodies as core values: pure, one module for each resource."""
