//! The curves of a run as a table, latest step first.

use leptos::prelude::*;
use planner::run::StepPoint;

use super::curves::drawn;
use crate::format;
use crate::hub::hub;
use crate::testid;
use crate::views::pager::{Pager, rows_of_page};

/// Rows on screen.
const PAGE: usize = 50;

/// The table.
#[component]
pub fn StepsTable() -> impl IntoView {
    let hub = hub();
    let page = RwSignal::new(0usize);
    let count = Memo::new(move |_| hub.record.with(|known| known.steps.len()));
    let rows = move || {
        let shown = rows_of_page(page.get(), count.get(), PAGE);
        hub.record.with(|known| {
            let latest = known.steps.iter().rev().skip(shown.start).take(shown.len());
            latest.map(|(step, point)| row(*step, point)).collect_view()
        })
    };
    view! {
        <Pager page=page rows=count size=PAGE what="steps"/>
        <div class="table-box tall" tabindex="0" role="region" aria-label="Steps of the run">
            <table data-testid=testid::CURVES_TABLE>
                <caption>"Steps, the latest first"</caption>
                <thead><tr>
                    <th scope="col">"Step"</th>{drawn().map(|(_, figure)| view! { <th scope="col">{figure.quantity}</th> }).collect_view()}
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

fn row(step: u64, point: &StepPoint) -> impl IntoView + use<> {
    view! {
        <tr>
            <th scope="row">{format::exact(step)}</th>
            {drawn().map(|(place, figure)| view! { <td>{format::figure_of_table(figure.shown, point.values[place])}</td> }).collect_view()}
        </tr>
    }
}
