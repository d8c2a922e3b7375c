"""The examples' tests run beside others: one thread each, instead of one for every core."""

import torch

torch.set_num_threads(1)
