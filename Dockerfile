# The image that every backend runs: `python -m launch.image` builds and pushes it; infra/container.md says how to use it.
#
#   docker build .                       trainer, the default target: not root; EC2, Slurm, docker run
#   docker build --target sagemaker .    the same layers, as root: SageMaker, on a base with AWS's toolkit or without
#   docker build --target jupyter .      with JupyterLab, launch.local and the notebooks, for one GPU
#
# Any base will do that has `python`, 3.11 or newer, with pip 22.2 or newer.  What it has of the trainer's dependencies
# stays as it is, so torch and CUDA are the base's; what it lacks comes from PyPI, and must have the hashes of
# infra/locks/notebook.txt:
#
#   (default)                 AWS's image for SageMaker and EC2, GPU.  In their registry: log in to it first
#   public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2    without a login
#   pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime    smaller, without EFA and without SageMaker's toolkit
#   python:3.12-slim    torch is PyPI's, with all of CUDA; a small one for the CPU must be in the base: its hash is not here
ARG BASE_IMAGE=763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04-sagemaker

# ---- the wheel of the trainer alone: launch and infra are not even copied, so the image knows nothing of AWS, and a
# change there neither builds it anew nor gives it another digest

FROM ${BASE_IMAGE} AS wheel
# hadolint ignore=DL3002
USER 0
WORKDIR /build
# Read by pip from the environment: an index of your own, or wheels that a volume holds.  The last is for bases whose
# Python is the system's: the image is made for nothing else.  An index may have a password in its address, and an image
# repeats in its history what its own stages were given: so packages are fetched here, of which nothing else is kept.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_BREAK_SYSTEM_PACKAGES=1
# The time in every file that is made: zip knows none before 1980.
ARG SOURCE_DATE_EPOCH=315532800
COPY infra/container/pins.py infra/container/sbom.py infra/locks/notebook.txt ./
RUN python pins.py notebook.txt hold > pins.txt \
    && python pins.py notebook.txt take setuptools > tools.txt \
    && python -m pip install --no-cache-dir --only-binary :all: --no-deps --require-hashes --target tools -r tools.txt
COPY pyproject.toml LICENSE ./
COPY trainer trainer
# README.md is what PyPI would show.
RUN touch README.md \
    && PYTHONPATH=tools python -m pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir wheels .
# What the base lacks, and obstore for --data-url: pip says it without installing anything, and pins.py finds the hashes.
# >&2: or `build --quiet` would hide what is in conflict.
RUN python -m pip install --no-cache-dir --only-binary :all: -c pins.txt --dry-run --report report.json \
        wheels/*.whl obstore >&2 \
    || { echo "error: what the base lacks cannot be had, see above; if versions conflict, take another base." >&2; exit 2; }
RUN python pins.py notebook.txt pick report.json > lacking.txt \
    && python -m pip download --no-cache-dir --only-binary :all: --no-deps --require-hashes --dest lacking -r lacking.txt

# ---- base and trainer

FROM ${BASE_IMAGE} AS installed
# hadolint ignore=DL3002
USER 0
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_BREAK_SYSTEM_PACKAGES=1
# Also makes Python's compiled files the same in every build.
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=bind,from=wheel,source=/build,target=/build \
    python -m pip install --no-cache-dir --no-index --find-links /build/lacking --only-binary :all: --no-deps \
        --require-hashes -r /build/lacking.txt \
    && python -m pip install --no-cache-dir --no-index --no-deps /build/wheels/*.whl
# By hand, for not every base has useradd.  Not 1000, who is the first real user of a machine, as AWS's AMIs have one:
# containers on a node share its process ids, and whoever has a number may look at its processes.
RUN grep -q '^[^:]*:[^:]*:10001:' /etc/passwd || echo 'ddp:x:10001:10001::/job:/bin/sh' >> /etc/passwd; \
    mkdir -p /job/run /job/runs && chown -R 10001:10001 /job
COPY --chmod=755 infra/container/entry.sh /opt/ddp/entry.sh
# Results go to /job, everything else that is written to /tmp: the rest of the file system may be read-only.  No packages
# are a user's own there: some clusters give a container the machine's /tmp, where others could leave some.
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1
WORKDIR /job
ENTRYPOINT ["/opt/ddp/entry.sh"]
# What is in the image, of the base and of ours: `docker run --entrypoint cat IMAGE /opt/ddp/sbom.cdx.json`
RUN --mount=type=bind,from=wheel,source=/build,target=/build python /build/sbom.py > /opt/ddp/sbom.cdx.json
# No time of the build: the same content is the same image, and ECR knows when it was pushed.
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

# Arguments end with their stage, if buildah builds.
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
# Anew, with JupyterLab.
RUN --mount=type=bind,from=toolkit,source=/build,target=/build python /build/sbom.py > /opt/ddp/sbom.cdx.json
COPY --chown=10001:10001 notebooks/single_gpu.ipynb /job/
ENV HOME=/job PYTHONNOUSERSITE=
USER 10001:10001
EXPOSE 8888
# Only here something answers; a training says by its exit code how it is.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8888/api', timeout=4)"]
# With the token that it prints: who has it has this machine.
CMD ["python", "-m", "jupyterlab", "--ip=0.0.0.0", "--no-browser"]

# ---- SageMaker runs the image's user, and what it needs is root's: AWS's toolkit starts sshd for mpirun, writes to
# /etc/environment and /, and installs requirements.txt; SageMaker makes /opt/ml for root.  It can be told no other user.
# On a base without that toolkit `train` is our own (trainer/container.py), and only /opt/ml stands against another user

FROM installed AS sagemaker
# hadolint ignore=DL3002
USER 0
# AWS's images have the key by which mpirun's hosts reach each other in root's home, and changehostname.c, which their
# start script compiles where it runs, in /.
ENV HOME=/root PYTHONNOUSERSITE=
WORKDIR /

FROM installed AS trainer
USER 10001:10001
