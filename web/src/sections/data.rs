//! What the worker begins with and trains on.

use leptos::prelude::*;
use planner::wire::{DataFile, DataPart, TokenType};

use crate::fields::{FieldRow, Number, Select, Toggle};
use crate::state::paths::{element_id, field};
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

/// A path that a person types.
#[component]
fn PathField(
    field: &'static str,
    label: &'static str,
    value: String,
    edit: Callback<String>,
) -> impl IntoView {
    let id = element_id(field);
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <div class="control">
                <input type="text" class="wide" id=id.clone() data-testid=id.clone() spellcheck="false" autocomplete="off"
                    value=value on:change=move |event| edit.run(event_target_value(&event))/>
            </div>
        </div>
    }
}

/// The weights that training begins with.
#[component]
pub fn WeightsField() -> impl IntoView {
    let store = store();
    let edit = Callback::new(move |folder: String| {
        let folder = Some(folder).filter(|folder| !folder.trim().is_empty());
        store.edit("run.weights", |plan| plan.run.weights = folder);
    });
    move || {
        let folder = store.said().run.weights.clone().unwrap_or_default();
        view! { <PathField field="run.weights" label="Weights: a Hugging Face folder, or made up" value=folder edit=edit/> }
    }
}

/// The data that is held out: a file of the kind that is trained on.
#[component]
pub fn HeldOutFields() -> impl IntoView {
    const PATH: &str = "run.evaluation.data";
    let store = store();
    let edit = Callback::new(move |path: String| {
        let data = match &store.said().run.data {
            _ if path.trim().is_empty() => None,
            Some(DataFile::Text { .. }) => Some(DataFile::Text { path }),
            Some(DataFile::Tokens { dtype, .. }) => Some(DataFile::Tokens { path, dtype: *dtype }),
            _ => Some(DataFile::Megatron { path }),
        };
        store.edit(PATH, |plan| plan.run.evaluation.data = data);
    });
    let said = Memo::new(move |_| store.said().run.evaluation.data.clone());
    let path = move || {
        let path = said.get().as_ref().and_then(path_of_data).unwrap_or_default();
        view! { <PathField field=PATH label="Held-out data: a file of the same kind, or none" value=path edit=edit/> }
    };
    let settings = move || {
        said.get().is_some().then(|| {
            view! {
                <Number field=field!(run.evaluation.every_steps) label="Evaluate every steps"/>
                <Number field=field!(run.evaluation.sequences) label="Sequences of an evaluation"/>
            }
        })
    };
    view! {
        {path}
        {settings}
    }
}

/// What becomes of documents that are packed into sequences.
#[component]
pub fn DocumentsFields() -> impl IntoView {
    let store = store();
    let own =
        Memo::new(move |_| store.said().run.data.as_ref().is_some_and(|data| *data != DataFile::Synthetic));
    move || {
        own.get().then(|| {
            view! {
                <Toggle field=field!(run.documents.reset_positions) label="Positions start again with a document"/>
                <Toggle field=field!(run.documents.reset_attention) label="Documents don't see each other"/>
                <Toggle field=field!(run.documents.mask_eod_loss) label="Ends of documents predict nothing"/>
                <Number field=field!(run.documents.eod_token) label="Token that ends a document"/>
            }
        })
    }
}

/// Where tokens come from.
#[component]
pub fn DataChoice() -> impl IntoView {
    const PATH: &str = "run.data";
    let store = store();
    let current =
        Signal::derive(move || store.said().run.data.as_ref().map_or("synthetic", kind_of_data).to_owned());
    let choose = move |kind: String| {
        let path = store.said().run.data.as_ref().and_then(path_of_data).unwrap_or_default();
        let data = match kind.as_str() {
            "text" => DataFile::Text { path },
            "tokens" => DataFile::Tokens { path, dtype: TokenType::default() },
            "megatron" => DataFile::Megatron { path },
            // What else it is of is written in the plan file.
            "blend" => {
                let data = store.said().run.data.clone().unwrap_or(DataFile::Synthetic);
                let is_one = matches!(data, DataFile::Blend { .. });
                if is_one { data } else { DataFile::Blend { parts: vec![DataPart { weight: 1.0, data }] } }
            }
            _ => DataFile::Synthetic,
        };
        store.edit(PATH, |plan| plan.run.data = Some(data));
    };
    let options = [
        ("synthetic", "synthetic"),
        ("text", "text file"),
        ("tokens", "file of tokens, two bytes each"),
        ("megatron", "Megatron's .bin and .idx"),
        ("blend", "a blend, written in the plan file"),
    ];
    let options = options.map(|(kind, text)| (kind.to_owned(), text.to_owned())).to_vec();
    let file = move || {
        let path = store.said().run.data.as_ref().and_then(path_of_data)?;
        let edit = Callback::new(move |path: String| {
            store.edit("run.data.path", |plan| {
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
        Some(
            view! { <PathField field="run.data.path" label="Path, as the ranks see it" value=path edit=edit/> },
        )
    };
    view! {
        <FieldRow path=PATH label="Data">
            <Select path=PATH hook=element_id(PATH) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
        {file}
    }
}
