# The image for all backends: `python -m launch.image` builds and pushes it; infra/container.md explains how to use it.
#
#   docker build .                       trainer, the default target, not root: for EC2, Slurm and docker run
#   docker build --target sagemaker .    the same layers, as root: for SageMaker, on a base with or without AWS's toolkit
#   docker build --target launcher .     launch alone, without torch, on a small base: for jobs of launch.ec2 --queue
#   docker build --target jupyter .      with JupyterLab, launch.local and the notebooks, for one GPU
#
# Any base works that has `python` 3.11 or newer with pip 22.2 or newer.  The base's packages are not changed, so torch
# and CUDA are those of the base; missing dependencies come from PyPI, with the hashes in infra/locks/notebook.txt:
#
#   (default)                 AWS's GPU image for SageMaker and EC2; log in to AWS's registry first
#   public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2    without a login
#   pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime    smaller, without EFA and SageMaker's toolkit
#   python:3.12-slim    gets PyPI's torch with all of CUDA; a small CPU-only torch must be in the base, as the lock lacks it
ARG BASE_IMAGE=763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04-sagemaker
# Of the launcher alone: any with Python 3.11 or newer.
ARG LAUNCHER_BASE=public.ecr.aws/docker/library/python:3.12-slim

# ---- the wheel of the trainer alone: launch and infra are not copied, so changes there do not change the image

FROM ${BASE_IMAGE} AS wheel
# hadolint ignore=DL3002
USER 0
WORKDIR /build
# pip reads these from the environment, for a private index or wheels in a volume.  PIP_BREAK_SYSTEM_PACKAGES is for
# bases that use the system's Python.  An index URL may contain a password, and an image's history shows the arguments of
# its own stages: so packages are downloaded in this stage, which is not part of the image.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_BREAK_SYSTEM_PACKAGES=1
# The time stamp of every file created: 1980, the earliest that zip supports.
ARG SOURCE_DATE_EPOCH=315532800
COPY infra/container/pins.py infra/container/sbom.py infra/locks/notebook.txt ./
RUN python pins.py notebook.txt hold > pins.txt \
    && python pins.py notebook.txt take setuptools > tools.txt \
    && python -m pip install --no-cache-dir --only-binary :all: --no-deps --require-hashes --target tools -r tools.txt
COPY pyproject.toml LICENSE ./
COPY trainer trainer
# pyproject.toml requires a README.md.
RUN touch README.md \
    && PYTHONPATH=tools python -m pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir wheels .
