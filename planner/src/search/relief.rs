//! Where nothing fits, or nothing is valid: what stands in the way, and the least changes that help, each with a plan that
//! works.

use serde_json::{Value, json};

use super::Search;
use super::anew::Fitting;
use super::answer::{Pin, Relief, Remedy, RuleCount};
use super::partial::Partial;
use super::request::{Axes, AxisValues, Limits, Request};
use super::settings::Settings;
use super::sharding::Sharding;
use super::why::best_of;
use crate::cluster::{Gpu, gpus};
use crate::finding::{Finding, Severity};
use crate::json::read_value;
use crate::parse::with_value;
use crate::plan::Plan;
use crate::settings::Granularity;
use crate::units::Dtype;
use crate::wire::{PlanFile, Setting};

/// The field by which modules that are recomputed are said in a word, as commands and plan files take it.
const MODULES: &str = "training.recompute";
/// Candidates that are looked at for one way out.
const MOST_FOR_RELIEF: u64 = 100_000;
/// Doublings of the nodes up to which the least number on which a plan fits is looked for.
const DOUBLINGS: u32 = 6;
/// Smaller numbers of nodes that are tried.
const MOST_LESS: usize = 4;
/// Remedies of two axes that are told.
const MOST_PAIRS: usize = 3;

/// An axis of numbers that may be held: its path, where a request has it, and its value among settings.
struct Slot {
    field: &'static str,
    axis: fn(&mut Axes) -> &mut Option<AxisValues>,
    of: fn(&Settings) -> u64,
}

const SLOTS: [Slot; 9] = [
    Slot { field: "layout.tp", axis: |axes| &mut axes.tp, of: |one| one.tp },
    Slot { field: "layout.cp", axis: |axes| &mut axes.cp, of: |one| one.cp },
    Slot { field: "layout.pp", axis: |axes| &mut axes.pp, of: |one| one.pp },
    Slot { field: "layout.vpp", axis: |axes| &mut axes.vpp, of: |one| one.vpp },
    Slot { field: "layout.ep", axis: |axes| &mut axes.ep, of: |one| one.ep },
    Slot { field: "layout.etp", axis: |axes| &mut axes.etp, of: |one| one.etp },
    Slot { field: "layout.dp_replicate", axis: |axes| &mut axes.dp_replicate, of: |one| one.dp_replicate },
    Slot {
        field: "training.micro_batch_size",
        axis: |axes| &mut axes.micro_batch_size,
        of: |one| one.micro_batch_size,
    },
    Slot { field: "cluster.nodes", axis: |axes| &mut axes.nodes, of: |one| one.nodes },
];

/// Settings that take less memory than what a plan says.
struct Smaller {
    title: &'static str,
    changes_training: bool,
    settings: Vec<(&'static str, Value)>,
}

impl Search {
    /// The plan that lacks the least, without what would help. Tight plans are rows, so none lacks anything then.
    pub(super) fn lacking(&self, partial: &Partial) -> Relief {
        let all = partial.smallest.values().filter(|_| partial.fitting() == 0);
        let least = all.min_by_key(|scored| (self.missing(scored), scored.candidate));
        Relief { smallest: least.and_then(|least| self.beyond(least, 1.0)), ..Relief::default() }
    }

    /// What would fit, where nothing does or only just; where nothing is valid, what would be.
    pub(super) fn relief(&self, partial: &Partial, rules: &[RuleCount]) -> Relief {
        if partial.smallest.is_empty() {
            return self.without_failed().unwrap_or_else(|| self.invalid(rules));
        }
        if partial.fits.count > 0 {
            return self.in_time(partial);
        }
        let smallest = self.lacking(partial).smallest;
        let mut remedies = self.unpinned();
        remedies.extend(self.smaller_settings());
        let mut told = Vec::new();
        let other = self.other_nodes();
        if other.is_empty() {
            told.push(format!(
                "with the GPUs doubled, and again up to {} times as many, nothing fits either",
                1u64 << DOUBLINGS
            ));
        }
        remedies.extend(other);
        remedies.extend(self.larger_gpu());
        let mut suggestions: Vec<String> = remedies.iter().map(|remedy| remedy.said.clone()).collect();
        suggestions.extend(told);
        Relief { smallest, contradiction: Vec::new(), remedies, suggestions }
    }

