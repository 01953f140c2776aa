//! What the worker trains on, and what it holds out.

use leptos::prelude::*;
use planner::wire::{DataFile, Setting};

use super::choice::Select;
use super::entry::TextRow;
use super::{FieldRow, hint};
use crate::state::paths;
use crate::state::store;

/// The path of data.
fn path_of(data: Option<&DataFile>) -> String {
    data.and_then(DataFile::path).unwrap_or_default().to_owned()
}

/// The data that is held out: a file of the kind that is trained on.
#[component]
pub fn HeldOut(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let field = setting.path;
    let edit = Callback::new(move |path: String| {
        let trained_on = store.said_now().run.data.clone().filter(|data| data.path().is_some());
        let kind = trained_on.unwrap_or_else(|| DataFile::Megatron { path: String::new() });
        let data = (!path.trim().is_empty()).then(|| kind.at(path));
        store.edit(field, |plan| plan.run.evaluation.data = data);
    });
    let text = Signal::derive(move || path_of(store.said().run.evaluation.data.as_ref()));
    view! { <TextRow path=field label=setting.label hint=hint(setting) text=text typed=edit/> }
}

/// Where tokens come from.
#[component]
pub fn DataChoice(setting: &'static Setting) -> impl IntoView {
    const FILE: &str = "run.data.path";
    let store = store();
    let field = setting.path;
    let current = Signal::derive(move || {
        let said = store.said();
        let kind = said.run.data.as_ref().map_or(DataFile::Synthetic.kind(), DataFile::kind);
        kind.to_owned()
    });
    let choose = move |kind: String| {
        let data = store.said_now().run.data.clone().unwrap_or(DataFile::Synthetic);
        store.edit(field, |plan| plan.run.data = Some(data.of_kind(&kind)));
    };
    let options =
        DataFile::KINDS.iter().map(|(kind, text)| ((*kind).to_owned(), (*text).to_owned())).collect();
    let path = Signal::derive(move || path_of(store.said().run.data.as_ref()));
    let has_path =
        Memo::new(move |_| store.said().run.data.as_ref().is_some_and(|data| data.path().is_some()));
    let edit = Callback::new(move |path: String| {
        store.edit(FILE, |plan| plan.run.data = plan.run.data.take().map(|data| data.at(path)));
    });
    view! {
        <FieldRow path=field label=setting.label hint=hint(setting)>
            <Select path=field hook=paths::element_id(field) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
        {move || has_path.get().then(|| view! {
            <TextRow path=FILE label="Path, as the ranks see it" hint=FILE text=path typed=edit/>
        })}
    }
}
