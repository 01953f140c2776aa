//! From what a machine says to the build of torch.

use std::collections::BTreeMap;

use super::*;

/// What each source gives, and the system.
struct Machine(OperatingSystem, BTreeMap<&'static str, &'static str>);

fn linux(sources: &[(&'static str, &'static str)]) -> Machine {
    Machine(OperatingSystem::Linux, sources.iter().copied().collect())
}

impl Machine {
    fn detect(&self) -> Result<Detected, Box<planner::Finding>> {
        detect(|source| self.1.get(source.name()).map(|text| (*text).to_owned()))
    }

    /// The extra that is chosen, and the sentences that are not information.
    fn choose(&self, extras: &[&str]) -> (Option<String>, Vec<String>) {
        let stage = stage(extras);
        if !needs_detection(&stage) {
            return (None, Vec::new());
        }
        let found = self.detect().expect("an answer").found;
        let accelerator = found.as_ref().map(|(accelerator, _)| accelerator);
        let choice = choose_extra(self.0, accelerator, &stage.extras, &[], None);
        let notes = choice.findings.into_iter().filter(|finding| finding.severity != planner::Severity::Info);
        (choice.extra, notes.map(|finding| finding.message).collect())
    }
}

#[track_caller]
fn check(machine: &Machine, extras: &[&str], expected: Option<&str>) {
    assert_eq!(machine.choose(extras).0.as_deref(), expected);
}

fn sys(driver: &'static str) -> Machine {
    linux(&[("/sys/module/nvidia/version", driver)])
}

const ALL: [&str; 27] = [
    "cu132", "cu130", "cu129", "cu128", "cu126", "cu125", "cu124", "cu123", "cu122", "cu121", "cu120",
    "cu118", "cu117", "cu116", "cu115", "cu114", "cu113", "cu112", "cu111", "cu110", "cu102", "cu101",
    "cu100", "cu92", "cu91", "cu90", "cu80",
];

#[test]
fn the_newest_build_that_the_driver_runs() {
    check(&sys("580.65.06\n"), &["cu129", "cu130"], Some("cu130"));
    check(&sys("575.57.08"), &["cu129", "cu130"], Some("cu129"));
    check(&sys("525.60.13"), &["cu118", "cu121"], Some("cu121"));
    check(&sys("525.60.12"), &["cu118", "cu121"], Some("cu118"));
    check(&sys("450.80.02"), &["cu110", "cu118"], Some("cu118"));
    check(&sys("450.51.06"), &["cu110", "cu118"], Some("cu110"));
    check(&sys("440.33.01"), &["cu101", "cu102"], Some("cu102"));
    check(&sys("580.65.06"), &ALL, Some("cu132"));
}

#[test]
fn a_driver_that_is_too_old_is_said_with_the_lowest_minimum() {
    let (extra, notes) = sys("570.133.20").choose(&["cu130"]);
    assert_eq!(extra, None);
    assert_eq!(
        notes,
        [
            "driver 570.133.20 is too old for every build of torch that this stage declares (cu130): cu130 needs at \
          least 580; update the driver, or declare an extra for an older CUDA"
        ]
    );
    let (extra, notes) = sys("370.28").choose(&ALL);
    assert_eq!((extra, notes.len()), (None, 1));
    assert!(notes[0].contains("cu80 needs at least 375.26"), "{notes:?}");
    check(&sys("370.28"), &["cu130", "cpu"], Some("cpu"));
}

#[test]
fn the_variable_is_before_the_driver() {
    let sources = [("UV_CUDA_DRIVER_VERSION", "580"), ("/sys/module/nvidia/version", "535.183.06")];
    check(&linux(&sources), &["cu126", "cu132"], Some("cu132"));
}

#[test]
fn a_variable_that_is_no_version_is_the_users_error() {
    let machine = linux(&[("UV_CUDA_DRIVER_VERSION", "abc"), ("/sys/module/nvidia/version", "535.183.06")]);
    let finding = machine.detect().expect_err("an error");
    assert_eq!(
        finding.message,
        "UV_CUDA_DRIVER_VERSION is \"abc\", which is no driver version such as 580.65.06; set it right or unset it"
    );
    let machine = linux(&[("UV_AMD_GPU_ARCHITECTURE", "gfx1")]);
    assert!(machine.detect().expect_err("an error").message.contains("AMD architecture"));
}

#[test]
fn the_kernels_sentence() {
    let text =
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.144.03  Release Build  (x)  Mon\nGCC";
    check(&linux(&[("/proc/driver/nvidia/version", text)]), &["cu124", "cu126"], Some("cu126"));
    let without = [("/proc/driver/nvidia/version", "something else"), ("nvidia-smi", "550.1")];
    check(&linux(&without), &["cu126"], Some("cu126"));
}

