"""The EC2 backend: starts nodes, trains across them, and removes them at the end."""
