# edgefl and the emulator: a coordinator, an edge or whole runs, for x86-64 and 64-bit ARM.
#   docker build --tag edgefl-testbed .
#   docker run --rm --volume "$PWD/runs:/experiments/runs" edgefl-testbed run configs/quickstart.toml --clock virtual
# compose.yaml starts a coordinator and its edges.
FROM debian:bookworm-slim AS build
# The suite's own packages, as of the day of the build: Debian has no older ones.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml README.md LICENSE edgefl_testbed.py ./
COPY scripts/constraints.txt scripts/
COPY configs configs
COPY emulator emulator
COPY edgefl edgefl
# The extras of pyproject.toml, and where torch comes from: PyPI's build for x86-64 has gigabytes of CUDA libraries.
ARG EXTRAS=lab,live
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/edgefl \
    && /opt/edgefl/bin/pip install --no-cache-dir --constraint scripts/constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --no-deps torch \
    && /opt/edgefl/bin/pip install --no-cache-dir --constraint scripts/constraints.txt ".[$EXTRAS]"

FROM debian:bookworm-slim
# iproute2 has `ip` and `tc`, which `emulator kernel` and `emulator lab` call.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends iproute2 python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/edgefl /opt/edgefl
# Any user may write here, so that `--user` can be the one whose files the results shall be.
RUN mkdir -m 1777 /experiments /keys
# Any user: caches and settings of the packages go to /tmp.
ENV PATH=/opt/edgefl/bin:$PATH HOME=/tmp
WORKDIR /experiments
USER 1000:1000
ENTRYPOINT ["edgefl"]
CMD ["--help"]
