//! Cluster and training that a small model brings with it, and what becomes of them with the next model.

use planner::model::presets;
use planner::wire::{ClusterFile, PlanFile, TrainingFile};
use serde_json::Value;

use crate::state::with_usual_nodes;

/// What a preset brings; none of a model that suits any cluster.
pub fn brought(preset: Option<&str>) -> Option<(ClusterFile, TrainingFile)> {
    let own = presets().iter().find(|known| Some(known.id.as_str()) == preset)?.plan.as_ref()?;
    let cluster = ClusterFile {
        gpu: own.gpu.clone(),
        nodes: Some(own.nodes),
        gpus_per_node: Some(own.gpus_per_node),
        ..ClusterFile::default()
    };
    let training = TrainingFile {
        seq_len: Some(own.seq_len),
        global_batch_size: Some(own.global_batch_size),
        ..TrainingFile::default()
    };
    Some((cluster, training))
}

/// The plan without what its model brought and nobody has changed since: field by field that is again as in `before`.
pub fn given_back(plan: &PlanFile, before: &PlanFile) -> PlanFile {
    let Some((cluster, training)) = brought(plan.model.preset.as_deref()) else { return plan.clone() };
    let own = PlanFile { cluster, training, ..PlanFile::default() };
    let [mut now, own, old] = [plan, &own, before].map(|file| serde_json::to_value(file).unwrap_or_default());
    for part in ["cluster", "training"] {
        let names =
            [&now, &old].into_iter().filter_map(|file| file[part].as_object()).flat_map(|of| of.keys());
        for name in names.cloned().collect::<Vec<_>>() {
            // What is not written is null, on either side.
            if now[part].get(&name).unwrap_or(&Value::Null) == &own[part][&name] {
                now[part][&name] = old[part][&name].clone();
            }
        }
    }
    let mut back = PlanFile::read(now).unwrap_or_else(|_| plan.clone());
    with_usual_nodes(&before.cluster, &mut back.cluster);
    back
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::start::example;

    /// The example with a model that brings cluster and training.
    fn tiny() -> PlanFile {
        let (cluster, training) = brought(Some("tiny-dense")).unwrap();
        let mut plan = PlanFile { cluster, training, ..example() };
        plan.model.preset = Some("tiny-dense".to_owned());
        plan
    }

    #[test]
    fn what_nobody_changed_goes_with_the_model_and_what_was_changed_stays() {
        let mut before = example();
        before.cluster.nic_gbps = Some(200.0);
        before.training.seq_len = Some(8192);
        let back = given_back(&tiny(), &before);
        assert_eq!((back.cluster, back.training), (before.cluster.clone(), before.training.clone()));

        let mut other = tiny();
        other.cluster.gpu = "gb200-nvl72".to_owned();
        other.training.seq_len = Some(512);
        let back = given_back(&other, &before);
        assert_eq!((back.cluster.gpu.as_str(), back.cluster.nodes), ("gb200-nvl72", Some(8)));
        let usual = planner::fill::usual_node("gb200-nvl72");
        assert_eq!(back.cluster.gpus_per_node, Some(usual));
        assert_eq!((back.training.seq_len, back.training.global_batch_size), (Some(512), None));
    }

    #[test]
    fn a_model_that_brings_nothing_takes_nothing_away() {
        let mut plan = example();
        plan.cluster.nodes = Some(3);
        assert_eq!(given_back(&plan, &example()), plan);
    }
}
