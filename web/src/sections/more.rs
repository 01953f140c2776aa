//! Settings that few plans need, behind a line that opens: a section stays short, and nothing is out of reach.

use leptos::prelude::*;
use planner::finding::Severity;
use planner::wire::PlanFile;

use super::{fsdp, training_more};
use crate::state::{Store, store};
use crate::testid;

/// The part in which a field is, if it is behind such a line.
pub fn more_of(path: &str) -> Option<&'static str> {
    let parts = [(fsdp::MORE, fsdp::FIELDS), (training_more::MORE, training_more::FIELDS)];
    parts.into_iter().find(|(_, fields)| fields.contains(&path)).map(|(id, _)| id)
}

/// A line that opens. It says how many of its fields a plan sets, and opens itself for an error in one of them.
#[component]
pub fn More(
    /// Id of the part.
    id: &'static str,
    /// Paths of its fields.
    fields: &'static [&'static str],
    /// The fields.
    children: Children,
) -> impl IntoView {
    let store = store();
    let wrong = Memo::new(move |_| {
        store.answer.with(|answer| {
            let mut errors = answer.findings.iter().filter(|finding| finding.severity == Severity::Error);
            errors.any(|finding| fields.contains(&finding.field.as_str()))
        })
    });
    let wanted = move || store.open_sections.with(|open| open.contains(&id));
    let open = move || wanted() || wrong.get();
    let toggle = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        store.open_sections.update(|open| match open.iter().position(|part| *part == id) {
            Some(place) => {
                open.remove(place);
            }
            None => open.push(id),
        });
    };
    let set = move || match given(store, fields) {
        0 => String::new(),
        count => format!(", {count} set"),
    };
    view! {
        <details class="more" prop:open=open>
            <summary data-testid=testid::more(id) on:click=toggle>"More settings"{set}</summary>
            <div class="more-body">{children()}</div>
        </details>
    }
}

/// How many of these fields the plan file gives.
fn given(store: Store, fields: &[&str]) -> usize {
    let file = serde_json::to_value::<&PlanFile>(&store.said()).unwrap_or_default();
    let at = |path: &&&str| {
        let place = path.split('.').try_fold(&file, |place, key| place.get(key));
        place.is_some_and(|value| !value.is_null())
    };
    fields.iter().filter(at).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::paths::with_value;
    use serde_json::json;

    #[test]
    fn every_field_behind_a_line_is_one_of_the_plan_file() {
        let file = PlanFile { version: 1, ..PlanFile::default() };
        for path in fsdp::FIELDS.iter().chain(training_more::FIELDS) {
            let fits = [json!(true), json!(1), json!("fp32"), json!([])];
            let words = ["auto", "none", "native", "local", "flex", "deepep"].map(serde_json::Value::from);
            let taken = fits.iter().chain(&words).any(|value| with_value(&file, path, value).is_ok());
            assert!(taken, "{path}");
            assert!(more_of(path).is_some());
        }
        assert_eq!(more_of("layout.tp"), None);
    }
}
