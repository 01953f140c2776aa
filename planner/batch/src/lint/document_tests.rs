//! Scripts that a batch script writes for its tasks, or hands to their shells.

use super::tests::{check, job};

#[test]
fn a_document_that_tasks_run_names_the_first_rank_for_all() {
    let rule = &["expanded-on-batch-host"][..];
    for (document, run) in [
        // Written to a file, with and without a first line, by either command, and run in each of the ways.
        ("cat > run.sh <<EOF\npython t.py --rank $SLURM_PROCID\nEOF", "srun bash run.sh"),
        ("cat <<EOF > run.sh\nexport RANK=${SLURM_PROCID}\nEOF", "srun bash -x ./run.sh"),
        ("cat > /lustre/run <<EOF\npython t.py --rank $SLURM_PROCID\nEOF", "srun /lustre/run"),
        (
            "tee run.sh > /dev/null <<EOF\npython t.py --rank $SLURM_PROCID\nEOF",
            "srun bash -c 'source run.sh'",
        ),
        ("cat >> run.sh <<-EOF\n\tpython t.py --rank $SLURM_LOCALID\nEOF", "srun --label ./run.sh"),
        ("F=$PWD/run.sh\ncat > $F <<EOF\npython t.py --node $SLURM_NODEID\nEOF", "srun bash $F"),
        ("cat > t.py <<EOF\nrank = $SLURM_PROCID\nEOF", "srun python -u t.py"),
        ("cat > t.py <<EOF\nrank = $SLURM_PROCID\nEOF", "srun uv run --no-sync t.py"),
        // Handed over.
        ("", "srun bash <<EOF\npython t.py --rank $SLURM_PROCID\nEOF"),
        ("", "srun bash -s -- a b <<EOF\npython t.py --rank $SLURM_PROCID\nEOF"),
        ("", "srun python - <<EOF\nprint($SLURM_PROCID)\nEOF"),
        ("", "srun bash <<< \"python t.py --rank $SLURM_PROCID\""),
        ("", "cat <<EOF | srun bash\npython t.py --rank $SLURM_PROCID\nEOF"),
    ] {
        check(&job(8, &format!("{document}\n{run}")), rule);
    }
    for (document, run) in [
        // Not expanded, or by the task.
        ("cat > run.sh <<'EOF'\npython t.py --rank $SLURM_PROCID\nEOF", "srun bash run.sh"),
        ("cat > run.sh <<EOF\npython t.py --rank \\$SLURM_PROCID\nEOF", "srun bash run.sh"),
        ("", "srun bash -c 'bash <<EOF\npython t.py --rank $SLURM_PROCID\nEOF'"),
        // One for the job, or the first host on purpose.
        ("cat > run.sh <<EOF\npython t.py --job $SLURM_JOB_ID\nEOF", "srun bash run.sh"),
        ("cat > run.sh <<EOF\nexport MASTER_ADDR=$SLURMD_NODENAME\nEOF", "srun bash run.sh"),
        // No script of tasks: a note, a file that is data, one that the batch script runs, one task.
        ("cat <<EOF\nrank $SLURM_PROCID\nEOF", "srun python t.py"),
        ("cat > info.json <<EOF\n{\"rank\": $SLURM_PROCID}\nEOF", "srun python t.py --config info.json"),
        ("cat > run.sh <<EOF\necho $SLURM_PROCID\nEOF", "bash run.sh\nsrun python t.py"),
        ("cat > run.sh <<EOF\necho $SLURM_PROCID\nEOF", "srun -N 1 -n 1 bash run.sh"),
        ("", "srun cat <<EOF\n$SLURM_PROCID\nEOF"),
    ] {
        check(&job(8, &format!("{document}\n{run}")), &[]);
    }
}
