"""Quotas and image: whether SageMaker can give the job its machines; and what is billed now."""

from collections.abc import Iterator

from launch.aws.examination.case import Verdict, missing, ok, warning
from launch.aws.examination.image import PUSH, examined
from launch.sagemaker import images, lookup, training_jobs
from launch.sagemaker.examination.shared import TrainingCase

PUSH_THERE = f"{PUSH} --target sagemaker"


def quotas(case: TrainingCase) -> Iterator[Verdict]:
    for quota in lookup.find_quotas(case.aws, case.resolved, case.now):
        used = "" if quota.unit == "seconds" else f", {'?' if quota.running is None else quota.running} in use"
        unit = " s" if quota.unit == "seconds" else ""
        text = f"{quota.name}: {quota.needed:,}{unit} for the job{used}"
        if not quota.is_exceeded:
            yield ok(f"{text}, of {quota.limit:,.0f}{unit}")
        else:
            listed = f"aws service-quotas list-service-quotas --service-code sagemaker --region {case.region}"
            fix = f"request an increase ({listed} shows its code), or lower {quota.lower}"
            yield missing(f"{text}, and the quota is {quota.limit:,.0f}{unit}", fix)


def image(case: TrainingCase) -> Iterator[Verdict]:
    chosen = images.choose(case.resolved.options, case.resolved.instances, case.region)
    if not chosen.known:
        yield from examined(case, chosen.uri, case.resolved.instances[0], PUSH_THERE)
    elif chosen.patched_until is not None and chosen.patched_until < case.now.date():
        yield warning(f"{chosen.uri}: AWS has not patched it since {chosen.patched_until}", "use another --image")
    else:
        processor = case.resolved.instances[0].gpu_model or "CPUs"
        yield ok(f"AWS's own, with kernels for {processor}: {chosen.uri.rpartition('/')[2]}")


def left(case: TrainingCase) -> Iterator[Verdict]:
    names = [job.name for job in training_jobs.costing(case.aws, case.now)]
    if names:
        stop = f"python -m launch.sagemaker status --region {case.region}"
        yield warning(
            f"{len(names)} training {'job is' if len(names) == 1 else 'jobs are'} billed now: {', '.join(names[:3])}",
            stop,
        )
    else:
        yield ok("none")
