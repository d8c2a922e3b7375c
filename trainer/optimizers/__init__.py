"""The table of optimizers.  Torch-free: building one imports it."""

TABLE = {
    "sgd": "trainer.optimizers.sgd:build",
    "adamw": "trainer.optimizers.adamw:build",
    "lars": "trainer.optimizers.lars:build",
    "muon": "trainer.optimizers.muon:build",
}
NAMES = tuple(TABLE)