    /// Why no candidate goes on without the failed GPUs, where that is why none is valid.
    fn without_failed(&self) -> Option<Relief> {
        let held = match &self.request().axes.tp {
            Some(AxisValues::Fixed(size)) => Some(*size),
            _ => None,
        };
        let why = said(&*self.growth.iter().flatten().find_map(|growth| growth.refusal(held))?);
        let remedies = if held.is_some() { self.unpinned() } else { Vec::new() };
        let suggestions =
            std::iter::once(why).chain(remedies.iter().map(|remedy| remedy.said.clone())).collect();
        Some(Relief { smallest: None, contradiction: Vec::new(), remedies, suggestions })
    }

    /// What stands in the way where no candidate is valid.
    fn invalid(&self, rules: &[RuleCount]) -> Relief {
        let (contradiction, mut remedies) = self.contradiction();
        let mut whatever = self.broken_by_the_plan(rules.get(..1).unwrap_or_default());
        if remedies.is_empty() && whatever.is_none() {
            // A number of GPUs with few divisors leaves nothing that a model divides by.
            remedies = self.other_nodes();
            // Else it is what the plan says beside numbers.
            whatever = if remedies.is_empty() { self.broken_by_the_plan(rules) } else { None };
        }
        let mut suggestions = Vec::new();
        if let Some(said) = self.contradiction_in_words(&contradiction) {
            suggestions.push(said);
        }
        let reason = remedies.first().and_then(|remedy| self.reason(remedy));
        suggestions.push(match (reason, rules.first()) {
            (Some(reason), _) => reason,
            (None, Some(most)) => whatever.unwrap_or_else(|| {
                format!(
                    "no candidate is valid; most of them ({}) break this rule: {}",
                    most.candidates, most.rule
                )
            }),
            (None, None) => "the space is empty: some axis has no value left".to_owned(),
        });
        suggestions.extend(remedies.iter().map(|remedy| remedy.said.clone()));
        Relief { smallest: None, contradiction, remedies, suggestions }
    }

    /// What the plan itself says of one of these rules that it breaks as it stands, such as that of a precision that its GPU does
    /// not have.
    fn broken_by_the_plan(&self, rules: &[RuleCount]) -> Option<String> {
        let errors = Plan::resolve(&self.request().plan).findings.into_iter();
        let mut errors = errors.filter(|one| one.severity == Severity::Error);
        let error = errors.find(|one| rules.iter().any(|known| known.rule == one.rule))?;
        Some(said(&error))
    }

    /// What is wrong with what is held, as the plan says it that is valid when that is left open.
    fn reason(&self, remedy: &Remedy) -> Option<String> {
        let mut file = remedy.apply(&self.request().plan);
        let opened = |field: &str| remedy.changes.iter().any(|pin| pin.field == field);
        let plan = &self.request().plan;
        if plan.layout.splits_itself() && (opened("layout.pp") || opened("layout.vpp")) {
            // What the valid plan has for its own number of stages is nothing that anybody said.
            file.layout.forget_split();
            (file.layout.vpp, file.layout.schedule) = (plan.layout.vpp, plan.layout.schedule);
        }
        for (slot, value) in self.held().into_iter().filter(|(slot, _)| opened(slot.field)) {
            file = with_value(&file, slot.field, &value.into()).ok()?;
        }
        let errors = Plan::judge(&file).findings.into_iter().filter(|one| one.severity == Severity::Error);
        let error = errors.into_iter().next()?;
        let rule = if error.rule.is_empty() { String::new() } else { format!(" ({})", error.rule) };
        Some(format!("{}{rule}", error.message))
    }

    /// The axes that are held at one number.
    fn held(&self) -> Vec<(&'static Slot, u64)> {
        let mut axes = self.request().axes.clone();
        let value = |slot: &'static Slot| match (slot.axis)(&mut axes) {
            Some(AxisValues::Fixed(value)) => Some((slot, *value)),
            _ => None,
        };
        SLOTS.iter().filter_map(value).collect()
    }

