# The image of one replica: `docker build --tag autoscale-enforcer:dev .`
#
# Both stages name the same base by its exact tag, once. A tag may still be pushed again; to pin the
# bytes, append the digest that `docker buildx imagetools inspect <tag>` prints: <tag>@sha256:<hex>.
ARG BASE=python:3.12.14-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# What is locked changes less often than the code: these two layers are reused from build to build.
COPY requirements/runtime.txt requirements/run.txt requirements/
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --only-binary :all: --require-hashes --requirement requirements/runtime.txt
# The build backend, in locked versions; it stays in this stage.
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --only-binary :all: --require-hashes --requirement requirements/run.txt

COPY LICENSE README.md pyproject.toml ./
COPY service service
COPY lua lua
RUN /opt/tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && /opt/venv/bin/pip install --no-deps --no-index /dist/*.whl \
    && /opt/venv/bin/python -m compileall -q /opt/venv/lib \
    && /opt/venv/bin/pip uninstall --yes pip

FROM ${BASE}
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="autoscale-enforcer" \
      org.opencontainers.image.description="Keeps autoscaled workloads from over-committing Kubernetes nodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# A number, so that Kubernetes' runAsNonRoot can see that it is not root.
USER 65532:65532
# kube-scheduler, autoscaler-agents, people and probes.
EXPOSE 10298 10299 9100
STOPSIGNAL SIGTERM
ENTRYPOINT ["autoscale-enforcer"]
CMD ["serve"]
