"""EC2 instances that the toolkit starts: what a start depends on, its requests, what runs, and the removal."""
