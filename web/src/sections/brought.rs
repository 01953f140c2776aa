//! Cluster and training that a small model brings with it, and what becomes of them with the next model.

use planner::model::presets;
use planner::wire::{ClusterFile, PlanFile, TrainingFile};

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

/// The plan without what its model brought and nobody has changed since, which is again as in `before`. Where nothing else of cluster or
/// training was changed, the rest of it is as before, too.
pub fn given_back(plan: &PlanFile, before: &PlanFile) -> PlanFile {
    let mut back = plan.clone();
    let Some((cluster, training)) = brought(plan.model.preset.as_deref()) else { return back };
    let (now, old) = (&plan.cluster, &before.cluster);
    let (gpu, nodes, each) = (now.gpu.clone(), now.nodes, now.gpus_per_node);
    if (ClusterFile {
        gpu: cluster.gpu.clone(),
        nodes: cluster.nodes,
        gpus_per_node: cluster.gpus_per_node,
        ..now.clone()
    }) == cluster
    {
        back.cluster = old.clone();
    }
    back.cluster.gpu = if gpu == cluster.gpu { old.gpu.clone() } else { gpu };
    back.cluster.nodes = if nodes == cluster.nodes { old.nodes } else { nodes };
    back.cluster.gpus_per_node = if each == cluster.gpus_per_node { old.gpus_per_node } else { each };
    with_usual_nodes(old, &mut back.cluster);
    let (now, old) = (&plan.training, &before.training);
    let (length, batch) = (now.seq_len, now.global_batch_size);
    if (TrainingFile {
        seq_len: training.seq_len,
        global_batch_size: training.global_batch_size,
        ..now.clone()
    }) == training
    {
        back.training = old.clone();
    }
    back.training.seq_len = if length == training.seq_len { old.seq_len } else { length };
    back.training.global_batch_size =
        if batch == training.global_batch_size { old.global_batch_size } else { batch };
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
