"""The backend that submits to Slurm: one sbatch script per job, found again by its comment and its folder."""
