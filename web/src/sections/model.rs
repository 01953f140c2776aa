//! What is trained: a preset, or a config.json that is pasted or dropped.

use std::sync::Arc;

use leptos::prelude::*;
use planner::finding::{Finding, Severity};
use planner::model::{Architecture, Attention, presets, untrained_elements};
use planner::wire::{Answer, ModelFile, Part, PlanFile};
use web_sys::FileList;

use super::Section;
use super::brought::{brought, given_back};
use crate::browser::slice;
use crate::fields::{FieldRow, Select, all};
use crate::findings::FindingList;
use crate::format;
use crate::kit::{DropZone, FileButton};
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

/// What somebody had before a model brought a cluster and a training of its own: a model for GPUs brings it back.
type BeforeOwn = StoredValue<Option<Arc<PlanFile>>>;

/// The plan as another model finds it.
fn without_own(plan: &PlanFile, before: BeforeOwn) -> PlanFile {
    given_back(plan, &before.with_value(|before| before.as_deref().cloned()).unwrap_or_else(start::example))
}

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
    let before_own = BeforeOwn::new(None);
    let choose = move |id: String| {
        store.edit(PRESET, |plan| {
            let rest = without_own(plan, before_own);
            let own = brought(Some(&id));
            plan.model = ModelFile { preset: Some(id), ..ModelFile::default() };
            (plan.cluster, plan.training) = match own {
                Some(own) => {
                    before_own.set_value(Some(Arc::new(rest)));
                    store.notify("Cluster and training are this model's now; undo brings yours back");
                    own
                }
                None => (rest.cluster, rest.training),
            };
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
        <Section id="model" title="Model" summary=summary parts=&[&[Part::Model]] besides=&[PRESET]>
            <FieldRow path=PRESET label="Preset">
                <Select path=PRESET hook=testid::PRESET_SELECT options=options current=current choose=Callback::new(choose)/>
            </FieldRow>
            {all(&[Part::Model])}
            <ConfigBox before_own=before_own/>
            <WhatWasRead/>
        </Section>
    }
}

/// A box that takes text by pasting, typing, dropping a file or choosing one.
#[component]
fn ConfigBox(before_own: BeforeOwn) -> impl IntoView {
    let store = store();
    let text = RwSignal::new(String::new());
    let findings = RwSignal::new(Vec::<Finding>::new());
    Effect::new(move |_| {
        store.generation.track();
        findings.set(Vec::new());
    });
    let compare = move |text: String| async move {
        let said = store.said_now().model.clone();
        let preset = presets().iter().find(|preset| said.preset.as_ref() == Some(&preset.id));
        let Some(config) = said.hf_config.or_else(|| preset?.hf_config.clone()) else {
            let message = "Read the model's config.json first, then its index or file of weights";
            findings.set(vec![Finding::error(intake::FIELD, "", message)]);
            return;
        };
        findings.set(match texts::ask(&Ask::Weights(Box::new((config, text)))).await {
            Some(Tell::Weights(found)) => found,
            _ => vec![Finding::error(intake::FIELD, "", texts::ABSENT)],
        });
    };
    let apply = move |text: String| async move {
        match intake::read(&text) {
            Ok(Intake::Weights) => compare(text).await,
            Ok(Intake::Config(config)) => {
                store.replace(intake::with_config(&without_own(&store.said_now(), before_own), config));
                let usable = store.answer.with_untracked(|answer| answer.parameters.is_some());
                store.notify(if usable {
                    "Model read from config.json"
                } else {
                    "The config.json needs a change; see the findings"
                });
                findings.set(Vec::new());
            }
            Ok(Intake::Plan(plan)) => {
                store.replace(*plan);
                store.notify("Plan opened");
                findings.set(Vec::new());
            }
            Ok(Intake::Calibration(calibration)) => {
                store.edit("software.calibration", |plan| plan.software.calibration = Some(calibration));
                let is_used = |answer: &Arc<Answer>| {
                    answer.time.as_ref().is_some_and(|time| time.calibration.is_some())
                };
                store.notify(match store.answer.with_untracked(is_used) {
                    true => "The plan's seconds are calibrated by this profile",
                    false => "The profile is in the plan and changes nothing there; the findings say why",
                });
                findings.set(Vec::new());
            }
            Err(found) => findings.set(found),
        }
    };
    // Of several files the config.json is read first: the others are held against it.
    let open_files = move |files: FileList| {
        let mut files: Vec<web_sys::File> = (0..files.length()).filter_map(|file| files.get(file)).collect();
        planner::order::sort_by_key(&mut files, |file| order(&file.name()));
        leptos::task::spawn_local(async move {
            for file in files {
                let name = file.name();
                // Of weights only what they begin with is read, whatever their size.
                let weights = name.ends_with(".safetensors");
                let size = if weights { intake::MAX_BYTES } else { file.size() as u64 };
                if let Err(finding) = intake::check_size(size) {
                    return findings.set(vec![finding]);
                }
                let refused = |message: String| {
                    findings.set(vec![Finding::error(intake::FIELD, name.clone(), message)]);
                };
                let Some(bytes) = slice(&file, 0.0, size as f64).await else {
                    return refused(format!("{} could not be read; choose it again", format::quoted(&name)));
                };
                match String::from_utf8(bytes) {
                    Ok(content) if weights => compare(content).await,
                    Err(error) if weights => {
                        compare(String::from_utf8_lossy(error.as_bytes()).into_owned()).await;
                    }
                    Ok(content) => {
                        text.set(content.clone());
                        apply(content).await;
                    }
                    Err(_) => {
                        let name = format::quoted(&name);
                        return refused(format!("{name} is not text; choose a config.json or a plan file"));
                    }
                }
                if findings
                    .with_untracked(|found| found.iter().any(|finding| finding.severity == Severity::Error))
                {
                    return;
                }
            }
        });
    };
    let files = Callback::new(open_files);
    let dropped = Callback::new(move |content: String| {
        text.set(content.clone());
        leptos::task::spawn_local(apply(content));
    });
    // A text that would be refused for its size never reaches the box, which a browser would take minutes to lay out.
    let pasted = move |event: web_sys::ClipboardEvent| {
        let content = event.clipboard_data().and_then(|data| data.get_data("text/plain").ok());
        if let Some(Err(finding)) = content.map(|content| intake::check_size(content.len() as u64)) {
            event.prevent_default();
            findings.set(vec![finding]);
        }
    };
    view! {
        <DropZone class="config" files=files text=dropped>
            <label for="config-paste">"Or a Hugging Face config.json"</label>
            <textarea id="config-paste" data-testid=testid::CONFIG_PASTE rows="3" spellcheck="false" autocomplete="off"
                placeholder="Paste it here, or drop the file; with it or after it its safetensors index or file, to check it"
                prop:value=text on:paste=pasted on:input=move |event| text.set(event_target_value(&event))></textarea>
            <div class="row">
                <button data-testid=testid::CONFIG_APPLY on:click=move |_| leptos::task::spawn_local(apply(text.get_untracked()))>"Read"</button>
                <FileButton text="Choose files..." hook=testid::CONFIG_FILE several=true
                    accept=".json,.safetensors,application/json" files=files/>
            </div>
            <FindingList findings=findings/>
        </DropZone>
    }
}

/// Where a file stands among those that are dropped together.
fn order(name: &str) -> u8 {
    match name {
        "config.json" => 0,
        _ if name.ends_with(".safetensors") => 2,
        _ => 1,
    }
}

/// The architecture that planner understood, and what it had to assume.
#[component]
fn WhatWasRead() -> impl IntoView {
    let store = store();
    move || {
        let plan = store.resolved.get()?;
        let origin = origin(store.said().model.preset.as_deref());
        let facts = origin
            .into_iter()
            .chain(facts(&plan.model))
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

/// Where a preset is from, since when it is there, and what it was trained with.
fn origin(id: Option<&str>) -> Vec<(&'static str, String)> {
    let Some(preset) = presets().iter().find(|preset| Some(preset.id.as_str()) == id) else {
        return Vec::new();
    };
    let batch = preset.batch.as_ref();
    let batch = batch.map(|batch| format!("{} tokens ({})", format::exact(batch.tokens), batch.source));
    [
        ("Source", Some(preset.source.clone())),
        ("Published", preset.released.clone()),
        ("Its global batch", batch),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
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
