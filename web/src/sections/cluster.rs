//! What it is trained on.

use leptos::prelude::*;
use planner::cluster::gpus;

use planner::wire::Part;

use super::Section;
use super::more::{CLUSTER, More};
use crate::fields::all;
use crate::state::store;

/// The section.
#[component]
pub fn ClusterSection() -> impl IntoView {
    let store = store();
    let summary = Signal::derive(move || {
        let filled = store.answer.with(|answer| answer.plan.as_ref().map(|plan| plan.cluster.clone()));
        let cluster = filled.unwrap_or_else(|| store.plan().cluster.clone());
        let title = gpus()
            .iter()
            .find(|gpu| gpu.id == cluster.gpu)
            .map_or(cluster.gpu.clone(), |gpu| gpu.title.to_owned());
        format!(
            "{} x {} {title}",
            cluster.nodes.unwrap_or_default(),
            cluster.gpus_per_node.unwrap_or_default()
        )
    });
    view! {
        <Section id="cluster" title="Cluster" summary=summary parts=&[&[Part::Cluster], CLUSTER.parts]>
            {all(&[Part::Cluster])}
            <More behind=CLUSTER/>
        </Section>
    }
}
