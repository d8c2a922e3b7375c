"""The table of strategies: functions (model, images, config, session) -> Wrapped.

images: (2, 3, S, S), in the format of training batches.  Torch-free: only using a strategy imports torch.
"""

TABLE = {
    "single": "trainer.strategies.single:wrap",
    "dp": "trainer.strategies.dp:wrap",
    "ddp": "trainer.strategies.ddp:wrap",
    "fsdp": "trainer.strategies.fsdp:wrap",
}
NAMES = tuple(TABLE)
# Strategies whose ranks exchange gradients or weights, so that they need a process group.
DISTRIBUTED = ("ddp", "fsdp")
