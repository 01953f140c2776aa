//! Settings that few plans need, behind a line that opens: a section stays short, and nothing is out of reach.

use leptos::prelude::*;
use planner::finding::Severity;
use planner::wire::{Part, Setting};

use crate::fields::all;
use crate::state::{Store, store};
use crate::testid;

/// A part of a section behind a line: its id, and the parts of the form in it.
pub struct Behind {
    id: &'static str,
    /// Parts of the form.
    pub parts: &'static [Part],
}

/// Of the cluster.
pub const CLUSTER: Behind = Behind { id: "cluster-more", parts: &[Part::Costs] };
/// Of the layout.
pub const LAYOUT: Behind =
    Behind { id: "layout-more", parts: &[Part::Stages, Part::Ranks, Part::ShardsMore] };
/// Of training.
pub const TRAINING: Behind = Behind {
    id: "training-more",
    parts: &[
        Part::LowPrecision,
        Part::OptimizerState,
        Part::Activations,
        Part::Overlap,
        Part::Experts,
        Part::Software,
    ],
};

/// The part in which a field is, if it is behind such a line.
pub fn more_of(path: &str) -> Option<&'static str> {
    let part = Setting::at_path(path)?.part;
    [CLUSTER, LAYOUT, TRAINING]
        .into_iter()
        .find(|behind| behind.parts.contains(&part))
        .map(|behind| behind.id)
}

/// The settings behind a line.
fn settings(parts: &'static [Part]) -> impl Iterator<Item = &'static Setting> {
    Setting::all().filter(|setting| parts.contains(&setting.part))
}

/// A line that opens. It says how many of its fields a plan sets, and opens itself for an error in one of them.
#[component]
pub fn More(
    /// What is behind it.
    behind: Behind,
) -> impl IntoView {
    let store = store();
    let Behind { id, parts } = behind;
    let wrong = Memo::new(move |_| {
        store.answer.with(|answer| {
            let mut errors = answer.findings.iter().filter(|finding| finding.severity == Severity::Error);
            errors.any(|finding| settings(parts).any(|setting| setting.path == finding.field))
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
    let set = move || match given(store, parts) {
        0 => String::new(),
        count => format!(", {count} set"),
    };
    view! {
        <details class="more" prop:open=open>
            <summary data-testid=testid::more(id) on:click=toggle>"More settings"{set}</summary>
            <div class="more-body">{all(parts)}</div>
        </details>
    }
}

/// How many of these fields the plan file gives.
fn given(store: Store, parts: &'static [Part]) -> usize {
    store.values.with(|values| {
        let said = |setting: &&Setting| {
            let place = setting.path.split('.').try_fold(&values.said, |place, key| place.get(key));
            place.is_some_and(|value| !value.is_null())
        };
        settings(parts).filter(said).count()
    })
}

#[cfg(test)]
mod tests {
    use super::super::{layout, training};
    use super::*;

    #[test]
    fn every_part_is_in_the_form_once() {
        let shown = [
            &[Part::Model, Part::Cluster][..],
            layout::ABOVE,
            training::ABOVE,
            training::BELOW,
            CLUSTER.parts,
            LAYOUT.parts,
            TRAINING.parts,
        ];
        for part in Part::ALL {
            let times = shown.iter().copied().flatten().filter(|shown| **shown == part).count();
            assert_eq!(times, usize::from(part != Part::Apart), "{part:?}");
        }
        assert_eq!(more_of("layout.tp"), None);
        assert_eq!(more_of("layout.order"), Some("layout-more"));
        assert_eq!(more_of("training.moe.dispatcher"), Some("training-more"));
        assert_eq!(more_of("nothing"), None);
    }
}
