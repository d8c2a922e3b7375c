"""What an AWS account lacks for a job, and the command that mends it: reads only."""
