"""What a backend says that its jobs need of an AWS account, and how the account is asked.  launch.doctor does so."""
