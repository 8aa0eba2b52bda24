#!/bin/bash
# Trains on several nodes; the same words with --resume and the folder go on.
#   sbatch --nodes 2 --gpus-per-node 4 profiles/slurm/train.sh ppo cartpole --recipe wide --device cuda --output runs/1
# A torchrun on each node starts a process for each of its GPUs; --gpus-per-node left out, one.
#SBATCH --ntasks-per-node=1
set -euo pipefail
first=$(srun --overlap --nodes 1 --ntasks 1 --relative 0 hostname --ip-address)
# shellcheck disable=SC2016 # the variables are each node's
srun --kill-on-bad-exit=1 bash -c 'exec python -m torch.distributed.run \
    --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" \
    --master-addr "$0" --master-port "$((20000 + SLURM_JOB_ID % 10000))" "$@"' \
    "${first%% *}" -m "lockstep.agents.$1" "${@:2}"
