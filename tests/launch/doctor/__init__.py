"""launch.doctor, on an embedded account that lacks one thing after the other."""
