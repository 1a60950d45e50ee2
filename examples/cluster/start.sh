#!/bin/bash
# start.sh RANK NODES HEAD: the same on each node; rank 0 is the head, and trains. The run goes on where it was if it starts again.
set -euo pipefail
rank=$1 nodes=$2 head=$3
: "${MODEL:=Qwen/Qwen3-4B}" "${OUT:=/shared/runs/mine}" "${CLUSTER:=cluster.toml}" "${DATA:=problems.jsonl}"
export RAY_ADDRESS="$head:6379"

if [ "$rank" != 0 ]; then
  until ray start --address="$RAY_ADDRESS" --block; do sleep 5; done
  exit 0
fi
ray start --head --port=6379
until (($(ray list nodes --format json | grep -c '"ALIVE"') >= nodes)); do sleep 2; done
if [ -f "$OUT/config.toml" ]; then
  set -- --resume "$OUT"
else
  set -- grpo --data "$DATA" --model "$MODEL" --lora 16 --out "$OUT"
fi
palaestra train "$@" --cluster "$CLUSTER"
ray stop
