"""What torch and the libraries below it read from the environment when they are loaded."""

from collections.abc import MutableMapping


def set_defaults(env: MutableMapping[str, str]) -> None:
    """What holds in every training, unless the user has set it; to be called before torch is imported."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):  # the second is the name in older versions
        env.setdefault(name, "2000")  # torch's newest collectives, which a stall shows
    if "HOME" not in env:
        # Where a rank is lost torch also writes them into a file: without a home in /tmp/.cache/torch, whoever has made
        # that, and through any link there.
        for name in ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"):
            env.setdefault(name, "0")
    if "QUACK_CACHE_DIR" not in env:
        # Beside CUTLASS's DSL torch 2.15 loads kernels of its own as code from /tmp/USER, whoever has made that.
        env.setdefault("QUACK_CACHE_ENABLED", "0")
    # Where a rank is lost, its name says more than pages about sockets.
    env.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if "OMP_WAIT_POLICY" not in env:
        # OpenMP's threads spin for milliseconds before they sleep.  Beside other work that took 19 s of processor where
        # 8 s do (four epochs of digits, measured); a fraction of a millisecond is enough between two operations.
        env.setdefault("GOMP_SPINCOUNT", "10000")  # GNU's, of torch's Linux wheels
        env.setdefault("KMP_BLOCKTIME", "1")  # Intel's and LLVM's, in ms
