"""The backend that starts torchrun on this machine."""
