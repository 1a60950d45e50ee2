# Palaestra on NVIDIA GPUs: torch brings its CUDA libraries, the host its driver and container toolkit.
#   docker build -f containers/cuda.Dockerfile -t palaestra:cuda .
#   docker run --rm --gpus all -v "$PWD/runs:/work/runs" palaestra:cuda train
FROM python:3.13-slim
RUN pip install --no-cache-dir torch==2.13.0
COPY . /source
RUN pip install --no-cache-dir "/source[lora,datasets,math,sandbox]" && rm -r /source
RUN useradd --create-home --uid 1000 athlete && mkdir -p /work/runs && chown -R athlete /work
USER 1000
WORKDIR /work
ENTRYPOINT ["palaestra"]
