//! Whether a plan can be started on one machine, and what can be done where it can't. Whoever offers to start a plan asks
//! here: the page before it shows its button, the launcher before it makes a run folder.

use crate::cluster::gpu_of_driver;
use crate::finding::{Finding, has_error};
use crate::memory;
use crate::plan::Plan;
use crate::rules::executor_limits;
use crate::twin::{device, twin};
use crate::units::{Bytes, thousands};
use crate::wire::{MachineFacts, MemoryAnswer, PlanFile};

/// Ranks on one machine at most: more are a mistake, not a run.
pub const MOST_RANKS: u64 = 64;

/// What can be done with a plan that can't be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// Measuring its scaled-down twin there.
    Twin,
    /// So many ranks sharing each GPU.
    Share(u64),
    /// The same ranks as processes on the CPU.
    OnCpu,
    /// A script for a cluster that has what it needs.
    Script,
}

impl Instead {
    /// What to do, as the end of "instead, ...".
    pub fn in_words(self) -> String {
        match self {
            Instead::Twin => {
                "measure a scaled-down twin of it here: `shardplan verify`, or the card below it on the page".to_owned()
            }
            Instead::Share(ranks) => format!(
                "let {ranks} ranks share each GPU, by host memory instead of NCCL: `shardplan run --ranks-per-gpu {ranks}`"
            ),
            Instead::OnCpu => "run it as CPU processes: set cluster.gpu to cpu".to_owned(),
            Instead::Script => {
                "write a script for a cluster that has them: `shardplan script`, or the Script view of the page".to_owned()
            }
        }
    }
}

/// Whether a plan can be started on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Startable {
    /// What the plan needs, such as `64 H100 SXM, 61.20 GiB of each`; empty where the plan has errors.
    pub needs: String,
    /// What the machine has, such as `no GPU, 23.40 GiB of memory`.
    pub has: String,
    /// Errors keep it from being started, warnings don't.
    pub findings: Vec<Finding>,
    /// What can be done where it can't be started, the nearest first; all of it was tried by the same rules.
    pub instead: Vec<Instead>,
}

impl Startable {
    /// Whether it can.
    pub fn can_start(&self) -> bool {
        !has_error(&self.findings)
    }
}

/// Whether the worker can start `plan` on `machine`, with so many ranks at most on each GPU. What is started is the plan
/// under the worker's own rules ([`Plan::native`]).
pub fn startable(plan: &Plan, machine: &MachineFacts, ranks_per_gpu: u64) -> Startable {
    let (needs, mut findings) = judged(&plan.executed(), machine, ranks_per_gpu);
    let refused = has_error(&findings);
    let mut instead = Vec::new();
    if refused && !needs.is_empty() {
        let can = |file: &PlanFile, ranks_per_gpu: u64| !has_error(&judged(file, machine, ranks_per_gpu).1);
        let (gpu, most) = device(plan, machine.gpus);
        if twin(plan, gpu, most.min(MOST_RANKS)).is_ok_and(|twin| can(&twin.file, 1)) {
            instead.push(Instead::Twin);
        }
        let share =
            plan.world_size().checked_div(machine.gpus).map(|_| plan.world_size().div_ceil(machine.gpus));
        if let Some(share) = share.filter(|share| *share > ranks_per_gpu && can(&plan.executed(), *share)) {
            instead.push(Instead::Share(share));
        }
        let mut on_cpu = plan.executed();
        on_cpu.cluster.gpu = "cpu".to_owned();
        (on_cpu.cluster.nvlink_domain, on_cpu.cluster.nic_gbps) = (None, None);
        on_cpu.cluster.oversubscription = None;
        if plan.cluster.gpu.capacity_bytes.is_some() && can(&on_cpu, 1) {
            instead.push(Instead::OnCpu);
            let of_gpu = findings.iter_mut().filter(|finding| finding.field == "cluster.gpu");
            of_gpu.for_each(|finding| finding.nearest = vec!["cpu".into()]);
        }
        instead.push(Instead::Script);
    }
    Startable { needs, has: has(machine), findings, instead }
}

