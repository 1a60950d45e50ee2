# Palaestra on processors. From the root of a checkout:
#   docker build -f containers/cpu.Dockerfile -t palaestra .
#   docker run --rm -v "$PWD/runs:/work/runs" palaestra train
FROM python:3.13-slim
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
COPY . /source
RUN pip install --no-cache-dir "/source[lora,datasets,math,sandbox]" && rm -r /source
RUN useradd --create-home --uid 1000 athlete && mkdir -p /work/runs && chown -R athlete /work
USER 1000
WORKDIR /work
ENTRYPOINT ["palaestra"]
