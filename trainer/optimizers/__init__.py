"""The table of optimizers with their usual rates and weight decay.  Torch-free: building one imports it."""

TABLE = {
    "sgd": "trainer.optimizers.sgd:build",
    "adamw": "trainer.optimizers.adamw:build",
    "lars": "trainer.optimizers.lars:build",
    "muon": "trainer.optimizers.muon:build",
}
NAMES = tuple(TABLE)

# The peak learning rate when --lr is not given.
PEAK_LR = {"sgd": 0.1, "adamw": 1e-3, "lars": 2.0, "muon": 0.02}
# The weight decay when --weight-decay is not given.
WEIGHT_DECAY = {"sgd": 5e-4, "adamw": 0.01, "lars": 1e-4, "muon": 0.01}
