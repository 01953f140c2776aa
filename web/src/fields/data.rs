//! What the worker trains on, and what it holds out.

use leptos::prelude::*;
use planner::wire::{DataFile, DataPart, Setting, TokenType};

use super::choice::Select;
use super::entry::TextRow;
use super::{FieldRow, hint};
use crate::state::paths;
use crate::state::store;

/// The word for a kind of data in a plan file.
fn kind_of_data(data: &DataFile) -> &'static str {
    match data {
        DataFile::Synthetic => "synthetic",
        DataFile::Text { .. } => "text",
        DataFile::Tokens { .. } => "tokens",
        DataFile::Megatron { .. } => "megatron",
        DataFile::Blend { .. } => "blend",
    }
}

/// The one path of data that has one.
fn path_of_data(data: &DataFile) -> Option<String> {
    match data {
        DataFile::Text { path } | DataFile::Tokens { path, .. } | DataFile::Megatron { path } => {
            Some(path.clone())
        }
        DataFile::Synthetic | DataFile::Blend { .. } => None,
    }
}

/// The data that is held out: a file of the kind that is trained on.
#[component]
pub fn HeldOut(setting: &'static Setting) -> impl IntoView {
    let store = store();
    let field = setting.path;
    let edit = Callback::new(move |path: String| {
        let data = match &store.said_now().run.data {
            _ if path.trim().is_empty() => None,
            Some(DataFile::Text { .. }) => Some(DataFile::Text { path }),
            Some(DataFile::Tokens { dtype, .. }) => Some(DataFile::Tokens { path, dtype: *dtype }),
            _ => Some(DataFile::Megatron { path }),
        };
        store.edit(field, |plan| plan.run.evaluation.data = data);
    });
    let text = Signal::derive(move || {
        store.said().run.evaluation.data.as_ref().and_then(path_of_data).unwrap_or_default()
    });
    view! { <TextRow path=field label=setting.label hint=hint(setting) text=text typed=edit/> }
}

/// Where tokens come from.
#[component]
pub fn DataChoice(setting: &'static Setting) -> impl IntoView {
    const FILE: &str = "run.data.path";
    let store = store();
    let field = setting.path;
    let current =
        Signal::derive(move || store.said().run.data.as_ref().map_or("synthetic", kind_of_data).to_owned());
    let choose = move |kind: String| {
        let path = store.said_now().run.data.as_ref().and_then(path_of_data).unwrap_or_default();
        let data = match kind.as_str() {
            "text" => DataFile::Text { path },
            "tokens" => DataFile::Tokens { path, dtype: TokenType::default() },
            "megatron" => DataFile::Megatron { path },
            // What else it is of is written in the plan file.
            "blend" => {
                let data = store.said_now().run.data.clone().unwrap_or(DataFile::Synthetic);
                let is_one = matches!(data, DataFile::Blend { .. });
                if is_one { data } else { DataFile::Blend { parts: vec![DataPart { weight: 1.0, data }] } }
            }
            _ => DataFile::Synthetic,
        };
        store.edit(field, |plan| plan.run.data = Some(data));
    };
    let options = [
        ("synthetic", "synthetic"),
        ("text", "text file"),
        ("tokens", "file of tokens, two bytes each"),
        ("megatron", "Megatron's .bin and .idx"),
        ("blend", "a blend, written in the plan file"),
    ];
    let options = options.map(|(kind, text)| (kind.to_owned(), text.to_owned())).to_vec();
    let path =
        Signal::derive(move || store.said().run.data.as_ref().and_then(path_of_data).unwrap_or_default());
    let has_path =
        Memo::new(move |_| store.said().run.data.as_ref().is_some_and(|data| path_of_data(data).is_some()));
    let edit = Callback::new(move |path: String| {
        store.edit(FILE, |plan| {
            if let Some(
                DataFile::Text { path: own }
                | DataFile::Tokens { path: own, .. }
                | DataFile::Megatron { path: own },
            ) = &mut plan.run.data
            {
                *own = path;
            }
        });
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
