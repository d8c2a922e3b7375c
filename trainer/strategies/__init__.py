"""The table of strategies.  Torch-free: wrapping with one imports it."""

TABLE = {
    "single": "trainer.strategies.single:wrap",
    "dp": "trainer.strategies.dp:wrap",
    "ddp": "trainer.strategies.ddp:wrap",
    "fsdp": "trainer.strategies.fsdp:wrap",
}
NAMES = tuple(TABLE)
# Strategies whose ranks exchange gradients or weights, so that they need a process group.
DISTRIBUTED = ("ddp", "fsdp")