# A dry run finds what the base lacks, including obstore for --data-url; pins.py adds the hashes.
# >&2: otherwise `build --quiet` would hide version conflicts.
RUN python -m pip install --no-cache-dir --only-binary :all: -c pins.txt --dry-run --report report.json \
        wheels/*.whl obstore >&2 \
    || { echo "error: cannot get what the base lacks, see above; if versions conflict, use another base." >&2; exit 2; }
RUN python pins.py notebook.txt pick report.json > lacking.txt \
    && python -m pip download --no-cache-dir --only-binary :all: --no-deps --require-hashes --dest lacking -r lacking.txt

# ---- base and trainer

FROM ${BASE_IMAGE} AS installed
# hadolint ignore=DL3002
USER 0
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_BREAK_SYSTEM_PACKAGES=1
# Also makes Python's bytecode files reproducible.
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=bind,from=wheel,source=/build,target=/build \
    python -m pip install --no-cache-dir --no-index --find-links /build/lacking --only-binary :all: --no-deps \
        --require-hashes -r /build/lacking.txt \
    && python -m pip install --no-cache-dir --no-index --no-deps /build/wheels/*.whl
# Edits passwd directly, as not every base has useradd.  Not user 1000, the first regular user of a machine: containers
# share the node's process IDs, and a user with the same number could inspect the container's processes.
RUN grep -q '^[^:]*:[^:]*:10001:' /etc/passwd || echo 'ddp:x:10001:10001::/job:/bin/sh' >> /etc/passwd; \
    mkdir -p /job/run /job/runs && chown -R 10001:10001 /job
COPY --chmod=755 infra/container/entry.sh /opt/ddp/entry.sh
# Results are written to /job and everything else to /tmp, so the rest of the file system may be read-only.
# PYTHONNOUSERSITE: some clusters share the machine's /tmp, where other users could place packages.
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1
WORKDIR /job
ENTRYPOINT ["/opt/ddp/entry.sh"]
# Lists all Python packages in the image: `docker run --entrypoint cat IMAGE /opt/ddp/sbom.cdx.json`
RUN --mount=type=bind,from=wheel,source=/build,target=/build python /build/sbom.py > /opt/ddp/sbom.cdx.json
# No build time, so that the same content gives the same image; ECR records when it was pushed.
ARG REVISION=unknown
ARG VERSION=unknown
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="aws-ddp-toolkit" \
      org.opencontainers.image.description="PyTorch image-classification training on one GPU or many" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

# ---- JupyterLab

# With buildah, arguments must be repeated in every stage.
FROM wheel AS toolkit
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_BREAK_SYSTEM_PACKAGES=1
ARG SOURCE_DATE_EPOCH=315532800
RUN python -m pip install --no-cache-dir --only-binary :all: -c pins.txt --dry-run --report lab.json \
        wheels/*.whl jupyterlab \
    && python pins.py notebook.txt pick lab.json > lab.txt \
    && python -m pip download --no-cache-dir --only-binary :all: --no-deps --require-hashes --dest lab -r lab.txt
COPY launch launch
COPY infra infra
RUN PYTHONPATH=tools python -m pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir toolkit .

FROM installed AS jupyter
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_BREAK_SYSTEM_PACKAGES=1
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=bind,from=toolkit,source=/build,target=/build \
    python -m pip install --no-cache-dir --no-index --find-links /build/lab --only-binary :all: --no-deps \
        --require-hashes -r /build/lab.txt \
    && python -m pip install --no-cache-dir --no-index --no-deps --force-reinstall /build/toolkit/*.whl
# Again, with JupyterLab.
RUN --mount=type=bind,from=toolkit,source=/build,target=/build python /build/sbom.py > /opt/ddp/sbom.cdx.json
COPY --chown=10001:10001 notebooks/single_gpu.ipynb /job/
ENV HOME=/job PYTHONNOUSERSITE=
USER 10001:10001
EXPOSE 8888
# Only this target has a server to check; a training reports its state by its exit code.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8888/api', timeout=4)"]
# JupyterLab prints a token for access; anyone with the token can run commands on this machine.
CMD ["python", "-m", "jupyterlab", "--ip=0.0.0.0", "--no-browser"]

# ---- SageMaker runs the image's user, which must be root: AWS's toolkit starts sshd for mpirun, writes to / and
# /etc/environment, and installs requirements.txt, and SageMaker creates /opt/ml for root.  On a base without AWS's toolkit
# `train` is trainer/container.py, which needs root only for /opt/ml

FROM installed AS sagemaker
# hadolint ignore=DL3002
USER 0
# AWS's images have the SSH key for mpirun's hosts in root's home, and changehostname.c in /, where their start script
# compiles it.
ENV HOME=/root PYTHONNOUSERSITE=
WORKDIR /

# ---- the launcher: its packages are fetched in a stage of their own, as above

FROM ${LAUNCHER_BASE} AS launching
# hadolint ignore=DL3002
USER 0
WORKDIR /build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG SOURCE_DATE_EPOCH=315532800
COPY infra/locks/launcher.txt ./
RUN python -m pip install --no-cache-dir --only-binary :all: --no-deps --require-hashes --target packages -r launcher.txt
COPY trainer packages/trainer
COPY launch packages/launch
COPY infra packages/infra
RUN python -m compileall -q --invalidation-mode unchecked-hash packages/trainer packages/launch packages/infra

FROM ${LAUNCHER_BASE} AS launcher
# hadolint ignore=DL3002
USER 0
COPY --from=launching /build/packages /opt/packages
ENV PYTHONPATH=/opt/packages HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
WORKDIR /job
ENTRYPOINT []
CMD ["python", "-m", "launch.ec2", "--help"]
ARG REVISION=unknown
ARG VERSION=unknown
ARG LAUNCHER_BASE
LABEL org.opencontainers.image.title="aws-ddp-toolkit" \
      org.opencontainers.image.description="The launcher of aws-ddp-toolkit, for jobs in a queue" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${LAUNCHER_BASE}"
USER 10001:10001

FROM installed AS trainer
USER 10001:10001