/// What a plan file with runtime native needs, in words, and what speaks against starting it.
fn judged(native: &PlanFile, machine: &MachineFacts, ranks_per_gpu: u64) -> (String, Vec<Finding>) {
    let resolved = Plan::resolve(native);
    let Some(plan) = resolved.plan else { return (String::new(), resolved.findings) };
    let mut findings = executor_limits(&plan);
    let memory = memory::answer(&plan);
    let needs = needs(&plan, &memory);
    let on_gpu = plan.cluster.gpu.capacity_bytes.is_some();
    if plan.world_size() > MOST_RANKS {
        findings.push(refusal(
            "cluster.nodes",
            &plan,
            format!("{needs}; at most {MOST_RANKS} ranks are started on one machine"),
            "one process per rank",
        ));
    } else if on_gpu && machine.gpus == 0 {
        findings.push(refusal(
            "cluster.gpu",
            &plan,
            format!("this plan needs {needs}, and this machine has {}", has(machine)),
            "a rank of a plan for GPUs has one",
        ));
    } else if on_gpu && plan.world_size() > machine.gpus.saturating_mul(ranks_per_gpu) {
        findings.push(refusal(
            "cluster.gpus_per_node",
            &plan,
            format!(
                "this plan needs {needs}, and this machine has {}, of which each may carry {ranks_per_gpu} of its {} ranks",
                has(machine),
                plan.world_size()
            ),
            "a rank has a GPU of its own unless it is told to share",
        ));
    } else if on_gpu {
        findings.extend(of_kinds(&plan, machine, ranks_per_gpu));
        findings.extend(of_gpus(&plan, &memory, machine));
    } else {
        findings.extend(of_host(&memory, machine));
    }
    (needs, findings)
}

fn refusal(field: &str, plan: &Plan, message: String, rule: &str) -> Finding {
    Finding::error(field, plan.world_size(), message).rule(rule)
}

/// What speaks against a machine whose GPUs are of several kinds: a plan takes its GPUs for equal, and ranks that have one each don't
/// begin on others.
fn of_kinds(plan: &Plan, machine: &MachineFacts, ranks_per_gpu: u64) -> Option<Finding> {
    if machine.gpu_kinds.len() < 2 {
        return None;
    }
    let needed = plan.world_size().div_ceil(ranks_per_gpu.max(1));
    let most = machine.gpu_kinds.values().copied().max().unwrap_or(0);
    let (kinds, rule) = (kinds(machine), "a plan takes its GPUs for equal");
    if needed > most && ranks_per_gpu == 1 {
        let message = format!(
            "this plan needs {needed} GPUs of one kind, and this machine has {kinds}; plan for one of them, and set CUDA_VISIBLE_DEVICES to those"
        );
        return Some(Finding::error("cluster.gpus_per_node", plan.world_size(), message).rule(rule));
    }
    let message = format!(
        "this machine has {kinds}, and the plan takes its GPUs for equal: set CUDA_VISIBLE_DEVICES to those of one kind, or the slowest of them holds up all"
    );
    Some(Finding::warning("cluster.gpu", plan.cluster.gpu.id, message).rule(rule))
}

/// GPUs by their names and numbers, such as `4 NVIDIA H100 80GB HBM3 and 4 NVIDIA L40S`.
fn kinds(machine: &MachineFacts) -> String {
    let each = machine.gpu_kinds.iter().map(|(name, count)| format!("{count} {name}"));
    each.collect::<Vec<_>>().join(" and ")
}

/// What speaks against a machine's GPUs, of which there are enough.
fn of_gpus(plan: &Plan, memory: &MemoryAnswer, machine: &MachineFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted = plan.cluster.gpu;
    if !machine.gpu_name.is_empty() && gpu_of_driver(&machine.gpu_name) != Some(wanted.id) {
        let message = format!(
            "the plan is for {}, and this machine has {}: times are predicted for the former",
            wanted.title, machine.gpu_name
        );
        findings.push(Finding::warning("cluster.gpu", wanted.id, message));
    }
    let Some(there) = machine.gpu_memory_bytes else { return findings };
    // Ranks that share a GPU each take theirs.
    let ranks = plan.world_size().div_ceil(machine.gpus.max(1));
    let [low, _] = memory.interval_bytes.map(|bytes| bytes.saturating_mul(ranks));
    let peak = memory.peak_bytes.saturating_mul(ranks);
    let words = |bytes| Bytes(bytes).in_words();
    let rule = "what a GPU's ranks take is within its memory";
    if low > there {
        let message = format!(
            "a GPU's ranks are predicted to take {}, at the least {}, and a GPU of this machine has {}",
            words(peak),
            words(low),
            words(there)
        );
        findings.push(Finding::error("cluster.gpu", words(peak), message).rule(rule));
    } else if peak > there {
        let message = format!(
            "a GPU's ranks are predicted to take {}, and a GPU of this machine has {}: it may end for want of memory",
            words(peak),
            words(there)
        );
        findings.push(Finding::warning("cluster.gpu", words(peak), message).rule(rule));
    }
    findings
}

/// What speaks against the host's memory, where ranks are CPU processes.
fn of_host(memory: &MemoryAnswer, machine: &MachineFacts) -> Option<Finding> {
    let (there, needed) = (machine.memory_bytes?, of_all_ranks(memory));
    let message = format!(
        "all ranks together need {}, and this machine has {}: take a smaller model, fewer layers (model.num_layers) or a shorter training.seq_len, or measure a scaled-down twin of the plan with `shardplan verify`",
        Bytes(needed).in_words(),
        Bytes(there).in_words()
    );
    let finding = Finding::error("model", Bytes(needed).in_words(), message)
        .rule("without a GPU, ranks live in the host's memory");
    (needed > there).then_some(finding)
}

