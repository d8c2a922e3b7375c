"""What a backend's jobs need of an AWS account, and how launch.doctor examines that."""
