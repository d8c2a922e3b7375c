"""Whether a training fits into a GPU: weights, gradients, the optimizer's state, and what images leave.  Pure."""

from launch.core.catalog import Instance
from launch.core.estimate.figure import Figure, figure
from launch.core.estimate.tables import table
from launch.core.estimate.training import Training

# Bytes of the optimizer's state for each weight, in 32 bits.
STATE_BYTES = {"sgd": 4, "lars": 4, "muon": 4, "adamw": 8}
# Of a weight and its gradient; of the copy in 16 bits that autocast keeps; of an average of weights.
WEIGHT_BYTES, HALF_COPY_BYTES, AVERAGE_BYTES = 8, 2, 4
GIB = 2**30


def peak_gib(training: Training) -> Figure:
    """The peak of one replica, in GiB: what torch allocates, without the driver's own.

    Backward, the largest activation, its gradient and the next one's are there at the same time.
    """
    activations = training.cost.kept + 2 * training.cost.largest
    number_bytes = 2 if training.kind.half else 4
    total = _fixed_bytes(training) + _most_images(training) * activations * 1e6 * number_bytes
    return figure(table("rates")["memory"]).times(total / GIB)


def _most_images(training: Training) -> int:
    """Of one replica and pass; of a ramp in its largest batch."""
    return max(training.work(epoch).batch for epoch in (0, *(training.config.batch_ramp or {})))


def _fixed_bytes(training: Training) -> float:
    """Of the weights and what belongs to them; fsdp divides all but the copy among the replicas."""
    config = training.config
    each = WEIGHT_BYTES + STATE_BYTES.get(config.optimizer, max(STATE_BYTES.values()))
    each += AVERAGE_BYTES if config.ema_decay else 0
    share = 1 / training.layout.replicas if config.strategy == "fsdp" else 1.0
    copy = HALF_COPY_BYTES if training.kind.half else 0
    return training.cost.parameters * (each * share + copy)


def misfit(training: Training, instance: Instance) -> tuple[str, bool]:
    """A sentence where the training may not fit into the GPU, and whether it surely does not; empty where it does."""
    if not instance.is_gpu or not instance.gpu_memory_gib:
        return "", False
    needs = peak_gib(training)
    context = figure(table("rates")["gpu_context_gib"])
    room = Figure(instance.gpu_memory_gib - context.value, instance.gpu_memory_gib - context.best,
                  instance.gpu_memory_gib - context.worst, context.source)  # fmt: skip
    if needs.worst <= room.worst:
        return "", False
    batch = _most_images(training)
    whole, is_sure = f"{instance.gpu_memory_gib:.3g} GiB of its {instance.gpu_model}", needs.best > room.best
    claim = "does not fit" if is_sure else "may not fit"
    return (
        f"a batch of {batch:,} {claim} into the {whole}: about {needs.value:,.3g} GiB ({needs.best:,.3g} to "
        f"{needs.worst:,.3g}); lower --batch-size, or raise --accumulate with it."
    ), is_sure
