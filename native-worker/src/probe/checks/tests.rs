//! Machines as they are met, and what is said of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Check, State, checks};
use crate::probe::fabric::Port;
use crate::probe::facts::{Facts, SLURM, machine_of};
use crate::probe::gpu::{
    ComputeMode, Driver, Gpu, GpuError, Instance, PcieLink, Reading, Recorded, Recording,
};
use crate::probe::storage::mounts;
use crate::probe::{Interpreter, RankBinary, Torch};

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index:04}"),
        name: "NVIDIA H100 80GB HBM3".into(),
        pci_bus_id: format!("00000000:{index:02}:00.0"),
        memory_bytes: 85_520_809_984,
        compute_capability: Some((9, 0)),
        nvlinks: Some(18),
        pcie: Some(PcieLink { generation: 5, width: 16, max_generation: 5, max_width: 16 }),
        power_limit_milliwatts: Some(700_000),
        ecc: Some(true),
        compute_mode: Some(ComputeMode::Default),
        ..Gpu::default()
    }
}

fn recording() -> Recording {
    let idle = Reading {
        memory_used_bytes: Some(4 << 20),
        ecc_uncorrected: Some(0),
        throttle_reasons: Some(1),
        ..Reading::default()
    };
    Recording {
        driver: Some(Driver { version: "580.65.06".into(), cuda: Some("13.0".into()) }),
        gpus: (0..8).map(gpu).collect(),
        readings: vec![vec![idle]; 8],
        ..Recording::default()
    }
}

fn torch() -> Torch {
    Torch {
        python: "/opt/py".into(),
        version: "2.11.0+cu130".into(),
        cuda: Some("13.0".into()),
        lib: "/opt/torch/lib".into(),
    }
}

fn port(number: usize) -> Port {
    Port {
        name: format!("mlx5_{number}:1"),
        state: "4: ACTIVE".into(),
        rate: "400 Gb/sec (4X NDR)".into(),
        link: "InfiniBand".into(),
    }
}

/// A node of eight GPUs as it should be.
fn node() -> Facts {
    let variables = [
        ("HF_HOME", "/lustre/me/hf"),
        ("UV_CACHE_DIR", "/lustre/me/uv"),
        ("NEMO_HOME", "/lustre/me/nemo"),
        ("TRITON_CACHE_DIR", "/scratch/triton"),
        ("SLURM_JOB_ID", "7"),
    ];
    Facts {
        python: Some(Ok(Interpreter {
            executable: "/usr/bin/python3".into(),
            version: "3.12.3".into(),
            packages: Vec::new(),
            torch: Some("2.10.0+cu129".into()),
            torch_cuda: Some("12.9".into()),
            torchvision: Some("0.25.0+cu129".into()),
        })),
        uv: Some("uv 0.9.2".into()),
        torch: Some(Ok(torch())),
        rank: Some(Ok(RankBinary {
            path: "/opt/shardplan-rank".into(),
            about: "shardplan-rank 0.1.0, torch 2.11.0".into(),
        })),
        gpus: Some(machine_of(&mut Recorded::new(recording()), None, None)),
        kernel_driver: None,
        nccl: Some("/opt/nccl/libnccl.so.2".into()),
        ports: (0..2).map(port).collect(),
        peer_memory: true,
        locked_memory: None,
        open_files: Some(1 << 20),
        shared_memory: Some(64 << 30),
        slurm: SLURM.to_vec(),
        controller: Some(Ok("Slurmctld(primary) at ctl is UP".into())),
        pyxis: Some(true),
        enroot: true,
        mounts: mounts(
            "o / overlay rw 0 0\ns /home nfs4 rw 0 0\nl /lustre lustre rw 0 0\nd /scratch xfs rw 0 0\nt /dev/shm tmpfs rw 0 0",
        ),
        home: Some("/home/me".into()),
        folder: "/lustre/me".into(),
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        runs: ("/lustre/me/runs".into(), None),
    }
}

/// Facts as `change` leaves them.
fn changed(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = node();
    change(&mut facts);
    facts
}

fn with_gpus(change: impl FnOnce(&mut Recording)) -> Facts {
    let mut recording = recording();
    change(&mut recording);
    changed(|facts| facts.gpus = Some(machine_of(&mut Recorded::new(recording), None, None)))
}

fn lines(checks: &[Check]) -> String {
    let line = |check: &Check| {
        let fix = check.fix.as_ref().map_or_else(String::new, |fix| format!(" -> {fix}"));
        format!("{:?} {}: {}{fix}\n", check.state, check.name, check.detail)
    };
    checks.iter().map(line).collect()
}

