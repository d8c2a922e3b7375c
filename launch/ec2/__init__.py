"""The backend that starts EC2 nodes, trains across them, and takes them down."""
