"""The training that every launcher runs.  It ships alone in the image and knows nothing of AWS."""
