#!/bin/sh
# The container's entry point: flags go to the trainer, anything else is run as a command.
case ${1-} in
    '' | -*) exec python -m trainer "$@" ;;
    train) # SageMaker's command
        if ! command -v train >/dev/null; then exec python -m trainer.container; fi # the base lacks AWS's toolkit
        # AWS's images have a start script that sets the container's host name, which mpirun needs.  Since PyTorch 2.11
        # jq, which it calls, and mpi4py are missing; then our own command starts the ranks by torchrun, also for
        # pytorchddp.
        start=start_with_right_hostname.sh
        if command -v $start >/dev/null; then
            if ! command -v jq >/dev/null; then exec python -m trainer.container; fi
            exec bash -m $start "$@"
        fi
        ;;
esac
exec "$@"
