//! Why a run ended: logs that are pasted, dropped or chosen, read slice by slice so that the page stays alive.

mod result;
mod slices;

use std::sync::Arc;

use diagnose::Answer;
use leptos::prelude::*;
use planner::wire::PlanFile;
use wasm_bindgen::JsCast;
use web_sys::{Blob, FileList};

use crate::browser::{self, slice};
use crate::format::bytes;
use crate::kit::{DropZone, FileButton};
use crate::state::store;
use crate::testid;
use crate::texts::{ABSENT, Diagnosis};
use crate::views::session::session;
use result::ResultView;
use slices::{Part, text_as_blob};

/// Bytes that are read between two chances of the browser to draw.
const SLICE: f64 = 512.0 * 1024.0;

/// What was read last; it outlives the view.
#[derive(Clone, Copy)]
pub struct DiagnoseState {
    answer: RwSignal<Option<Arc<Answer>>>,
    /// Bytes read and bytes in all, while reading.
    progress: RwSignal<Option<[f64; 2]>>,
    trouble: RwSignal<Option<String>>,
    /// Which reading is the latest; an earlier one stops.
    turn: RwSignal<u32>,
    /// Longest that the page was kept from drawing, milliseconds.
    longest: RwSignal<f64>,
    with_plan: RwSignal<bool>,
}

impl DiagnoseState {
    /// Nothing was read yet.
    pub fn new() -> DiagnoseState {
        DiagnoseState {
            answer: RwSignal::new(None),
            progress: RwSignal::new(None),
            trouble: RwSignal::new(None),
            turn: RwSignal::new(0),
            longest: RwSignal::new(0.0),
            with_plan: RwSignal::new(false),
        }
    }
}

/// The view.
#[component]
pub fn DiagnoseView() -> impl IntoView {
    let store = store();
    let state = session().diagnose;
    let start = move |parts: Vec<Part>| {
        let plan = state.with_plan.get_untracked().then(|| store.plan_now());
        leptos::task::spawn_local(read(state, parts, plan));
    };
    let files = Callback::new(move |files: FileList| {
        let parts: Vec<Part> = (0..files.length())
            .filter_map(|number| files.get(number))
            .map(|file| Part { name: file.name(), blob: file.unchecked_into::<Blob>() })
            .collect();
        start(parts);
    });
    let open_text = move |text: &str| match text_as_blob(text) {
        _ if text.trim().is_empty() => state.trouble.set(Some("There is no text to read".to_owned())),
        Some(blob) => start(vec![Part { name: "pasted text".to_owned(), blob }]),
        None => state
            .trouble
            .set(Some("The browser could not take the text; save it and drop the file".to_owned())),
    };
    let dropped = Callback::new(move |text: String| open_text(&text));
    // The text goes straight to the reader: a browser takes long to lay out megabytes in a box.
    let pasted = move |event: web_sys::ClipboardEvent| {
        if let Some(text) = event.clipboard_data().and_then(|data| data.get_data("text/plain").ok())
            && !text.is_empty()
        {
            event.prevent_default();
            open_text(&text);
        }
    };
    let typed = session().log;
    view! {
        <div class="view-head"><h3>"Why did a run end?"</h3></div>
        <p class="note">"Logs of one run: the batch job's output, a file for each rank, a node's dmesg. They stay in this browser."</p>
        <DropZone class="config" files=files text=dropped>
            <label for="diagnose-paste">"Paste a log, or drop files here"</label>
            <textarea id="diagnose-paste" data-testid=testid::DIAGNOSE_PASTE rows="3" spellcheck="false" autocomplete="off"
                prop:value=typed on:paste=pasted on:input=move |event| typed.set(event_target_value(&event))></textarea>
            <div class="row">
                <button data-testid=testid::DIAGNOSE_READ on:click=move |_| typed.with_untracked(|text| open_text(text))>"Read"</button>
                <FileButton text="Choose files..." hook=testid::DIAGNOSE_FILES several=true files=files/>
                <label>
                    <input type="checkbox" data-testid=testid::DIAGNOSE_PLAN prop:checked=state.with_plan
                        on:change=move |event| state.with_plan.set(event_target_checked(&event))/>
                    " The plan on this page is the run's: compare out-of-memory errors with it"
                </label>
            </div>
        </DropZone>
        <p class="note" role="status" data-testid=testid::DIAGNOSE_STATE
            data-longest=move || format!("{:.0}", state.longest.get())>
            {move || match (state.progress.get(), state.trouble.get()) {
                (Some([done, all]), _) => format!("Read {} of {}", bytes(done as u64), bytes(all as u64)),
                (None, Some(trouble)) => trouble,
                (None, None) => state.answer.with(|answer| match answer {
                    Some(answer) => format!("Read {}", bytes(answer.looked_at.bytes)),
                    None => String::new(),
                }),
            }}
        </p>
        {move || state.answer.get().map(|answer| view! { <ResultView answer=answer/> })}
    }
}

/// Reads all parts, letting the browser draw between slices.
async fn read(state: DiagnoseState, parts: Vec<Part>, plan: Option<Arc<PlanFile>>) {
    let turn = state.turn.get_untracked().wrapping_add(1);
    state.turn.set(turn);
    state.trouble.set(None);
    state.answer.set(None);
    let fail = |trouble: String| {
        state.progress.set(None);
        state.trouble.set(Some(trouble));
    };
    let all: f64 = parts.iter().map(|part| part.blob.size()).sum();
    let (mut done, mut longest) = (0.0, 0.0_f64);
    let Some(diagnosis) = Diagnosis::begin(plan.as_deref()).await else { return fail(ABSENT.to_owned()) };
    for part in parts {
        let mut works = diagnosis.names(&part.name);
        let size = part.blob.size();
        let mut at = 0.0;
        while works && at < size {
            state.progress.set(Some([done + at, all]));
            let bytes = slice(&part.blob, at, (at + SLICE).min(size)).await;
            // Somebody gave other logs meanwhile.
            if state.turn.get_untracked() != turn {
                return;
            }
            let Some(bytes) = bytes else {
                return fail(format!("{} could not be read to its end", part.name));
            };
            let before = browser::now_ms();
            works = diagnosis.reads(&bytes);
            longest = longest.max(browser::now_ms() - before);
            at += SLICE;
        }
        if !works {
            return fail(format!("Reading {} failed; reload the page", part.name));
        }
        done += size;
    }
    let before = browser::now_ms();
    let answer = diagnosis.answers();
    longest = longest.max(browser::now_ms() - before);
    let Some(answer) = answer else { return fail("Reading failed; reload the page".to_owned()) };
    state.progress.set(None);
    state.longest.set(longest);
    state.answer.set(Some(Arc::new(answer)));
}
