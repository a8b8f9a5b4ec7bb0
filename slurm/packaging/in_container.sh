#!/usr/bin/env bash
# wanamaker in the container, for slurm/submit.sh --program. WM_IMAGE: its file (wanamaker.sif where you are).
exec apptainer exec --bind "$PWD" "${WM_IMAGE:-wanamaker.sif}" wanamaker "$@"