    fn without(&self, open: &[&Slot]) -> Request {
        let mut request = self.request().clone();
        for slot in open {
            *(slot.axis)(&mut request.axes) = None;
        }
        request
    }

    /// Held axes none of which can be left out of what contradicts, and the fewest that help when they are left open.
    fn contradiction(&self) -> (Vec<Pin>, Vec<Remedy>) {
        let held = self.held();
        let all: Vec<&Slot> = held.iter().map(|(slot, _)| *slot).collect();
        // With all of them open still nothing: it is not they.
        if !is_valid(self.without(&all)) {
            return (Vec::new(), Vec::new());
        }
        let mut open: Vec<&Slot> = Vec::new();
        let mut clash = Vec::new();
        for (slot, value) in &held {
            let more: Vec<&Slot> = open.iter().copied().chain([*slot]).collect();
            if is_valid(self.without(&more)) {
                clash.push(Pin { field: slot.field.to_owned(), value: (*value).into() });
            } else {
                open = more;
            }
        }
        let opened = |slots: &[&Slot]| {
            let request = self.without(slots);
            if !is_valid(request.clone()) {
                return None;
            }
            let settings = best_of(request)?;
            let changes: Vec<Pin> = slots.iter().map(|slot| pin(slot, &settings)).collect();
            let said = format!("{}, and the plan valid", left_open(&changes));
            Some(Remedy {
                said,
                changes,
                settings,
                peak_bytes: None,
                step_seconds: None,
                changes_training: false,
            })
        };
        let mut remedies: Vec<Remedy> = all.iter().filter_map(|slot| opened(&[*slot])).collect();
        if remedies.is_empty() {
            let pairs = (0..all.len()).flat_map(|one| (one + 1..all.len()).map(move |other| (one, other)));
            let pairs = pairs.filter_map(|(one, other)| opened(&[all.get(one)?, all.get(other)?]));
            remedies = pairs.take(MOST_PAIRS).collect();
        }
        (clash, remedies)
    }

    fn contradiction_in_words(&self, clash: &[Pin]) -> Option<String> {
        let gpus = self.space.subspaces.first().map_or(0, |subspace| subspace.plan.world_size());
        let all: Vec<String> = clash.iter().map(Pin::in_words).collect();
        match &all[..] {
            [] => None,
            [one] => Some(format!("no plan on {gpus} GPUs has {one}")),
            [one, other] => {
                Some(format!("{one} and {other} contradict each other: no plan on {gpus} GPUs has both"))
            }
            [more @ .., last] => Some(format!(
                "{} and {last} contradict each other: no plan on {gpus} GPUs has all of them",
                more.join(", ")
            )),
        }
    }

    /// Held axes of which one left open is enough for some plan to fit.
    fn unpinned(&self) -> Vec<Remedy> {
        let mut found = Vec::new();
        for (slot, _) in self.held().into_iter().filter(|(slot, _)| slot.field != "cluster.nodes") {
            found.extend(self.fitting(&|axes| *(slot.axis)(axes) = None).map(|fitting| {
                let changes = vec![pin(slot, &fitting.settings)];
                self.remedy(fitting, &left_open(&changes), changes)
            }));
        }
        if self.request().axes.recompute.is_some() {
            found.extend(self.fitting(&|axes| axes.recompute = None).map(|fitting| {
                let changes = vec![recompute(&fitting.settings)];
                self.remedy(fitting, &left_open(&changes), changes)
            }));
        }
        found
    }

    /// Other settings with which some plan fits: one by one, and all together where none is enough.
    fn smaller_settings(&self) -> Vec<Remedy> {
        let (mut found, all) = (Vec::new(), self.smaller());
        for smaller in &all {
            let fitting = self.fitting(&|axes| put(axes, &smaller.settings));
            found.extend(fitting.map(|fitting| Remedy {
                changes_training: smaller.changes_training,
                ..self.remedy(fitting, smaller.title, pins(&smaller.settings))
            }));
        }
        if !found.is_empty() || all.len() < 2 {
            return found;
        }
        let settings: Vec<(&str, Value)> = all.iter().flat_map(|one| one.settings.iter().cloned()).collect();
        let together = self.fitting(&|axes| {
            put(axes, &settings);
            axes.recompute = None;
        });
        let together = together.map(|fitting| {
            let mut changes = pins(&settings);
            changes.push(recompute(&fitting.settings));
            let titles: Vec<&str> = all.iter().map(|one| one.title).collect();
            let what = format!("{}, recomputation {}", titles.join(", "), fitting.settings.recompute.0);
            Remedy {
                changes_training: all.iter().any(|one| one.changes_training),
                ..self.remedy(fitting, &what, changes)
            }
        });
        together.into_iter().collect()
    }

