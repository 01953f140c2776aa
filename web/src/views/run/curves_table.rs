//! The curves of a run as a table, latest step first.

use leptos::prelude::*;

use crate::format;
use crate::hub::{StepPoint, hub};
use crate::testid;
use crate::views::pager::{Pager, rows_of_page};

/// Rows on screen.
const PAGE: usize = 50;

/// The table.
#[component]
pub fn StepsTable() -> impl IntoView {
    let hub = hub();
    let page = RwSignal::new(0usize);
    let count = Memo::new(move |_| hub.book.with(|book| book.steps.len()));
    let rows = move || {
        let shown = rows_of_page(page.get(), count.get(), PAGE);
        hub.book.with(|book| {
            let latest = book.steps.iter().rev().skip(shown.start).take(shown.len());
            latest.map(|(step, point)| row(*step, point)).collect_view()
        })
    };
    view! {
        <Pager page=page rows=count size=PAGE what="steps"/>
        <div class="table-box tall" tabindex="0" role="region" aria-label="Steps of the run">
            <table data-testid=testid::CURVES_TABLE>
                <caption>"Steps, the latest first"</caption>
                <thead><tr>
                    <th scope="col">"Step"</th><th scope="col">"Loss"</th><th scope="col">"Seconds"</th><th scope="col">"Tokens per second"</th>
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
            <td>{format!("{:.6}", point.loss)}</td>
            <td>{format!("{:.4}", point.seconds)}</td>
            <td>{format::three(point.tokens_per_second)}</td>
        </tr>
    }
}
