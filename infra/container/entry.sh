#!/bin/sh
# What a container runs: flags are the trainer's, anything else is a command, as if there were no entry point.
case ${1-} in
    '' | -*) exec python -m trainer "$@" ;;
    train) # SageMaker's word
        if ! command -v train >/dev/null; then exec python -m trainer.container; fi # the base has no toolkit of AWS's
        # AWS's images have a start script that gives the container its name in the cluster.
        start=start_with_right_hostname.sh
        if command -v $start >/dev/null; then exec bash -m $start "$@"; fi
        ;;
esac
exec "$@"
