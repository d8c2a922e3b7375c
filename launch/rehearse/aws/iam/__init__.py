"""IAM of the embedded AWS: what each call needs, whether policies allow it, and the refusal of what they do not."""
