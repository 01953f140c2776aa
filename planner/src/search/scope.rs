//! What a search may choose and what it takes as it is, by name and value.

use serde::Serialize;
use serde_json::Value;

use super::Search;
use super::answer::Pin;
use super::request::{AxisValues, RecomputeWords};
use super::space::Subspace;
use crate::json::by_field::by_field;

/// Axes that are free, and what is held.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Scope {
    /// Names of the axes with more than one value, with the values where they are few or bounded.
    pub free: Vec<String>,
    /// Fields that all plans of the search have with these values.
    pub held: Vec<Pin>,
}

by_field! { open Scope { free, held; } }

impl Scope {
    /// Both in two sentences.
    pub fn in_words(&self) -> String {
        let held: Vec<String> = self.held.iter().map(Pin::in_words).collect();
        let free = if self.free.is_empty() { "nothing".to_owned() } else { self.free.join(", ") };
        format!("free: {free}; held: {}", held.join(", "))
    }
}

/// A list of values of an axis: its name, its field, how the values are written.
type List = (&'static str, &'static str, Option<Vec<String>>);

/// A field that is a number, and how a subspace has it.
type Count = (&'static str, fn(&Subspace) -> u64);

impl Search {
    /// What is free, and what is held.
    pub(super) fn scope(&self) -> Scope {
        let mut scope = Scope::default();
        let Some(subspace) = self.space.subspaces.first() else { return scope };
        self.numbers(subspace, &mut scope);
        self.names(subspace, &mut scope);
        let of: [Count; 2] = [
            ("training.global_batch_size", |subspace| subspace.plan.training.global_batch_size),
            ("training.seq_len", |subspace| subspace.plan.training.seq_len),
        ];
        for (field, of) in of {
            // A batch that nobody said is assumed for each number of nodes.
            if self.space.subspaces.iter().all(|other| of(other) == of(subspace)) {
                scope.held.push(Pin { field: field.to_owned(), value: of(subspace).into() });
            }
        }
        scope
    }

    fn numbers(&self, subspace: &Subspace, scope: &mut Scope) {
        let axes = &self.request.axes;
        let experts = subspace.plan.model.moe.is_some();
        let fsdp = subspace.plan.runtime.facts().shards_parameters;
        let nodes = axes.nodes.clone().unwrap_or(AxisValues::Fixed(subspace.plan.cluster.nodes));
        let numbers = [
            ("layout.tp", axes.tp.as_ref(), true),
            ("layout.cp", axes.cp.as_ref(), true),
            ("layout.pp", axes.pp.as_ref(), true),
            ("layout.vpp", axes.vpp.as_ref(), true),
            ("layout.ep", axes.ep.as_ref(), experts),
            ("layout.etp", axes.etp.as_ref(), experts),
            ("layout.dp_replicate", axes.dp_replicate.as_ref(), fsdp),
            ("training.micro_batch_size", axes.micro_batch_size.as_ref(), true),
            ("cluster.nodes", Some(&nodes), true),
        ];
        for (field, axis, _) in numbers.into_iter().filter(|(.., means)| *means) {
            let name = field.rsplit('.').next().unwrap_or(field);
            match axis {
                None => scope.free.push(name.to_owned()),
                Some(AxisValues::Fixed(value)) => {
                    scope.held.push(Pin { field: field.to_owned(), value: (*value).into() });
                }
                Some(AxisValues::Values(values)) => {
                    let values: Vec<String> = values.iter().map(u64::to_string).collect();
                    scope.free.push(format!("{name} ({})", values.join(", ")));
                }
                Some(AxisValues::Bounds(bounds)) => scope.free.push(match bounds.max {
                    u64::MAX => format!("{name} ({} or more)", bounds.min),
                    most => format!("{name} ({} to {most})", bounds.min),
                }),
            }
        }
    }

    fn names(&self, subspace: &Subspace, scope: &mut Scope) {
        let (axes, plan) = (&self.request.axes, &subspace.plan);
        let fsdp = plan.runtime.facts().shards_parameters;
        let words = |words: Vec<&str>| Some(words.into_iter().map(str::to_owned).collect::<Vec<String>>());
        let flags = |flags: &Vec<bool>| flags.iter().map(bool::to_string).collect::<Vec<String>>();
        let one = |word: &str| Some(vec![word.to_owned()]);
        let lists: [List; 9] = [
            (
                "schedule",
                "layout.schedule",
                axes.schedule.as_ref().and_then(|all| words(all.iter().map(|one| one.name()).collect())),
            ),
            (
                "recompute",
                "training.recompute",
                axes.recompute
                    .as_ref()
                    .map(|all| all.iter().map(|RecomputeWords(name)| name.clone()).collect()),
            ),
            (
                "stages",
                "layout.pipeline_layout",
                (axes.own_stages || axes.uneven_stages == Some(false))
                    .then(|| vec![if axes.own_stages { "as in the plan" } else { "even" }.to_owned()]),
            ),
            ("sp", "layout.sp", axes.sp.as_ref().map(flags)),
            (
                "distributed_optimizer",
                "training.optimizer.distributed",
                axes.distributed_optimizer
                    .as_ref()
                    .map(flags)
                    .or_else(|| one(&plan.training.optimizer.distributed.to_string())),
            ),
            (
                "fsdp_strategy",
                "layout.fsdp.strategy",
                axes.fsdp_strategy
                    .as_ref()
                    .and_then(|all| words(all.iter().map(|one| one.name()).collect()))
                    .or_else(|| one("as in the plan")),
            ),
            (
                "precision",
                "training.dtype",
                axes.precision
                    .as_ref()
                    .and_then(|all| words(all.iter().map(|one| one.name()).collect()))
                    .or_else(|| one(subspace.precision.name())),
            ),
            (
                "runtime",
                "runtime",
                axes.runtime
                    .as_ref()
                    .and_then(|all| words(all.iter().map(|one| one.name()).collect()))
                    .or_else(|| one(plan.runtime.name())),
            ),
            ("gpu", "cluster.gpu", axes.gpu.clone().or_else(|| one(plan.cluster.gpu.id))),
        ];
        let means = |name: &str| match name {
            // Sequence parallelism follows tensor parallelism unless somebody says otherwise.
            "sp" => axes.sp.is_some(),
            "fsdp_strategy" => fsdp,
            "distributed_optimizer" => !fsdp,
            _ => true,
        };
        for (name, field, values) in lists.into_iter().filter(|(name, ..)| means(name)) {
            match values.as_deref() {
                None => scope.free.push(name.to_owned()),
                Some([only]) => {
                    scope.held.push(Pin { field: field.to_owned(), value: only.as_str().into() });
                }
                Some(several) => scope.free.push(format!("{name} ({})", several.join(", "))),
            }
        }
        for (field, values) in &axes.settings {
            match &values[..] {
                [only] => scope.held.push(Pin { field: field.clone(), value: only.clone() }),
                several => {
                    let word =
                        |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let words: Vec<String> = several.iter().map(word).collect();
                    scope.free.push(format!("{field} ({})", words.join(", ")));
                }
            }
        }
    }
}
