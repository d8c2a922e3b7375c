"""The table of optimizers and their usual rates.  Torch-free: building one imports it."""

TABLE = {
    "sgd": "trainer.optimizers.sgd:build",
    "adamw": "trainer.optimizers.adamw:build",
    "lars": "trainer.optimizers.lars:build",
    "muon": "trainer.optimizers.muon:build",
}
NAMES = tuple(TABLE)

# The peak learning rate when --lr is not given.
PEAK_LR = {"sgd": 0.1, "adamw": 1e-3, "lars": 2.0, "muon": 0.02}
