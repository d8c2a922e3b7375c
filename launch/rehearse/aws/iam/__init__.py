"""IAM of the embedded AWS: the permissions that each call needs, policy evaluation, and refusals."""
