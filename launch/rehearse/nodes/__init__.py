"""The machines of a rehearsal: EC2 nodes that run the real boot script, and hosts that run SageMaker's toolkit."""