#[test]
fn windows_has_minimums_of_its_own() {
    let machine = Machine(OperatingSystem::Windows, [("nvidia-smi", "572.60\r\n572.60\r\n")].into());
    check(&machine, &["cu118", "cu128"], Some("cu128"));
    let old = Machine(OperatingSystem::Windows, [("nvidia-smi", "527.00")].into());
    check(&old, &["cu118", "cu128"], Some("cu118"));
    check(&sys("527.00"), &["cu118", "cu128"], Some("cu128"));
}

#[test]
fn a_file_that_cant_be_read_is_passed_over_with_a_warning() {
    let machine = linux(&[("/sys/module/nvidia/version", "?"), ("nvidia-smi", "580.1")]);
    let detected = machine.detect().expect("an answer");
    assert_eq!(detected.warnings.len(), 1);
    assert_eq!(detected.found.map(|(_, source)| source), Some(Source::NvidiaSmi));
    check(&machine, &["cu130"], Some("cu130"));
}

#[test]
fn without_such_extras_nobody_is_asked() {
    for extras in [&[][..], &["tensorrt"][..]] {
        assert!(!needs_detection(&stage(extras)));
        check(&sys("580.65.06"), extras, None);
    }
    assert!(needs_detection(&stage(&["cu129"])) && needs_detection(&stage(&["rocm6.4"])));
}

#[test]
fn amd_intel_and_none() {
    let rocm = linux(&[("rocm_agent_enumerator", "gfx000\ngfx1100\ngfx942\n")]);
    check(&rocm, &["rocm6.4", "rocm6.3", "cu130"], Some("rocm6-4"));
    check(&linux(&[("UV_AMD_GPU_ARCHITECTURE", "gfx950")]), &["rocm6.4", "rocm7.0"], Some("rocm7-0"));
    check(&linux(&[("UV_AMD_GPU_ARCHITECTURE", "gfx950")]), &["rocm6.4"], None);
    let pci = |lines| linux(&[("/sys/bus/pci/devices", lines)]);
    check(&pci("0x020000 0x8086\n0x030000 0x8086"), &["xpu", "cpu"], Some("xpu"));
    check(&pci("0x030000 0x10de\n0x020000 0x8086"), &["xpu", "cpu"], Some("cpu"));
    check(&linux(&[]), &["cu130"], None);
    check(&linux(&[]), &["cu130", "cpu"], Some("cpu"));
    let display = "PCI\\VEN_8086&DEV_9A49&SUBSYS_0";
    check(
        &Machine(OperatingSystem::Windows, [("the list of display adapters", display)].into()),
        &["xpu"],
        Some("xpu"),
    );
    check(&Machine(OperatingSystem::Other, [("UV_CUDA_DRIVER_VERSION", "580")].into()), &ALL, None);
}

#[test]
fn what_is_asked_for_is_not_given_again() {
    let accelerator = Accelerator::Cuda(DriverVersion::parse("580").expect("a version"));
    let extras = stage(&["cu130", "cu129"]).extras;
    for wanted in ["cu130", "cu129"] {
        let choice =
            choose_extra(OperatingSystem::Linux, Some(&accelerator), &extras, &[wanted.to_owned()], None);
        assert_eq!(choice, Choice::default());
    }
}

#[test]
fn builds_without_kernels_for_the_gpu_are_passed_over() {
    let choose = |extras: &[&str], capability| {
        let accelerator = Accelerator::Cuda(DriverVersion::parse("580.65.06").expect("a version"));
        choose_extra(OperatingSystem::Linux, Some(&accelerator), &stage(extras).extras, &[], Some(capability))
    };
    assert_eq!(choose(&["cu126", "cu130"], (7, 0)).extra.as_deref(), Some("cu126"));
    assert_eq!(choose(&["cu126", "cu130"], (9, 0)).extra.as_deref(), Some("cu130"));
    let blackwell = choose(&["cu124", "cu126"], (10, 0));
    assert_eq!(blackwell.extra, None);
    assert!(blackwell.findings[0].message.contains("compute capability 10.0"), "{:?}", blackwell.findings);
}

#[test]
fn architectures_and_builds() {
    for (extra, capability, expected) in [
        ("cu126", (5, 2), true),
        ("cu128", (7, 0), false),
        ("cu128", (7, 5), true),
        ("cu102", (8, 0), false),
        ("cu110", (8, 0), true),
        ("cu117", (9, 0), false),
        ("cu118", (9, 0), true),
        ("cu126", (10, 0), false),
        ("cu128", (10, 0), true),
        ("cu128", (12, 0), true),
        ("cu128", (12, 1), false),
        ("rocm6.4", (9, 0), true),
    ] {
        assert_eq!(supports(extra, capability), expected, "{extra} {capability:?}");
    }
}

