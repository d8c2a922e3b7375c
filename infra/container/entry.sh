#!/bin/sh
# The container's entry point: flags go to the trainer, anything else is run as a command.
case ${1-} in
    '' | -*) exec python -m trainer "$@" ;;
    train) # SageMaker's command
        if ! command -v train >/dev/null; then exec python -m trainer.container; fi # a base without AWS's toolkit
        # AWS's images have a start script that sets the container's host name, which mpirun needs.  From PyTorch 2.11 on
        # it lacks jq, and the image mpi4py; our own `train` starts the ranks by torchrun, also for pytorchddp.
        start=start_with_right_hostname.sh
        if command -v $start >/dev/null; then
            if ! command -v jq >/dev/null; then exec python -m trainer.container; fi
            exec bash -m $start "$@"
        fi
        ;;
esac
exec "$@"