    /// Settings that the plan has otherwise and that take less memory; those that change no number of training first.
    fn smaller(&self) -> Vec<Smaller> {
        let Some(plan) = self.space.subspaces.first().map(|subspace| &subspace.plan) else {
            return Vec::new();
        };
        let (training, layout) = (&plan.training, &plan.layout);
        let aware = ("training.optimizer.precision_aware", json!(true));
        let mut found = Vec::new();
        let mut add = |holds: bool, title, changes_training, settings| {
            if holds {
                found.push(Smaller { title, changes_training, settings });
            }
        };
        let facts = plan.runtime.facts();
        let megatron = Setting::is_counted("training.optimizer.precision_aware", facts);
        add(
            megatron && !training.optimizer.distributed,
            "the optimizer's state split over data parallelism",
            false,
            vec![("training.optimizer.distributed", json!(true))],
        );
        add(
            megatron && training.optimizer.offload_fraction < 1.0,
            "the optimizer's state on the host",
            false,
            vec![aware.clone(), ("training.optimizer.offload_fraction", json!(1.0))],
        );
        let whole = Sharding::OptimGradsParams.name();
        add(facts.flat_units, "everything split", false, vec![("layout.fsdp.strategy", json!(whole))]);
        add(
            Setting::is_read("layout.fsdp.offload", facts) && !layout.fsdp.offload,
            "shards and the optimizer's state on the host",
            false,
            vec![("layout.fsdp.offload", json!("cpu"))],
        );
        let moments = [training.optimizer.exp_avg_dtype, training.optimizer.exp_avg_sq_dtype];
        add(
            megatron && moments.contains(&Dtype::Fp32),
            "moments in bf16",
            true,
            vec![
                aware,
                ("training.optimizer.exp_avg_dtype", json!("bf16")),
                ("training.optimizer.exp_avg_sq_dtype", json!("bf16")),
            ],
        );
        add(
            megatron && training.grad_dtype == Dtype::Fp32,
            "gradients summed in bf16",
            true,
            vec![("training.grad_dtype", json!("bf16"))],
        );
        found
    }

    /// Numbers of nodes on which some plan fits: one that is less, and the least that is more, as far as there are. Where a number
    /// has few divisors a smaller one may do: the next below that has more twos in it is tried, and so on.
    fn other_nodes(&self) -> Vec<Remedy> {
        let nodes =
            self.space.subspaces.iter().map(|subspace| subspace.plan.cluster.nodes).max().unwrap_or(1);
        let on = |nodes: u64| {
            let fixed = |axes: &mut Axes| axes.nodes = Some(AxisValues::Fixed(nodes));
            self.fitting(&fixed)
        };
        let mut less: Vec<u64> = powers(nodes).map(|power| nodes / power * power).collect();
        less.dedup();
        less.retain(|fewer| *fewer < nodes);
        let less = less.into_iter().take(MOST_LESS).find_map(on);
        // The same above, then doubled until one does, and the least below that.
        let above = powers(nodes).map(|power| nodes.div_ceil(power).saturating_mul(power));
        let whole = nodes.checked_next_power_of_two().unwrap_or(nodes);
        let doubled = (1..=DOUBLINGS).filter_map(|doubling| whole.checked_mul(1 << doubling));
        let more = above.chain(doubled).filter(|more| *more > nodes).find_map(on);
        let more = more.map(|fitting| {
            let least = self.request().fewest(nodes + 1, fitting.settings.nodes - 1).fits;
            least.and_then(|nodes| on(nodes).or_else(|| self.fitting_of_all(nodes))).unwrap_or(fitting)
        });
        let told = |fitting: Fitting| {
            let gpus = fitting.settings.gpus(&self.request().plan);
            let changes = self.nodes_in_fields(fitting.settings.nodes);
            self.remedy(fitting, &format!("{gpus} GPUs"), changes)
        };
        less.into_iter().chain(more).map(told).collect()
    }