/// What is said of a machine beyond what is said of one that is as it should be.
fn news(facts: &Facts) -> String {
    let usual = checks(&node());
    let new: Vec<Check> = checks(facts).into_iter().filter(|check| !usual.contains(check)).collect();
    lines(&new)
}

#[test]
fn a_node_as_it_should_be() {
    assert!(checks(&node()).iter().all(|check| check.state == State::Ok && check.fix.is_none()));
    insta::assert_snapshot!(lines(&checks(&node())));
}

#[test]
fn a_laptop() {
    let facts = Facts {
        gpus: Some(Err(GpuError::NoDriver("none".into()))),
        torch: Some(Err(
            "torch 2.11 is needed to run, and python3 has no torch; run `cargo xtask run` once".into()
        )),
        rank: Some(Err("there is none; build it".into())),
        mounts: mounts("d / ext4 rw 0 0"),
        home: Some("/home/me".into()),
        folder: "/home/me".into(),
        open_files: Some(1024),
        runs: (PathBuf::from("runs"), None),
        ..Facts::default()
    };
    insta::assert_snapshot!(lines(&checks(&facts)));
}

#[test]
fn every_line_that_is_not_right_says_what_to_do() {
    let facts = changed(|facts| {
        *facts = Facts { slurm: SLURM.to_vec(), gpus: facts.gpus.take(), ..Facts::default() };
    });
    for check in checks(&facts) {
        assert!(check.state != State::Doubtful || check.fix.is_some(), "{check:?}");
    }
}

