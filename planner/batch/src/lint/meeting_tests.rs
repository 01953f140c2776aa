//! Where ranks of several nodes meet: the host, the port, the name of the run.

use super::tests::{check, job};

/// A job of one launcher on each of two nodes, with these options of a rendezvous.
fn meets(before: &str, options: &str) -> String {
    let launch = "python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d";
    let host = "export MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\"";
    job(1, &format!("{host}\nsrun bash -c '{before}{launch} {options} train.py'"))
}

#[test]
fn all_nodes_give_a_run_one_id() {
    let endpoint = "--rdzv_endpoint=$MASTER_ADDR:29400";
    for id in [
        "$RANDOM",
        "$(uuidgen)",
        "$(hostname)",
        "$SLURM_NODEID",
        "run-$SLURM_PROCID",
        "$$",
        "$((1000 + RANDOM % 1000))",
        "$(cat /proc/sys/kernel/random/uuid)",
        "$(openssl rand -hex 4)",
        "$(date +%s%N)",
        "$HOSTNAME",
    ] {
        check(&meets("", &format!("{endpoint} --rdzv_id={id}")), &["id-of-each-node"]);
        check(&meets("", &format!("{endpoint} --rdzv-id {id}")), &["id-of-each-node"]);
        check(&meets(&format!("ID={id}; "), &format!("{endpoint} --rdzv_id=$ID")), &["id-of-each-node"]);
    }
    for id in [
        "$SLURM_JOB_ID",
        "1",
        "$(date +%Y%m%d)",
        "$(basename $PWD)",
        "$SLURM_LOCALID",
        "$((SLURM_JOB_ID + 1))",
    ] {
        check(&meets("", &format!("{endpoint} --rdzv_id={id}")), &[]);
    }
    // Drawn once, in the batch script; or by a node that trains on its own.
    check(&meets("", &format!("{endpoint} --rdzv_id=$ID")).replace("srun", "export ID=$RANDOM\nsrun"), &[]);
    check(
        &job(
            1,
            "srun -N 1 -n 1 bash -c 'python -m torch.distributed.run --nnodes=1 --nproc_per_node=8 --rdzv_id=$RANDOM train.py'",
        ),
        &[],
    );
}

#[test]
fn ports_are_looked_at_wherever_they_stand() {
    for (port, rule) in [
        ("$((20000+RANDOM%10000))", Some("port-of-each-task")),
        ("$((20000 + $$ % 10000))", Some("port-of-each-task")),
        ("$((20000 + SLURM_NODEID))", Some("port-of-each-task")),
        ("$(shuf -i 20000-30000 -n 1)", Some("port-of-each-task")),
        ("99999", Some("port-range")),
        ("80", Some("port-range")),
        ("$SLURM_JOB_ID", Some("port-range")),
        ("29400", None),
        ("$((15000 + SLURM_JOB_ID % 10000))", None),
        ("$((29500 + SLURM_LOCALID))", None),
        ("$PORT", None),
    ] {
        let expected: Vec<&str> = rule.into_iter().collect();
        check(&meets("", &format!("--rdzv_endpoint=$MASTER_ADDR:{port}")), &expected);
        let by_variable = meets(&format!("P={port}; "), "--rdzv_endpoint=$MASTER_ADDR:$P");
        check(&by_variable, &expected);
        let exported = meets("", "").replace("srun", "export PET_RDZV_ENDPOINT=h:$P\nsrun");
        let exported = exported.replace("export MASTER_ADDR", &format!("P={port}\nexport MASTER_ADDR"));
        // What the batch script draws is one port.
        let once: Vec<&str> = rule.filter(|rule| *rule == "port-range").into_iter().collect();
        check(&exported, &once);
    }
    // A task's own port is what a node that trains alone should have.
    check(
        &job(
            1,
            "srun -N 1 -n 1 bash -c 'python -m torch.distributed.run --nnodes=1 --nproc_per_node=8 --master_port=$((20000+$$%10000)) train.py'",
        ),
        &[],
    );
    // A colon of an address is none of a port.
    check(&meets("", "--rdzv_endpoint=fe80::1"), &[]);
}

#[test]
fn a_list_of_nodes_is_no_host() {
    let rule = &["compressed-nodelist"][..];
    let run = "srun bash -c 'python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=29500 train.py'";
    for host in [
        "$SLURM_JOB_NODELIST",
        "\"${SLURM_NODELIST}\"",
        "${SLURM_JOB_NODELIST%%,*}",
        "\"$SLURM_STEP_NODELIST\"",
    ] {
        check(&job(1, &format!("export MASTER_ADDR={host}\n{run}")), rule);
    }
    let by_option = "srun python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$NODES:29400 train.py";
    check(&job(1, &format!("NODES=$SLURM_JOB_NODELIST\n{by_option}")), rule);
    check(&meets("", "--rdzv_endpoint=$SLURM_JOB_NODELIST:29400"), rule);
    for before in [
        "NODES=$SLURM_JOB_NODELIST\nexport MASTER_ADDR=\"$(scontrol show hostnames \"$NODES\" | sed -n 1p)\"",
        "MASTER_ADDR=$SLURM_JOB_NODELIST\nexport MASTER_ADDR=\"$(scontrol show hostnames \"$MASTER_ADDR\" | sed -n 1p)\"",
        "echo \"nodes: $SLURM_JOB_NODELIST\"\nexport MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\"",
    ] {
        check(&job(1, &format!("{before}\n{run}")), &[]);
    }
    // Of one node the list is its name.
    check(
        "#!/bin/bash\n#SBATCH --nodes=1\nexport MASTER_ADDR=$SLURM_JOB_NODELIST\nsrun python train.py\n",
        &[],
    );
}

#[test]
fn launchers_that_know_of_their_own_node_alone() {
    check(&meets("", "--standalone"), &["no-endpoint"]);
    check(&meets("", "--standalone --rdzv_endpoint=$MASTER_ADDR:29400"), &["no-endpoint"]);
    check(
        "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\nsrun python -m torch.distributed.run --standalone --nproc_per_node=8 train.py\n",
        &[],
    );
    let rule = &["nodes-not-given"][..];
    check(&job(1, "srun deepspeed --num_gpus 8 train.py --deepspeed ds.json"), rule);
    check(&job(1, "srun bash -c 'deepspeed train.py'"), rule);
    for body in [
        "srun deepspeed --hostfile hosts --no_ssh --node_rank 0 train.py",
        "srun -N 1 -n 1 deepspeed --num_gpus 8 train.py",
        "srun deepspeed $OPTIONS train.py",
        "deepspeed --hostfile=hosts train.py",
        "srun python train.py --deepspeed ds.json",
    ] {
        check(&job(1, body), &[]);
    }
}
