"""What a job trains: our image classifier, or a script of the user's own.  Every backend knows base.Training only."""
