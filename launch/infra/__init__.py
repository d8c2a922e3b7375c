"""The account's one-time set-up, as one CloudFormation stack per region."""
