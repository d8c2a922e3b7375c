"""The backend that submits to Slurm: one sbatch script a job, found again by its comment and its folder."""
