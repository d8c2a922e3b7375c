"""The embedded EC2, with the account that a launch on EC2 needs."""