    /// So many nodes as fields. A plan file that does not say how many GPUs a node has is taken for another number than the GPU's usual
    /// nodes have, where they have another: a command that names model and GPU takes that, so both are said.
    pub(super) fn nodes_in_fields(&self, nodes: u64) -> Vec<Pin> {
        let mut changes = vec![Pin { field: "cluster.nodes".to_owned(), value: nodes.into() }];
        let cluster = self.space.subspaces.first().map(|subspace| &subspace.plan.cluster);
        let unsaid = self.request().plan.cluster.gpus_per_node.is_none();
        let own =
            cluster.filter(|own| unsaid && own.gpu.node_gpus.is_some_and(|usual| usual != own.gpus_per_node));
        changes.extend(
            own.map(|own| Pin { field: "cluster.gpus_per_node".to_owned(), value: own.gpus_per_node.into() }),
        );
        changes
    }

    /// The GPU with the least memory of those with more that are nowhere slower, on which some plan fits.
    fn larger_gpu(&self) -> Option<Remedy> {
        let clusters = self.space.subspaces.iter().map(|subspace| &subspace.plan.cluster);
        let largest = clusters.max_by_key(|cluster| cluster.capacity_bytes())?;
        let more = |gpu: &&Gpu| gpu.capacity_bytes > largest.capacity_bytes() && gpu.replaces(largest.gpu);
        let mut larger: Vec<&Gpu> = gpus().iter().filter(more).collect();
        crate::order::sort_by_key(&mut larger, |gpu| gpu.capacity_bytes);
        let on = |gpu: &Gpu| self.fitting(&|axes| axes.gpu = Some(vec![gpu.id.to_owned()]));
        let fitting = larger.into_iter().find_map(on)?;
        let id = fitting.settings.gpu.clone();
        let mut changes = vec![Pin { field: "cluster.gpu".to_owned(), value: id.as_str().into() }];
        // What was said of the old GPU's memory, links and price is not said of the other's.
        let cluster = &self.request().plan.cluster;
        let of_the_old = [
            ("cluster.memory_gib", cluster.memory_gib.is_some()),
            ("cluster.nvlink_domain", cluster.nvlink_domain.is_some()),
            ("cluster.nic_gbps", cluster.nic_gbps.is_some()),
            ("cluster.price_per_gpu_hour", cluster.price_per_gpu_hour.is_some()),
        ];
        let said = of_the_old.into_iter().filter(|(_, said)| *said);
        changes.extend(said.map(|(field, _)| Pin { field: field.to_owned(), value: Value::Null }));
        Some(self.remedy(fitting, &format!("GPUs with more memory, such as {id}"), changes))
    }

    /// The best plan by the closed form that fits when axes are changed, of those that are looked at: there are bounds on how
    /// many, and chunks, micro batches and hidden communication only take more memory, so one of each is tried unless they are
    /// asked for. A faster plan may fit, too.
    fn fitting(&self, change: &dyn Fn(&mut Axes)) -> Option<Fitting> {
        let mut request = self.request().for_memory();
        request.limits = Limits { rows: 1, simulated: 1, candidates: MOST_FOR_RELIEF };
        for axis in [&mut request.axes.micro_batch_size, &mut request.axes.vpp] {
            axis.get_or_insert(AxisValues::Fixed(1));
        }
        change(&mut request.axes);
        Fitting::of(&request)
    }

    /// The same on so many nodes, where all of a space is looked at.
    fn fitting_of_all(&self, nodes: u64) -> Option<Fitting> {
        let mut request = self.request().for_memory();
        request.limits = Limits { rows: 1, simulated: 1, ..request.limits };
        request.axes.nodes = Some(AxisValues::Fixed(nodes));
        Fitting::of(&request)
    }
}

