# Palaestra and vLLM in one environment of pinned versions, on NVIDIA GPUs: `--engine vllm` needs no environment of its own.
#   docker build -f containers/vllm.Dockerfile -t palaestra:vllm .
#   docker run --rm --gpus all --shm-size 16g -v "$PWD/runs:/work/runs" palaestra:vllm train --engine vllm --model Qwen/Qwen3-0.6B
# Its versions fit together by what the packages say; the image has neither been built nor run.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* # for Triton
COPY . /source
RUN pip install --no-cache-dir -r /source/containers/vllm.lock
RUN pip install --no-cache-dir "/source[lora,datasets,math,sandbox,ray]" && rm -r /source
RUN useradd --create-home --uid 1000 athlete && mkdir -p /work/runs && chown -R athlete /work
USER 1000
WORKDIR /work
ENTRYPOINT ["palaestra"]
