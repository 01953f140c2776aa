//! What is trained: a preset, or a config.json that is pasted or dropped.

use gloo::file::Blob;
use leptos::ev::DragEvent;
use leptos::prelude::*;
use planner::finding::Finding;
use planner::model::{Architecture, Attention, presets, untrained_elements};
use planner::wire::ModelFile;
use wasm_bindgen::JsCast;

use super::Section;
use crate::fields::{FieldRow, Select};
use crate::findings::FindingList;
use crate::format;
use crate::state::intake::{self, Intake};
use crate::state::{start, store};
use crate::testid;
use crate::texts::{
    self,
    protocol::{Ask, Tell},
};

const PRESET: &str = "model.preset";
const PASTED: &str = "config.json";
const OWN: &str = "own architecture";

/// The section.
#[component]
pub fn ModelSection() -> impl IntoView {
    let store = store();
    let current = Signal::derive(move || {
        let plan = store.said();
        match &plan.model {
            ModelFile { preset: Some(preset), .. } => preset.clone(),
            ModelFile { hf_config: Some(_), .. } => PASTED.to_owned(),
            ModelFile { architecture: Some(_), .. } => OWN.to_owned(),
            _ => String::new(),
        }
    });
    let choose = move |id: String| {
        let Some(preset) = presets().iter().find(|preset| preset.id == id) else { return };
        store.edit(PRESET, |plan| {
            let of = |id: &Option<String>| presets().iter().find(|known| Some(&known.id) == id.as_ref());
            let before = of(&plan.model.preset).and_then(|known| known.plan.as_ref());
            plan.model = ModelFile { preset: Some(id), ..ModelFile::default() };
            if let Some(own) = &preset.plan {
                (plan.cluster, plan.training) = (own.cluster.clone(), own.training.clone());
            } else if before.is_some_and(|before| before.cluster.gpu == plan.cluster.gpu) {
                // What went with the model before goes with it.
                let usual = start::example();
                (plan.cluster, plan.training) = (usual.cluster, usual.training);
            }
        });
    };
    let options =
        presets().iter().map(|preset| (preset.id.clone(), preset.title.clone())).collect::<Vec<_>>();
    let summary = Signal::derive(move || {
        let id = current.get();
        let title =
            presets().iter().find(|preset| preset.id == id).map_or(id.clone(), |preset| preset.title.clone());
        let total = store.answer.with(|answer| answer.parameters.as_ref().map(|counts| counts.total));
        match total {
            Some(total) => format!("{title}, {} parameters", format::count(total)),
            None => title,
        }
    });
    view! {
        <Section id="model" title="Model" summary=summary shown=&[PRESET]>
            <FieldRow path=PRESET label="Preset">
                <Select path=PRESET hook=testid::PRESET_SELECT options=options current=current choose=Callback::new(choose)/>
            </FieldRow>
            <ConfigBox/>
            <WhatWasRead/>
        </Section>
    }
}