/// A finding in a sentence: its field, what is wrong, what else there is, and by which rule.
fn said(finding: &Finding) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let near: Vec<String> = finding.nearest.iter().map(word).collect();
    let near = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
    format!("{}: {}{near} ({})", finding.field, finding.message, finding.rule)
}

impl Relief {
    /// What helps as findings of a plan file that leaves fields open: a change of one field stands at that field, with the
    /// value. `valid` is whether there is a plan, which does not fit.
    pub fn findings(&self, valid: bool) -> Vec<Finding> {
        let of = |said: &String| {
            let remedy = self.remedies.iter().find(|remedy| remedy.said == *said);
            let change = remedy.and_then(|remedy| match &remedy.changes[..] {
                // Modules are a list of their own in a plan file.
                [only] if only.field != MODULES => Some(only),
                _ => None,
            });
            let field = change.map_or("choose", |change| change.field.as_str());
            let finding = match valid {
                true => Finding::warning(field, Value::Null, format!("nothing fits; what would: {said}")),
                false => Finding::error(field, Value::Null, said.as_str()),
            };
            finding.nearest(change.map(|change| change.value.clone()))
        };
        self.suggestions.iter().map(of).collect()
    }
}

impl Pin {
    /// Field and value, such as `layout.tp 8`.
    pub fn in_words(&self) -> String {
        format!("{} {}", self.field, self.value_in_words())
    }

    /// The value as people write it.
    pub fn value_in_words(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned)
    }
}

impl Remedy {
    /// The plan file with the plan that works.
    pub fn apply(&self, file: &PlanFile) -> PlanFile {
        self.settings.apply(file)
    }

    /// The change as options of a command, such as `--fix layout.tp=4`.
    pub fn options(&self, option: &str) -> String {
        let one = |pin: &Pin| format!("{option} {}={}", pin.field, pin.value_in_words());
        self.changes.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

/// What fields are, once they are left open, such as `layout.tp left open would be 4`.
fn left_open(changes: &[Pin]) -> String {
    let one = |pin: &Pin| format!("{} left open would be {}", pin.field, pin.value_in_words());
    changes.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// Twos, fours and so on up to a number of nodes.
fn powers(nodes: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(2u64), |power| power.checked_mul(2)).take_while(move |power| *power <= nodes)
}

fn recompute(settings: &Settings) -> Pin {
    let field = match settings.recompute.granularity() {
        Granularity::Selective => MODULES,
        Granularity::None | Granularity::Full => "training.recompute.granularity",
    };
    Pin { field: field.to_owned(), value: settings.recompute.0.as_str().into() }
}

fn pin(slot: &Slot, settings: &Settings) -> Pin {
    Pin { field: slot.field.to_owned(), value: (slot.of)(settings).into() }
}

fn pins(settings: &[(&'static str, Value)]) -> Vec<Pin> {
    let mut pins: Vec<Pin> = Vec::new();
    for (field, value) in settings {
        // Two settings may need the same third.
        if pins.iter().all(|known| known.field != *field) {
            pins.push(Pin { field: (*field).to_owned(), value: value.clone() });
        }
    }
    pins
}

/// Puts settings into the axes that they are values of.
fn put(axes: &mut Axes, settings: &[(&'static str, Value)]) {
    for (field, value) in settings {
        match *field {
            "training.optimizer.distributed" => {
                axes.distributed_optimizer = value.as_bool().map(|on| vec![on])
            }
            "layout.fsdp.strategy" => {
                axes.fsdp_strategy = read_value(value.clone()).ok().map(|one| vec![one]);
            }
            field => {
                axes.settings.insert(field.to_owned(), vec![value.clone()]);
            }
        }
    }
}

/// Whether some plan of a request is valid. It stops at the first that is.
fn is_valid(mut request: Request) -> bool {
    request.limits = Limits { rows: 1, simulated: 1, ..request.limits };
    let Ok(search) = Search::new(&request) else { return false };
    let mut partial = Partial::default();
    let mut worker = search.worker();
    (0..search.parts()).any(|part| {
        worker.run(part, &mut partial);
        partial.valid > 0
    })
}
