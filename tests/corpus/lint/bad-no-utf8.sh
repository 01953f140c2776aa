#!/bin/bash
#SBATCH --time=ÿþ "Ã
export A=ÿ$ÿ{ÿ}
