# The paper's environment, and the paper: docker build -t lockstep . && docker run --name report lockstep
# then docker cp report:/lockstep/results/report.html . With a GPU: docker run --gpus all.
# --build-arg PIP_EXTRA_INDEX_URL=... names an index with CPU builds of torch, which are smaller and know no GPU.
FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /lockstep
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1
COPY . .
RUN make .venv/ready
CMD ["make", "report"]
