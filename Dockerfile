# docker build --tag emobench .
# docker run --rm --gpus all --volume "$PWD:/work" emobench run --objective mle --objective emo --model gpt2 --suite lm-quick
FROM python:3.12-slim

# For the CPU alone: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu128
ARG EXTRAS=eval,site

# Triton compiles a launcher for its kernels.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# torch first and alone: this layer does not change with the code.
COPY constraints.txt /tmp/
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt torch --index-url "$TORCH_INDEX"

COPY . /src
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "/src[$EXTRAS]" && rm -rf /src

# Runs, boards and downloads are in the mounted folder.
ENV HF_HOME=/work/.cache/huggingface
WORKDIR /work
ENTRYPOINT ["emobench"]
CMD ["--help"]
