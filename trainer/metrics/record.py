"""An epoch's record, and the lines that a run prints about itself."""

from typing import Any

from trainer import datasets
from trainer.distributed.probe import Communication
from trainer.epoch import EpochResult, Score
from trainer.metrics.counters import peak_memory_mib
from trainer.metrics.progress import duration
from trainer.process.machine import device_name
from trainer.schedule import count_updates, peak_lr, warmup_length
from trainer.training import Training, strategy_name


def epoch_record(
    training: Training,
    epoch: int,
    result: EpochResult,
    score: Score | None,
    communication: Communication | None,
    gpu_percent: float | None,
) -> dict[str, Any]:
    """The line of metrics.jsonl.  Times in ms are per update; on a CPU they add up to step_ms.  Collective."""
    session, data = training.session, training.data
    peaks = session.gather(peak_memory_mib(session.device))
    bad = session.gather(sorted({*data.train.bad_images, *data.evaluation.bad_images}))
    return {
        "epoch": epoch,
        "updates": training.progress.updates,
        "global_batch": result.global_batch,
        "learning_rate": result.learning_rate,
        "train_loss": result.loss,
        "train_top1": result.top1,
        "eval_loss": score.loss if score else None,
        "eval_top1": score.top1 if score else None,
        "eval_top5": score.top5 if score else None,
        "eval_split": data.eval_split,
        "eval_images": score.images if score else None,
        "images_per_s": result.images / result.seconds,
        "epoch_s": result.seconds,
        "eval_s": score.seconds if score else None,
        "step_ms": 1e3 * result.seconds / max(1, result.updates),
        **breakdown(result, communication),
        "all_reduce_gb_per_s": communication.all_reduce_gb_per_s if communication else None,
        "peak_memory_mib": max(peaks),
        "peak_memory_mib_by_rank": peaks,
        "gpu_utilization_percent": gpu_percent,
        "world_size": session.ranks.world_size,
        "replicas": training.wrapped.replicas,
        "nodes": session.ranks.nodes,
        "device": device_name(session.device),
        "strategy": strategy_name(training.config, session.ranks.world_size),
        "precision": training.precision,
        "parameters": sum(weight.numel() for weight in training.wrapped.plain.parameters()),
        "bad_images": len({name for names in bad for name in names}),
    }


def breakdown(result: EpochResult, communication: Communication | None) -> dict[str, float]:
    """Where the milliseconds of an update go.

    Backward and communication overlap, so the probe's share of both passes is taken out of the
    backward pass; of the passes that an update accumulates, only the last communicates, and so takes longer.
    """
    phases = result.phases_ms
    forward, backward = phases.get("forward", 0.0), phases.get("backward", 0.0)
    of_a_pass = communication.share if communication else 0.0
    of_an_update = of_a_pass / (result.accumulate * (1 - of_a_pass) + of_a_pass) if of_a_pass else 0.0
    waiting = min(backward, of_an_update * (forward + backward))
    return {
        "data_wait_ms": phases.get("data_wait", 0.0),
        "forward_ms": forward,
        "backward_ms": backward - waiting,
        "communication_ms": waiting,
        "optimizer_ms": phases.get("optimizer", 0.0),
    }


def opening(training: Training, strategy: str) -> str:
    """The lines a run begins with: the model, the data and how it is trained."""
    session, data, config = training.session, training.data, training.config
    weights = sum(weight.numel() for weight in training.wrapped.plain.parameters())
    ranks = session.ranks.world_size
    where = "GPU" if session.device.type == "cuda" else "CPU"
    updates = count_updates(config, data.train.size, training.wrapped.replicas)
    return (
        f"{config.model}, {weights:,} parameters, on {config.dataset}: {data.train.size:,} training and "
        f"{data.evaluation.size:,} evaluation images of {data.image_size} px, {data.classes} classes"
        f"{f', evaluated on {data.eval_split}' if datasets.is_folder(config.dataset) else ''}\n"
        f"{f'{data.sizes}{chr(10)}' if data.sizes else ''}"
        f"{strategy} on {ranks} {where}{'s' if ranks > 1 else ''}, {training.precision}, "
        f"{_count(config.epochs, 'epoch')}, {_count(updates, 'update')}\n"
        f"{config.optimizer}, learning rate {peak_lr(config):g}, {config.schedule}, "
        f"{warmup_length(config):g} of {_count(config.epochs, 'epoch')} to warm up"
    )


def _count(number: int, noun: str) -> str:
    """1, 'epoch' -> '1 epoch'; 3, 'update' -> '3 updates'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds_left(training: Training, record: dict[str, Any]) -> float:
    """How long the remaining epochs and evaluations take if they take as long as the last one, in seconds."""
    config, last = training.config, record["epoch"]
    epochs = float(config.epochs - last)
    if config.max_steps is not None:
        epochs = min(epochs, (config.max_steps - record["updates"]) * last / max(1, record["updates"]))
    evaluation: float = record["eval_s"] or 0.0
    training_s: float = record["epoch_s"]
    return epochs * (training_s + evaluation / config.eval_every)


def headline(record: dict[str, Any], epochs: int, left_s: float) -> str:
    """An epoch's record in one readable line.  left_s: estimated time to the end of the run."""
    parts = [
        f"epoch {record['epoch']}/{epochs}",
        f"loss {record['train_loss']:.4f}",
        f"accuracy {record['train_top1']:.1%}",
    ]
    if record["eval_top1"] is not None:
        half = record["eval_split"]
        parts += [f"{half} loss {record['eval_loss']:.4f}", f"{half} accuracy {record['eval_top1']:.1%}"]
    parts += [f"{record['images_per_s']:,.0f} images/s", f"{record['epoch_s']:.1f} s"]
    if left_s > 0:
        parts.append(f"{duration(left_s)} left")
    return "  ".join(parts)
