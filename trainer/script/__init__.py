"""Run one rank of a user's own training script in a supervised child process."""
