"""What an AWS account lacks for a job, and the command that fixes it: reads only."""
