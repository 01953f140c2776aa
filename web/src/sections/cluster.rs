//! What it is trained on.

use leptos::prelude::*;
use planner::cluster::gpus;

use super::Section;
use crate::fields::{Decimal, FieldRow, Number, Select};
use crate::state::paths::field;
use crate::state::store;
use crate::testid;

const GPU: &str = "cluster.gpu";

/// The section.
#[component]
pub fn ClusterSection() -> impl IntoView {
    let store = store();
    let current = Signal::derive(move || store.said().cluster.gpu.clone());
    let choose = move |id: String| store.edit(GPU, |plan| plan.cluster.gpu = id);
    let options = gpus().iter().map(|gpu| (gpu.id.to_owned(), gpu.title.to_owned())).collect::<Vec<_>>();
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
        <Section id="cluster" title="Cluster" summary=summary
            shown=&[GPU, "cluster.nodes", "cluster.gpus_per_node", "cluster.nvlink_domain", "cluster.nic_gbps", "cluster.oversubscription"]>
            <FieldRow path=GPU label="GPU">
                <Select path=GPU hook=testid::field(GPU) options=options current=current choose=Callback::new(choose)/>
            </FieldRow>
            <Number field=field!(cluster.nodes) label="Nodes" steps=true/>
            <Number field=field!(cluster.gpus_per_node) label="GPUs per node" steps=true/>
            <Number field=field!(cluster.nvlink_domain) label="NVLink domain" hint="GPUs joined by NVLink"/>
            <Decimal field=field!(cluster.nic_gbps) label="Network per GPU, Gb/s"/>
            <Decimal field=field!(cluster.oversubscription) label="Oversubscription" hint="Network below a leaf switch over what leads on"/>
        </Section>
    }
}