#[test]
fn torches_that_do_not_fit() {
    let volta = with_gpus(|recording| recording.gpus[3].compute_capability = Some((7, 0)));
    insta::assert_snapshot!(news(&volta).lines().next().unwrap_or_default(), @"Ok gpu: 1 x NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 7.0; 7 x NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 9.0");
    assert!(news(&volta).contains("has no kernels for NVIDIA H100 80GB HBM3 (compute capability 7.0)"));
    let old = with_gpus(|recording| {
        recording.driver = Some(Driver { version: "550.54.15".into(), cuda: Some("12.4".into()) });
    });
    insta::assert_snapshot!(news(&old), @r"
    Missing driver: 550.54.15 is older than 580, which the CUDA of this torch needs -> update the driver, or name a Python with a torch 2.11 for an older CUDA with --torch PYTHON
    Doubtful cuda: torch 2.11.0+cu130 of the executor is built for CUDA 13.0, and the driver runs CUDA up to 12.4 -> update the driver, or install a build for an older CUDA
    ");
    let without = changed(|facts| {
        facts.torch = Some(Ok(Torch { version: "2.11.0+cpu".into(), cuda: None, ..torch() }))
    });
    assert!(news(&without).contains("is built without CUDA, and this machine has GPUs"));
    let vision = changed(|facts| {
        if let Some(Ok(python)) = &mut facts.python {
            python.torchvision = Some("0.25.0+cu130".into());
        }
    });
    assert!(news(&vision).starts_with("Doubtful python: torchvision 0.25.0+cu130 is built for CUDA 13"));
}

#[test]
fn gpus_that_are_not_well() {
    let facts = with_gpus(|recording| {
        recording.readings[0][0].ecc_uncorrected = Some(2);
        recording.readings[1][0].memory_used_bytes = Some(70 << 30);
        recording.readings[2][0].throttle_reasons = Some(0x40);
        recording.readings[3].clear();
        recording.gpus[4].pcie = Some(PcieLink { generation: 5, width: 8, max_generation: 5, max_width: 16 });
        recording.gpus[5].ecc = Some(false);
        recording.gpus[6].mig = true;
        recording.gpus[7].nvlinks = Some(17);
    });
    insta::assert_snapshot!(news(&facts));
}

#[test]
fn drivers_that_do_not_answer() {
    let broken = changed(|facts| {
        facts.gpus = Some(Err(GpuError::Broken("kernel and libraries differ; restart the machine".into())));
        facts.kernel_driver = Some("580.65.06".into());
    });
    insta::assert_snapshot!(news(&broken), @r"
    Missing gpu: kernel and libraries differ -> restart the machine
    Doubtful driver: 580.65.06 is loaded in the kernel, and its library libnvidia-ml.so.1 does not answer -> start the container with the NVIDIA runtime (--gpus all), or install the driver's libraries of that version
    ");
}

#[test]
fn hidden_gpus() {
    let hidden = |devices: &str, unlike: bool| {
        let mut recording = recording();
        if unlike {
            recording.gpus[1].name = "NVIDIA L40S".into();
        }
        let facts = changed(|facts| {
            facts.gpus = Some(machine_of(&mut Recorded::new(recording), Some(devices), None));
            facts.variables.insert("CUDA_VISIBLE_DEVICES".into(), devices.into());
        });
        news(&facts)
    };
    insta::assert_snapshot!(hidden("0,1", false), @"Ok gpu: CUDA_VISIBLE_DEVICES shows 2 of 8 GPUs");
    insta::assert_snapshot!(hidden("", false), @r#"Doubtful gpu: CUDA_VISIBLE_DEVICES is "" and hides all 8 GPUs -> unset it to use them"#);
    insta::assert_snapshot!(hidden("0,8", false), @r#"Doubtful gpu: CUDA_VISIBLE_DEVICES is "0,8", and names no GPU of this machine from 8 on; CUDA sees 1 -> set it to numbers or UUIDs that nvidia-smi -L lists, or unset it"#);
    insta::assert_snapshot!(hidden("0,1", true), @r"
    Ok gpu: 7 x NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 9.0; 1 x NVIDIA L40S, 79.6 GiB, compute capability 9.0
    Doubtful gpu: GPUs are of several kinds, which plans take for equal: 1 x NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 9.0; 1 x NVIDIA L40S, 79.6 GiB, compute capability 9.0 -> set CUDA_VISIBLE_DEVICES to those of one kind: ranks don't begin on unequal ones
    Ok gpu: CUDA_VISIBLE_DEVICES shows 2 of 8 GPUs
    Doubtful gpu: CUDA numbers GPUs of several kinds by their speed, the fastest first, unlike nvidia-smi -> set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that both count alike
    ");
    assert!(!hidden("0,2", true).contains("which plans take for equal"));
}

#[test]
fn instances_of_a_gpu() {
    let shown = |devices: Option<&str>| {
        let mut recording = recording();
        recording.gpus[6].mig = true;
        recording.gpus[6].instances = ["MIG-a1", "MIG-b2"]
            .map(|uuid| Instance {
                uuid: uuid.into(),
                name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".into(),
                memory_bytes: 10_401_873_920,
            })
            .into();
        let facts = changed(|facts| {
            facts.gpus = Some(machine_of(&mut Recorded::new(recording), devices, None));
            facts.variables.extend(devices.map(|devices| ("CUDA_VISIBLE_DEVICES".into(), devices.into())));
        });
        news(&facts)
    };
    insta::assert_snapshot!(shown(None), @r"
    Doubtful gpu: CUDA shows NVIDIA H100 80GB HBM3 MIG 1g.10gb, 9.7 GiB (MIG-a1) alone, and nothing beside it: a process sees one MIG instance, or whole GPUs -> set CUDA_VISIBLE_DEVICES to one instance, or to GPUs that are not split
    Doubtful gpu: GPU 6 is split by MIG; a process sees one instance, and NCCL does not run between them: MIG-a1, MIG-b2 -> use whole GPUs, or one rank per job with CUDA_VISIBLE_DEVICES set to an instance's name
    ");
    insta::assert_snapshot!(shown(Some("MIG-b2")), @r"
    Ok gpu: CUDA shows NVIDIA H100 80GB HBM3 MIG 1g.10gb, 9.7 GiB (MIG-b2)
    Doubtful gpu: GPU 6 is split by MIG; a process sees one instance, and NCCL does not run between them: MIG-a1, MIG-b2 -> use whole GPUs, or one rank per job with CUDA_VISIBLE_DEVICES set to an instance's name
    ");
    insta::assert_snapshot!(shown(Some("MIG-b2,MIG-a1")), @r"
    Doubtful gpu: CUDA shows NVIDIA H100 80GB HBM3 MIG 1g.10gb, 9.7 GiB (MIG-b2) alone, and nothing beside it: a process sees one MIG instance, or whole GPUs -> set CUDA_VISIBLE_DEVICES to one instance, or to GPUs that are not split
    Doubtful gpu: GPU 6 is split by MIG; a process sees one instance, and NCCL does not run between them: MIG-a1, MIG-b2 -> use whole GPUs, or one rank per job with CUDA_VISIBLE_DEVICES set to an instance's name
    ");
    insta::assert_snapshot!(shown(Some("MIG-GPU-0006/1/0")), @r#"
    Doubtful gpu: CUDA_VISIBLE_DEVICES is "MIG-GPU-0006/1/0", and no MIG instance of this machine is MIG-GPU-0006/1/0; CUDA sees 0 -> set it to an instance as nvidia-smi -L lists it (MIG- and its UUID; GPU and numbers name it for drivers before 470 alone), or have instances made
    Doubtful gpu: GPU 6 is split by MIG; a process sees one instance, and NCCL does not run between them: MIG-a1, MIG-b2 -> use whole GPUs, or one rank per job with CUDA_VISIBLE_DEVICES set to an instance's name
    "#);
}

#[test]
fn modes_in_which_not_everybody_computes() {
    let facts = with_gpus(|recording| {
        recording.gpus[0].compute_mode = Some(ComputeMode::ExclusiveProcess);
        recording.gpus[1].compute_mode = Some(ComputeMode::ExclusiveProcess);
        recording.gpus[2].compute_mode = Some(ComputeMode::Prohibited);
    });
    insta::assert_snapshot!(news(&facts), @r"
    Doubtful gpu: in compute mode Exclusive_Process one process at a time has a GPU, so ranks can't share one (--ranks-per-gpu): GPU 0, 1 -> start one rank per GPU, or have the mode set back: nvidia-smi -c DEFAULT
    Missing gpu: in compute mode Prohibited nobody computes on a GPU, and ranks there fail: GPU 2 -> have the mode set back (nvidia-smi -c DEFAULT), or leave it out of CUDA_VISIBLE_DEVICES
    ");
    // What is hidden is in nobody's way.
    let hidden = changed(|facts| {
        let mut recording = recording();
        recording.gpus[2].compute_mode = Some(ComputeMode::Prohibited);
        facts.gpus = Some(machine_of(&mut Recorded::new(recording), Some("0,1"), None));
    });
    assert!(!news(&hidden).contains("Prohibited"));
}

#[test]
fn networks() {
    let facts = changed(|facts| {
        facts.nccl = None;
        facts.peer_memory = false;
        facts.locked_memory = Some(65536);
        facts.ports[1].state = "1: DOWN".into();
        facts.variables.insert("NCCL_P2P_DISABLE".into(), "1".into());
        facts.variables.insert("CUDA_LAUNCH_BLOCKING".into(), "1".into());
        facts.ports.push(Port { rate: "200 Gb/sec (4X HDR)".into(), ..port(2) });
    });
    insta::assert_snapshot!(news(&facts));
    let down = changed(|facts| facts.ports.iter_mut().for_each(|port| port.state = "2: INIT".into()));
    assert!(news(&down).contains("none of 2 ports of RDMA adapters is active"));
    let none = changed(|facts| facts.ports.clear());
    assert!(
        news(&none)
            .contains("Absent fabric: no InfiniBand or RoCE adapter -> between nodes NCCL will use TCP")
    );
}

#[test]
fn slurm_and_its_containers() {
    let facts = changed(|facts| {
        facts.slurm = vec!["sbatch", "srun"];
        facts.controller = Some(Err("Slurmctld(primary) at ctl is DOWN".into()));
        facts.enroot = false;
    });
    insta::assert_snapshot!(news(&facts));
    let without = changed(|facts| facts.pyxis = Some(false));
    assert!(
        news(&without)
            .starts_with("Absent pyxis: srun does not know --container-image -> write scripts without")
    );
}

#[test]
fn caches_on_the_wrong_filesystem() {
    let facts = changed(|facts| {
        facts.variables = BTreeMap::from([
            ("HF_HOME".to_owned(), "/scratch/hf".to_owned()),
            ("UV_CACHE_DIR".to_owned(), "cache".to_owned()),
            ("NEMO_HOME".to_owned(), "/dev/shm/nemo".to_owned()),
            ("TORCHINDUCTOR_CACHE_DIR".to_owned(), "/lustre/me/inductor".to_owned()),
        ]);
        facts.runs = ("/scratch/runs".into(), None);
    });
    insta::assert_snapshot!(news(&facts));
}

#[test]
fn without_a_shared_filesystem_a_cluster_is_none() {
    let facts = changed(|facts| {
        facts.mounts = mounts("d / ext4 rw 0 0");
        facts.variables.clear();
    });
    insta::assert_snapshot!(news(&facts));
}

#[test]
fn runs_that_cant_be_written() {
    let facts = changed(|facts| facts.runs = ("/gone".into(), Some("Read-only file system".into())));
    assert_eq!(
        news(&facts),
        "Missing runs: /gone can't be written (Read-only file system) -> name another with --runs\n"
    );
}
