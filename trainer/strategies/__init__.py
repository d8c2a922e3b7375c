"""The table of strategies: functions (model, images, config, session) -> Wrapped.

images: (2, 3, S, S), as training sees them.  Torch-free: wrapping with one imports it.
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
