"""What torch is told before it is loaded."""

from trainer.process.libraries import set_defaults

DUMPS = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")


def test_without_a_home_torch_writes_no_traces_into_a_folder_that_others_may_have_made() -> None:
    env = dict[str, str]()
    set_defaults(env)
    assert [env[name] for name in DUMPS] == ["0", "0"]

    at_home = {"HOME": "/home/ann"}
    set_defaults(at_home)
    assert not at_home.keys() & set(DUMPS)


def test_what_the_user_has_set_stays() -> None:
    chosen = {"TORCH_FR_BUFFER_SIZE": "5", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "KMP_BLOCKTIME": "200"}
    env = dict(chosen)
    set_defaults(env)
    assert chosen.items() <= env.items()


def test_torch_loads_no_kernels_from_a_folder_that_others_may_have_made() -> None:
    """Its copy of QuACK keeps them in /tmp/USER, and runs what another user has put there first."""
    env = dict[str, str]()
    set_defaults(env)
    assert env["QUACK_CACHE_ENABLED"] == "0"

    named = {"QUACK_CACHE_DIR": "/scratch/mine"}
    set_defaults(named)
    assert "QUACK_CACHE_ENABLED" not in named