/// A box that takes text by pasting, typing, dropping a file or choosing one.
#[component]
fn ConfigBox() -> impl IntoView {
    let store = store();
    let text = RwSignal::new(String::new());
    let findings = RwSignal::new(Vec::<Finding>::new());
    let over = RwSignal::new(false);
    let reading = StoredValue::new_local(None::<gloo::file::callbacks::FileReader>);
    Effect::new(move |_| {
        store.generation.track();
        findings.set(Vec::new());
    });
    let compare = move |text: String| {
        let Some(config) = store.said_now().model.hf_config.clone() else {
            let message = "Read the model's config.json first, then its index or file of weights";
            findings.set(vec![Finding::error(intake::FIELD, "", message)]);
            return;
        };
        leptos::task::spawn_local(async move {
            findings.set(match texts::ask(&Ask::Weights(Box::new((config, text)))).await {
                Some(Tell::Weights(found)) => found,
                _ => vec![Finding::error(intake::FIELD, "", texts::ABSENT)],
            });
        });
    };
    let apply = move |text: &str| match intake::read(text) {
        Ok(Intake::Weights) => compare(text.to_owned()),
        Ok(Intake::Config(config)) => {
            store.replace(intake::with_config(&store.said_now(), config));
            let usable = store.answer.with_untracked(|answer| answer.parameters.is_some());
            store.say(if usable {
                "Model read from config.json"
            } else {
                "The config.json needs a change; see the findings"
            });
            findings.set(Vec::new());
        }
        Ok(Intake::Plan(plan)) => {
            store.replace(*plan);
            store.say("Plan opened");
            findings.set(Vec::new());
        }
        Ok(Intake::Calibration(calibration)) => {
            store.edit("software.calibration", |plan| plan.software.calibration = Some(calibration));
            store.say("The plan's seconds are calibrated by this profile");
            findings.set(Vec::new());
        }
        Err(found) => findings.set(found),
    };
    let open_file = move |file: web_sys::File| {
        let name = file.name();
        // Of weights only what they begin with is read, whatever their size.
        let weights = name.ends_with(".safetensors");
        if let (false, Err(finding)) = (weights, intake::check_size(file.size() as u64)) {
            findings.set(vec![finding]);
            return;
        }
        let start = file.slice_with_f64_and_f64(0.0, intake::MAX_BYTES as f64);
        let Some(blob) = start.ok().filter(|_| weights).or_else(|| Some(file.into())) else { return };
        let reader = gloo::file::callbacks::read_as_bytes(&Blob::from(blob), move |read| {
            match read.map(String::from_utf8) {
                Ok(Err(bytes)) if weights => compare(String::from_utf8_lossy(bytes.as_bytes()).into_owned()),
                Ok(Ok(content)) if weights => compare(content),
                Ok(Ok(content)) => {
                    apply(&content);
                    text.set(content);
                }
                Ok(Err(_)) => findings.set(vec![Finding::error(
                    intake::FIELD,
                    name.clone(),
                    format!("{} is not text; choose a config.json or a plan file", format::quoted(&name)),
                )]),
                Err(error) => findings.set(vec![Finding::error(
                    intake::FIELD,
                    name.clone(),
                    format!("{} could not be read: {error}", format::quoted(&name)),
                )]),
            }
        });
        reading.set_value(Some(reader));
    };
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        over.set(false);
        let Some(transfer) = event.data_transfer() else { return };
        match transfer.files().and_then(|files| files.get(0)) {
            Some(file) => open_file(file),
            None => {
                if let Ok(content) = transfer.get_data("text/plain") {
                    apply(&content);
                    text.set(content);
                }
            }
        }
    };
    // A text that would be refused for its size never reaches the box, which a browser would take minutes to lay out.
    let pasted = move |event: web_sys::ClipboardEvent| {
        let content = event.clipboard_data().and_then(|data| data.get_data("text/plain").ok());
        if let Some(Err(finding)) = content.map(|content| intake::check_size(content.len() as u64)) {
            event.prevent_default();
            findings.set(vec![finding]);
        }
    };
    let chosen = move |event: leptos::ev::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<web_sys::HtmlInputElement>().ok());
        if let Some(input) = input
            && let Some(file) = input.files().and_then(|files| files.get(0))
        {
            open_file(file);
            // The same file can be chosen again after it was changed.
            input.set_value("");
        }
    };
    view! {
        <div class="config" class:over=over
            on:dragover=move |event| { event.prevent_default(); over.set(true) }
            on:dragleave=move |_| over.set(false)
            on:drop=dropped>
            <label for="config-paste">"Or a Hugging Face config.json"</label>
            <textarea id="config-paste" data-testid=testid::CONFIG_PASTE rows="3" spellcheck="false" autocomplete="off"
                placeholder="Paste it here, or drop the file; then its safetensors index or file, to check it"
                prop:value=text on:paste=pasted on:input=move |event| text.set(event_target_value(&event))></textarea>
            <div class="row">
                <button data-testid=testid::CONFIG_APPLY on:click=move |_| text.with_untracked(|text| apply(text))>"Read"</button>
                <label class="button quiet">
                    "Choose a file..."
                    <input class="visually-hidden" type="file" accept=".json,.safetensors,application/json" data-testid=testid::CONFIG_FILE on:change=chosen/>
                </label>
            </div>
            <FindingList findings=findings/>
        </div>
    }
}

/// The architecture that planner understood, and what it had to assume.
#[component]
fn WhatWasRead() -> impl IntoView {
    let store = store();
    move || {
        let plan = store.resolved.get()?;
        let facts = facts(&plan.model)
            .into_iter()
            .map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> })
            .collect_view();
        let assumed: Vec<String> = store.answer.with(|answer| {
            let of_model = |path: &&String| path.starts_with("model.");
            answer
                .assumed
                .iter()
                .filter(of_model)
                .map(|path| path.rsplit('.').next().unwrap_or(path).to_owned())
                .collect()
        });
        Some(view! {
            <details class="facts">
                <summary>"What was read"</summary>
                <dl>{facts}</dl>
                {(!assumed.is_empty()).then(|| view! { <p class="note">"Assumed, as Hugging Face does "{assumed.join(", ")}</p> })}
            </details>
        })
    }
}

fn facts(model: &Architecture) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Layers", format::exact(model.num_layers)),
        ("Hidden size", format::exact(model.hidden_size)),
        ("MLP width", format::exact(model.ffn_hidden_size)),
        ("Vocabulary", format::exact(model.vocab_size)),
    ];
    match &model.attention {
        Attention::Gqa { heads, kv_heads, head_dim, .. } => {
            facts.push(("Attention", format!("{heads} heads of {head_dim}, {kv_heads} for keys and values")));
        }
        Attention::Mla { heads, kv_lora_rank, .. } => {
            facts.push(("Attention", format!("latent, {heads} heads, rank {kv_lora_rank}")));
        }
        Attention::Shared { heads, head_dim, .. } => {
            facts.push(("Attention", format!("{heads} heads of {head_dim}, one key for all of them")));
        }
    }
    let kinds = model.layer_kinds();
    let plain = kinds.iter().all(|(kind, _)| kind.mixer == Some(0));
    if kinds.len() > 1 || !plain {
        let each = kinds.iter().map(|(kind, layers)| format!("{layers} of {}", model.kind_in_words(*kind)));
        facts.push(("Kinds of layers", each.collect::<Vec<_>>().join(", ")));
    }
    if let Some(moe) = &model.moe {
        facts.push((
            "Experts",
            format!("{} of width {}, top {}", moe.experts, moe.ffn_hidden_size, moe.top_k),
        ));
        let untrained = untrained_elements(model);
        if untrained > 0 {
            facts.push(("Router biases, not trained by gradients", format::exact(untrained)));
        }
    }
    facts.push((
        "Output layer",
        if model.tied_embeddings { "tied to the embedding" } else { "its own" }.to_owned(),
    ));
    facts
}
