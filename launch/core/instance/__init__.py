"""What every machine of the toolkit on EC2 has, whatever it is for: a subnet, a group, a time limit."""
