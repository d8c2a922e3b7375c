"""What a backend's jobs need of an AWS account, and how the account is asked.  launch.doctor does so."""
