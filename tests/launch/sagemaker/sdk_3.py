"""Run by the Python that has version 3 of SageMaker's SDK: the requests that its ModelTrainer makes of jobs.

    .venv/sagemaker-train/bin/python -m tests.launch.sagemaker.sdk_3 < settings.json

stdin: a list of settings; stdout: for each the requests, in order, with an upload's content as its length.
"""

import json
import sys
from typing import Any

from launch.core.steps import Request
from launch.sagemaker.ways import model_trainer
from tests.launch.sagemaker.known import plan


def plain(request: Request) -> dict[str, Any]:
    params = dict(request.params)
    if "Body" in params:
        params["Body"] = params["Body"].decode()
    return {"operation": request.operation, "params": params}


if __name__ == "__main__":
    made = [model_trainer.capture(plan(**settings).payload.description) for settings in json.load(sys.stdin)]
    json.dump([[plain(request) for request in requests] for requests in made], sys.stdout)
