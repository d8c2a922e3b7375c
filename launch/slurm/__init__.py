"""The Slurm backend: one sbatch script per job, identified by its comment in the queue and its folder."""
