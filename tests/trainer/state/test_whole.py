"""What is saved of sharded weights is put together once, on rank 0, and training can go on while it is written."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.ranks_here import on_ranks
from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.strategies import fsdp


def saved_while_training_goes_on(session: Session) -> dict[str, Any]:
    """The numbers of a layer's state as they were saved, looked at after they changed, and the bytes they lie in."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))  # 5 rows: the ranks' shards differ in size
    for weight in model.parameters():
        nn.init.constant_(weight, 2)
    wrapped = fsdp.wrap(model, torch.rand(2, 3), TrainConfig(strategy="fsdp"), session)
    assert wrapped.whole_is_new
    whole = wrapped.whole({"model": wrapped.plain.state_dict()})["model"]
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(7)
    return {name: (tensor.flatten().tolist(), tensor.untyped_storage().nbytes()) for name, tensor in whole.items()}


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_was_saved_stays_as_it_was_and_takes_no_more_memory_than_its_numbers(ranks: int) -> None:
    head, *others = on_ranks(ranks, saved_while_training_goes_on)

    assert head["0.weight"] == ([2.0] * 15, 60)
    assert head["0.bias"] == ([2.0] * 5, 20)
    assert head["1.running_var"] == ([1.0] * 5, 20)
    assert head["1.num_batches_tracked"] == ([0], 8)
    assert [other["0.weight"] for other in others] == [([], 0)] * (ranks - 1)
