//! The flat buffers in which the slices lie. What they take is what the memory view sums.

use std::sync::Arc;

use leptos::prelude::*;
use planner::shard::{BufferShard, ParamShard, RankShards};

use super::parts::group_name;
use crate::format;

/// Elements of a buffer that hold no slice, with a sign: less than nothing would be an error.
fn padding(shards: &RankShards, number: usize, buffer: &BufferShard) -> String {
    let held: u64 =
        shards.params.iter().filter(|param| param.buffer == number).map(ParamShard::elements).sum();
    match buffer.elements.checked_sub(held) {
        Some(rest) => format::exact(rest),
        None => format!("-{}", format::exact(held - buffer.elements)),
    }
}

/// The table.
#[component]
pub fn Buffers(shards: Memo<Option<Arc<RankShards>>>) -> impl IntoView {
    let rows = move || {
        shards.get().map(|shards| {
            let split = shards.buffers.iter().any(|buffer| buffer.expert);
            let row = |(number, buffer): (usize, &BufferShard)| {
                let what = match buffer.expert {
                    true => "routed experts",
                    false if split => "all but routed experts",
                    false => "all parameters",
                };
                view! {
                    <tr>
                        <th scope="row">{number}</th>
                        <td class="word">{what}</td>
                        <td class="word">{group_name(buffer.group)}</td>
                        <td>{format::exact(buffer.elements)}</td>
                        <td>{padding(&shards, number, buffer)}</td>
                        <td>{format::exact(buffer.state_elements())}</td>
                        <td>{format::exact(buffer.weights_bytes())}</td>
                        <td>{format::exact(buffer.gradients_bytes())}</td>
                        <td>{format::exact(buffer.optimizer_bytes())}</td>
                        <td>{format::exact(buffer.host_bytes())}</td>
                    </tr>
                }
            };
            shards.buffers.iter().enumerate().map(row).collect_view()
        })
    };
    let total = move |read: fn(&BufferShard) -> u64| {
        move || {
            shards.with(|shards| {
                let buffers = shards.as_ref().map(|shards| shards.buffers.as_slice()).unwrap_or_default();
                format::exact(buffers.iter().map(read).sum())
            })
        }
    };
    view! {
        <div class="table-box" tabindex="0" role="region" aria-label="Buffers of the rank">
            <table class="buffers">
                <caption>"Buffers, in bytes of weights, gradients and optimizer state on the GPU, and of all three on the host"</caption>
                <thead><tr>
                    <th scope="col">"Buffer"</th><th scope="col" class="word">"Holds"</th><th scope="col" class="word">"Reduced over"</th>
                    <th scope="col">"Elements"</th><th scope="col">"Padding"</th><th scope="col">"State elements"</th>
                    <th scope="col">"Weights"</th><th scope="col">"Gradients"</th><th scope="col">"Optimizer"</th>
                    <th scope="col">"On the host"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
                <tfoot><tr>
                    <th scope="row" colspan="3">"All"</th>
                    <td>{total(|buffer| buffer.elements)}</td><td></td><td>{total(BufferShard::state_elements)}</td>
                    <td>{total(BufferShard::weights_bytes)}</td><td>{total(BufferShard::gradients_bytes)}</td>
                    <td>{total(BufferShard::optimizer_bytes)}</td><td>{total(BufferShard::host_bytes)}</td>
                </tr></tfoot>
            </table>
        </div>
    }
}