fn of_all_ranks(memory: &MemoryAnswer) -> u64 {
    let of = |class: &crate::wire::RankClass| class.peak_allocated_bytes.saturating_mul(class.count);
    memory.rank_classes.iter().map(of).fold(0, u64::saturating_add)
}

fn needs(plan: &Plan, memory: &MemoryAnswer) -> String {
    let world = thousands(plan.world_size());
    match plan.cluster.gpu.capacity_bytes {
        Some(_) => {
            format!("{world} {}, {} of each", plan.cluster.gpu.title, Bytes(memory.peak_bytes).in_words())
        }
        None => format!("{world} CPU processes, {} together", Bytes(of_all_ranks(memory)).in_words()),
    }
}

fn has(machine: &MachineFacts) -> String {
    let each =
        machine.gpu_memory_bytes.map_or_else(String::new, |bytes| format!(" of {}", Bytes(bytes).in_words()));
    let name = if machine.gpu_name.is_empty() { "GPU" } else { &machine.gpu_name };
    if machine.gpu_kinds.len() > 1 {
        let least =
            machine.gpu_memory_bytes.map(|bytes| format!(", the smallest of {}", Bytes(bytes).in_words()));
        return format!("{}{}", kinds(machine), least.unwrap_or_default());
    }
    match (machine.gpus, machine.memory_bytes) {
        (0, None) => "no GPU".to_owned(),
        (0, Some(memory)) => format!("no GPU, {} of memory", Bytes(memory).in_words()),
        (count, _) => format!("{} {name}{each}", thousands(count)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::parse_plan;

    fn plan(model: &str, cluster: Value, layout: Value) -> Plan {
        let file = json!({"version": 1, "model": {"preset": model}, "cluster": cluster, "layout": layout,
            "training": {"global_batch_size": 64}});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    fn laptop() -> MachineFacts {
        MachineFacts { memory_bytes: Some(24 << 30), ..MachineFacts::default() }
    }

    fn node(gpus: u64, name: &str, gib: u64) -> MachineFacts {
        let (gpu_name, gpu_memory_bytes) = (name.to_owned(), Some(gib << 30));
        MachineFacts { gpus, gpu_name, gpu_memory_bytes, memory_bytes: Some(1 << 40), ..Default::default() }
    }

    const H100: &str = "NVIDIA H100 80GB HBM3";

    #[track_caller]
    fn refused(plan: &Plan, machine: &MachineFacts, ranks_per_gpu: u64, says: &str, instead: &[Instead]) {
        let found = startable(plan, machine, ranks_per_gpu);
        let said: Vec<&str> = found.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert!(!found.can_start() && said.join("\n").contains(says), "{said:?}");
        assert_eq!(found.instead, instead, "{said:?}");
    }

    #[track_caller]
    fn starts(plan: &Plan, machine: &MachineFacts, ranks_per_gpu: u64, warns: Option<&str>) {
        let found = startable(plan, machine, ranks_per_gpu);
        assert!(found.can_start() && found.instead.is_empty(), "{found:?}");
        let said: String = found.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(said.is_empty(), warns.is_none(), "{said}");
        assert!(said.contains(warns.unwrap_or_default()), "{said}");
    }

    #[test]
    fn a_plan_for_gpus_starts_only_where_they_are() {
        use Instead::{OnCpu, Script, Share, Twin};
        let cluster = plan("llama-3-70b", json!({"gpu": "h100-sxm", "nodes": 8}), json!({"tp": 8, "pp": 4}));
        refused(&cluster, &laptop(), 1, "needs 64 H100 SXM", &[Twin, Script]);
        refused(&cluster, &laptop(), 1, "this machine has no GPU, 24.00 GiB of memory", &[Twin, Script]);
        refused(&cluster, &node(8, H100, 80), 1, "has 8 NVIDIA H100 80GB HBM3 of 80.00 GiB", &[Twin, Script]);
        let eight = plan("tiny-dense", json!({"gpu": "h100-sxm"}), json!({"tp": 2}));
        refused(&eight, &laptop(), 1, "needs 8 H100 SXM", &[Twin, OnCpu, Script]);
        refused(&eight, &node(4, H100, 80), 1, "has 4 NVIDIA", &[Twin, Share(2), OnCpu, Script]);
        starts(&eight, &node(4, H100, 80), 2, None);
        starts(&eight, &node(8, H100, 80), 1, None);
        starts(&eight, &node(8, "NVIDIA B200", 180), 1, Some("the plan is for H100 SXM"));
    }

    #[test]
    fn a_plan_takes_gpus_for_equal() {
        let unlike = |counts: [u64; 2]| MachineFacts {
            gpu_kinds: [H100, "NVIDIA L40S"].map(str::to_owned).into_iter().zip(counts).collect(),
            ..node(counts.iter().sum(), H100, 44)
        };
        let eight = plan("tiny-dense", json!({"gpu": "h100-sxm"}), json!({"tp": 2}));
        let says = "needs 8 GPUs of one kind, and this machine has 6 NVIDIA H100 80GB HBM3 and 2 NVIDIA L40S";
        let found = startable(&eight, &unlike([6, 2]), 1);
        assert!(!found.can_start() && found.findings[0].message.contains(says), "{found:?}");
        assert_eq!(found.has, "6 NVIDIA H100 80GB HBM3 and 2 NVIDIA L40S, the smallest of 44.00 GiB");
        let four = plan("tiny-dense", json!({"gpu": "h100-sxm", "gpus_per_node": 4}), json!({"tp": 2}));
        starts(&four, &unlike([4, 4]), 1, Some("holds up all"));
    }

    #[test]
    fn a_plan_for_the_cpu_starts_where_memory_holds_it() {
        let small = plan("tiny-dense", json!({"gpu": "cpu"}), json!({"tp": 2}));
        starts(&small, &laptop(), 1, None);
        // Its ranks are CPU processes whatever GPUs there are.
        starts(&small, &node(1, H100, 80), 1, None);
        let large = plan("llama-3-70b", json!({"gpu": "cpu"}), json!({"tp": 8}));
        refused(&large, &laptop(), 1, "and this machine has 24.00 GiB", &[Instead::Twin, Instead::Script]);
        let value = startable(&large, &laptop(), 1).findings.remove(0).value;
        assert!(value.as_str().is_some_and(|value| value.ends_with(" GiB")), "{value}");
        let many = plan("tiny-dense", json!({"gpu": "cpu", "nodes": 16}), json!({"tp": 2}));
        refused(&many, &laptop(), 1, "at most 64 ranks", &[Instead::Twin, Instead::Script]);
    }

    #[test]
    fn gpus_too_small_for_its_ranks_do_not_start_it() {
        let plan = plan("llama-3-8b", json!({"gpu": "h100-sxm"}), json!({"tp": 8}));
        starts(&plan, &node(8, H100, 80), 1, None);
        refused(
            &plan,
            &node(8, "NVIDIA L4", 8),
            1,
            "and a GPU of this machine has 8.00",
            &[Instead::Twin, Instead::OnCpu, Instead::Script],
        );
        // Ranks that share a GPU each take theirs.
        let native = Plan::resolve(&plan.executed()).plan.expect("what is started");
        let memory = memory::answer(&native);
        let shared = startable(&plan, &node(1, H100, 80), 8);
        assert!(8 * memory.interval_bytes[0] > 80 << 30, "{}", memory.peak_bytes);
        assert!(
            shared.findings.iter().any(|finding| finding.message.contains("a GPU's ranks are")),
            "{shared:?}"
        );
        // What is only likely to be too much is a warning.
        let near = MachineFacts { gpu_memory_bytes: Some(memory.peak_bytes - 1), ..node(8, H100, 80) };
        starts(&plan, &near, 1, Some("may end for want of memory"));
    }

    #[test]
    fn what_is_offered_instead_works() {
        for (model, layout) in [
            ("llama-3-8b", json!({"tp": 4, "pp": 2})),
            ("tiny-moe", json!({"ep": 4})),
            ("llama-3-70b", json!({"tp": 8})),
        ] {
            for machine in [laptop(), node(1, H100, 80), node(4, "NVIDIA L4", 22)] {
                let plan = plan(model, json!({"gpu": "h100-sxm"}), layout.clone());
                for instead in startable(&plan, &machine, 1).instead {
                    let (gpu, most) = device(&plan, machine.gpus);
                    let changed = match instead {
                        Instead::Twin => twin(&plan, gpu, most).unwrap().file,
                        Instead::OnCpu => {
                            let mut file = plan.executed();
                            file.cluster.gpu = "cpu".to_owned();
                            file
                        }
                        Instead::Share(_) | Instead::Script => plan.executed(),
                    };
                    let ranks = if let Instead::Share(ranks) = instead { ranks } else { 1 };
                    let changed = Plan::resolve(&changed).plan.unwrap();
                    let works =
                        instead == Instead::Script || startable(&changed, &machine, ranks).can_start();
                    assert!(works, "{model} {instead:?} {machine:?}");
                }
            }
        }
    }

    #[test]
    fn what_the_executor_can_not_run_is_offered_a_script_at_most() {
        let plan = plan("deepseek-v3.2", json!({"gpu": "cpu"}), json!({}));
        let found = startable(&plan, &laptop(), 1);
        assert!(!found.can_start() && found.instead == [Instead::Script], "{found:?}");
    }
}
