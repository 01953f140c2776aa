//! Looks at any batch script: it is pasted, typed or dropped, and what is wrong with it stands beside its lines. The text
//! stays in this page.

use std::collections::BTreeMap;

use batch::lint::{Finding, Report};
use gloo::file::Blob;
use leptos::html;
use leptos::prelude::*;
use planner::Severity;
use web_sys::FileList;

use crate::findings::{Shape, coded, said, word};
use crate::kit::{DropZone, FileButton};
use crate::testid;
use crate::texts;
use crate::texts::protocol::{Ask, Tell};
use crate::views::session::session;

/// Largest script that is taken: a browser takes minutes to lay out much more.
const MAX_BYTES: usize = 512 * 1024;

/// The panel below the script that is written.
#[component]
pub fn LintPanel() -> impl IntoView {
    let text = session().checked;
    let refused = RwSignal::new(None::<String>);
    let area = NodeRef::<html::Textarea>::new();
    let gutter = NodeRef::<html::Pre>::new();
    let reading = StoredValue::new_local(None::<gloo::file::callbacks::FileReader>);
    // The latest report; it is of the text on screen, or of one a moment ago.
    let report = RwSignal::new(None::<Report>);
    let turn = StoredValue::new(0u32);
    Effect::new(move |_| {
        let script = text.get();
        let now = turn.with_value(|turn| turn.wrapping_add(1));
        turn.set_value(now);
        if script.trim().is_empty() {
            report.set(None);
            return;
        }
        leptos::task::spawn_local(async move {
            let told = texts::ask(&Ask::Lint(script)).await;
            // Somebody typed on meanwhile.
            if turn.try_get_value() != Some(now) {
                return;
            }
            match told {
                Some(Tell::Lint(found)) => report.set(Some(found)),
                _ => refused.set(Some(texts::ABSENT.to_owned())),
            }
        });
    });
    let take = move |script: String| {
        if script.len() > MAX_BYTES {
            refused.set(Some(format!(
                "That has {} bytes, and at most {MAX_BYTES} are taken here; shardplan lint takes more",
                script.len()
            )));
        } else {
            refused.set(None);
            text.set(script);
        }
    };
    let open_file = move |file: web_sys::File| {
        if file.size() > MAX_BYTES as f64 {
            refused.set(Some(format!("That file is larger than {MAX_BYTES} bytes; shardplan lint takes it")));
            return;
        }
        let reader = gloo::file::callbacks::read_as_bytes(&Blob::from(file), move |read| match read {
            Ok(bytes) => take(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => refused.set(Some(format!("The file could not be read: {error}"))),
        });
        reading.set_value(Some(reader));
    };
    let files = Callback::new(move |files: FileList| files.get(0).into_iter().for_each(open_file));
    let dropped = Callback::new(take);
    let pasted = move |event: web_sys::ClipboardEvent| {
        let length = event
            .clipboard_data()
            .and_then(|data| data.get_data("text/plain").ok())
            .map_or(0, |text| text.len());
        if length > MAX_BYTES {
            event.prevent_default();
            refused.set(Some(format!(
                "That has {length} bytes, and at most {MAX_BYTES} are taken here; shardplan lint takes more"
            )));
        }
    };
    let numbers = move || {
        let worst = report.with(|report| report.as_ref().map(worst_of_lines).unwrap_or_default());
        let lines = text.with(|text| text.split('\n').count());
        (1..=lines as u64)
            .map(|line| {
                let class = worst.get(&line).map_or("", |severity| word(*severity));
                let mark = if class.is_empty() { "  " } else { "\u{25b8} " };
                view! { <span class=class>{format!("{mark}{line}\n")}</span> }
            })
            .collect_view()
    };
    let scrolled = move |_| {
        if let (Some(area), Some(gutter)) = (area.get_untracked(), gutter.get_untracked()) {
            gutter.set_scroll_top(area.scroll_top());
        }
    };
    let go_to = move |line: u64, column: u64, width: u64| {
        let Some(area) = area.get_untracked() else { return };
        let (start, end) = text.with_untracked(|text| selection(text, line, column, width));
        // A browser without a selection in its box only does not move it.
        let _ = area.focus();
        let _ = area.set_selection_range(start, end);
        area.set_scroll_top(i32::try_from(line.saturating_sub(4)).unwrap_or(0).saturating_mul(18));
    };
    view! {
        <DropZone class="lint" named_by="lint-title" files=files text=dropped>
            <div class="view-head">
                <h3 id="lint-title">"Check a script"</h3>
                <FileButton text="Choose a file..." hook=testid::LINT_FILE files=files/>
            </div>
            <div class="lint-editor">
                <pre class="gutter" aria-hidden="true" node_ref=gutter>{numbers}</pre>
                <textarea rows="12" wrap="off" spellcheck="false" autocomplete="off" autocapitalize="off"
                    aria-label="A batch script for Slurm" aria-describedby="lint-summary" data-testid=testid::LINT_TEXT
                    placeholder="Paste any batch script for Slurm, or drop the file; it stays in this page"
                    node_ref=area prop:value=text on:scroll=scrolled on:paste=pasted
                    on:input=move |event| take(event_target_value(&event))></textarea>
            </div>
            <p id="lint-summary" class="note" role="status" data-testid=testid::LINT_SUMMARY>
                {move || refused.get().unwrap_or_else(|| report.with(|report| report.as_ref().map(summary).unwrap_or_default()))}
            </p>
            <ol class="findings" data-testid=testid::LINT_FINDINGS>
                {move || report.with(|report| report.as_ref().map(|report| {
                    report.findings.iter().map(|finding| view! { <Item finding=finding.clone() go_to=Callback::new(move |(line, column, width)| go_to(line, column, width))/> }).collect_view()
                }))}
            </ol>
        </DropZone>
    }
}

/// One finding; its button goes to its line.
#[component]
fn Item(finding: Finding, go_to: Callback<(u64, u64, u64)>) -> impl IntoView {
    let severity = word(finding.severity);
    let place = (finding.line, finding.column, finding.width);
    let line = finding.replacement.clone().map(|line| view! { <pre class="code"><code>{line}</code></pre> });
    view! {
        <li class=format!("finding {severity}") data-testid=testid::LINT_FINDING data-rule=finding.rule.to_string() data-line=finding.line.to_string() data-severity=severity>
            <Shape severity=finding.severity/>
            <div>
                <p>
                    <button class="chip" on:click=move |_| go_to.run(place)>{format!("Line {}", finding.line)}</button>
                    " "{said(&finding.message)}
                </p>
                <p>{said(&finding.fix)}</p>
                {line}
                <p class="rule">{finding.rule.to_string()}", "{coded(&finding.why)}</p>
            </div>
        </li>
    }
}

/// How much the worst finding of each line matters.
fn worst_of_lines(report: &Report) -> BTreeMap<u64, Severity> {
    let mut worst = BTreeMap::new();
    for finding in &report.findings {
        let entry = worst.entry(finding.line).or_insert(finding.severity);
        *entry = (*entry).min(finding.severity);
    }
    worst
}

fn summary(report: &Report) -> String {
    let count = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let remarks = report.findings.len() as u64 - report.errors - report.warnings;
    if report.findings.is_empty() {
        return "Nothing was found".to_owned();
    }
    [count(report.errors, "error"), count(report.warnings, "warning"), count(remarks, "remark")].join(", ")
}

/// Where a finding begins and ends in the box, in the units that browsers count in (UTF-16).
fn selection(text: &str, line: u64, column: u64, width: u64) -> (u32, u32) {
    let units = |text: &str| text.encode_utf16().count();
    let number = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut start = 0;
    for (index, content) in text.split('\n').enumerate() {
        if index == number {
            let skip = usize::try_from(column.saturating_sub(1)).unwrap_or(0);
            let take = usize::try_from(width).unwrap_or(0);
            let before: String = content.chars().take(skip).collect();
            let inside: String = content.chars().skip(skip).take(take).collect();
            let from = start + units(&before);
            return (from as u32, (from + units(&inside)) as u32);
        }
        start += units(content) + 1;
    }
    (start as u32, start as u32)
}

#[cfg(test)]
mod tests {
    use super::selection;

    #[test]
    fn selections_count_as_browsers_do() {
        assert_eq!(selection("abc\ndef", 2, 2, 1), (5, 6));
        assert_eq!(selection("\u{1f600}x\n\u{1f600}y", 2, 2, 9), (6, 7));
        assert_eq!(selection("", 9, 1, 1), (1, 1));
    }
}
