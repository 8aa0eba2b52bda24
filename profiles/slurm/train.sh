#!/bin/bash
# Trains on several nodes; the same words with --resume and the folder go on.
#   sbatch --nodes 2 --gpus-per-node 4 --cpus-per-task 16 profiles/slurm/train.sh \
#       ppo cartpole --recipe wide --device cuda --output runs/1
# A torchrun on each node starts a process for each of its GPUs; --gpus-per-node left out, one.
#SBATCH --ntasks-per-node=1
set -euo pipefail
if (($# < 2)); then
    echo "usage: sbatch --nodes N [...] profiles/slurm/train.sh ALGORITHM ENVIRONMENT [options]" >&2
    exit 2
fi
# The address at which Slurm reaches the first node, by default its name; what a node calls itself may be 127.0.1.1.
node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
first=$(scontrol show node "$node" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
# One that is free on the first node, where this script runs, when asked.
port=$(python -c 'import socket; print(socket.create_server(("", 0)).getsockname()[1])')
# From Slurm 22.05 on srun does not take over --cpus-per-task.
cores=${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}
# shellcheck disable=SC2016,SC2086 # the variables are each node's; $cores is a word or none
srun --kill-on-bad-exit=1 $cores bash -c 'exec python -m torch.distributed.run \
    --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" \
    --master-addr "$0" --master-port "$1" "${@:2}"' \
    "$first" "$port" -m "lockstep.agents.$1" "${@:2}"
