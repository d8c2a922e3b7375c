"""Rehearsals: a job's whole life on this machine, with an AWS inside this process and nodes that boot as on EC2.

rehearsal.py     from the command line to the receipt: start here
backend.py       the job, and what a rehearsal needs of a backend; ec2.py and sagemaker.py implement it
accounts.py      the account that the command line needs: what it names, and who may do what
faults.py        what --inject takes, and what makes it happen
recording.py     what happened, and when; display.py shows it while the rehearsal runs
environment.py   what is taken from the user's environment; watchdog.py ends the launcher with its rehearsal
aws/             the embedded AWS: moto as a server, patched, with IAM's policies and EC2's and SageMaker's rules
nodes/           the rehearsed machines: EC2 nodes and SageMaker's containers, in namespaces or as processes
receipt/         the results: as data and files, as text, and as a page with a replay
"""
