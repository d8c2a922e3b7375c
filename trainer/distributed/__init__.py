"""The ranks of a job: who they are, how they meet, and how a silent one is noticed."""