#[test]
fn pinned_indexes() {
    let text = r#"
[project]
name = "s"
[tool.uv.sources]
torch = [
    { index = "pytorch-cpu", marker = "sys_platform != 'darwin' and sys_platform != 'linux'" },
    { index = "pytorch-cu129", marker = "sys_platform == 'linux'" },
]
torchvision = { index = "pytorch-cu130" }
"#;
    let stage = read_stage("pyproject.toml", text).expect("a stage");
    assert_eq!(stage.torch_index.as_deref(), Some("pytorch-cu129"));
    let driver = |text| Accelerator::Cuda(DriverVersion::parse(text).expect("a version"));
    let messages = |driver: Option<&Accelerator>, capability| -> Vec<String> {
        pinned_backend(&stage, OperatingSystem::Linux, driver, capability)
            .into_iter()
            .filter(|finding| finding.severity == planner::Severity::Warning)
            .map(|finding| finding.message)
            .collect()
    };
    let vision = "torch is pinned to cu129 and torchvision to cu130; pin both to one index";
    assert_eq!(messages(Some(&driver("580.1")), Some((9, 0))), [vision]);
    assert_eq!(messages(None, None), [vision]);
    assert_eq!(
        messages(Some(&driver("520.1")), None),
        [
            "driver 520.1 does not run cu129, which this stage pins torch to: it needs at least 525.60.13",
            vision
        ]
    );
    assert_eq!(
        messages(None, Some((7, 0))),
        ["torch of cu129 has no kernels for compute capability 7.0; pin another index", vision]
    );
}

#[test]
fn versions() {
    let shown = |text: &str| DriverVersion::parse(text).map(|version| version.to_string());
    assert_eq!(shown("450.80.02").as_deref(), Some("450.80.2"));
    assert_eq!(shown("535.183.06-1").as_deref(), Some("535.183.6.1"));
    for wrong in ["", "abc", "1.", "1..2", "1.2a", "-1", "99999999999999999999999", "1.2.3.4.5.6.7.8.9"] {
        assert_eq!(shown(wrong), None, "{wrong}");
    }
}

#[test]
fn majors_of_cuda() {
    for (version, expected) in [
        ("2.10.0+cu129", Some(12)),
        ("2.10.0+cu130", Some(13)),
        ("1.4.0+cu92", Some(9)),
        ("2.10.0", None),
        ("2.10.0+cpu", None),
        ("2.10.0+cu1", None),
        ("2.10.0+cu129.post1", Some(12)),
    ] {
        assert_eq!(crate::runspec::torch::cuda_major(version), expected, "{version}");
    }
}

#[test]
fn torch_and_torchvision_of_two_cudas() {
    let message = mismatch("2.10.0+cu129", None, "0.25.0+cu130").expect("a mismatch").message;
    assert!(
        message
            .starts_with("torchvision 0.25.0+cu130 is built for CUDA 13 and torch 2.10.0+cu129 for CUDA 12")
    );
    assert!(mismatch("2.10.0", Some("12.9"), "0.25.0+cu130").is_some());
    assert_eq!(mismatch("2.10.0+cu126", None, "0.25.0+cu129"), None, "minor versions may differ");
    assert_eq!(mismatch("2.10.0", None, "0.25.0+cu130"), None, "nothing is known of this torch");
    assert_eq!(mismatch("2.10.0+cpu", None, "0.25.0+cpu"), None);
}

#[test]
fn what_a_lock_would_install() {
    let package =
        |name: &str, version: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
    let lock = |packages: &[(&str, &str)]| -> String {
        packages.iter().map(|(name, version)| package(name, version)).collect()
    };
    let found = |packages| locked_mismatch("uv.lock", &lock(packages)).expect("a lock").is_some();
    assert!(found(&[("torch", "2.10.0+cu129"), ("torchvision", "0.25.0+cu130")]));
    assert!(found(&[
        ("torch", "2.9.0"),
        ("torchvision", "0.24.0+cu130"),
        ("nvidia-cuda-runtime-cu12", "12.8.90")
    ]));
    assert!(!found(&[("torch", "2.10.0+cu129"), ("torchvision", "0.25.0+cu129")]));
    assert!(!found(&[("torch", "2.10.0+cu129")]));
    assert!(!found(&[("torch", "2.10.0+cu129"), ("torch", "2.10.0+cpu"), ("torchvision", "0.25.0+cu130")]));
    assert!(locked_mismatch("uv.lock", "[[").is_err());
}
