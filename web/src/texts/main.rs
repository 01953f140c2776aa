//! Scripts written, scripts and logs read, numbers explained: a module of its own, which the page loads when a view wants it (`texts.rs`), so
//! that who only plans is not sent the rules for both.

#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "only a page asks"))]

mod protocol;

use batch::launch::{Site, as_command_line, examples, read_site, site_toml};
use frameworks::script;
use planner::Plan;
use planner::json::read_json;
use planner::wire::PlanFile;
use protocol::{Ask, Filled, Tell, Wanted, Written};
use wasm_bindgen::prelude::*;

fn main() {
    #[cfg(target_arch = "wasm32")]
    console_error_panic_hook::set_once();
}

/// Answers a question; nothing when it can't be read, which a page of the same build never sees.
#[wasm_bindgen]
pub fn answer(question: &str) -> Option<String> {
    let told = match read_json(question).ok()? {
        Ask::Lint(script) => Tell::Lint(batch::lint::lint(script.as_bytes())),
        Ask::Script(wanted) => Tell::Script(written(&wanted)),
        Ask::CommandLine(wanted) => Tell::CommandLine(written(&wanted).and_then(|written| {
            as_command_line(&wanted.plan, &wanted.site, &wanted.options, &written.findings)
        })),
        Ask::SiteFile(site) => Tell::SiteFile(site_toml(&site.without_secrets())),
        Ask::Why(of) => Tell::Why(planner::why::explain(&of.0, &of.1)),
        Ask::Weights(given) => Tell::Weights(planner::model::compare_text(&given.0, &given.1)),
        Ask::Example(title, site) => Tell::Example(filled(&title, &site).map(Box::new)),
        Ask::Harmless(site) => Tell::Site(Ok(Box::new(site.without_secrets()))),
        Ask::ReadSite(text) => Tell::Site(match read_site(&text) {
            Ok(site) => Ok(Box::new(site.without_secrets())),
            Err(finding) => Err(format!("{} ({})", finding.message, finding.rule)),
        }),
    };
    serde_json::to_string(&told).ok()
}

fn filled(title: &str, site: &Site) -> Option<Filled> {
    let example = examples().into_iter().find(|example| example.title == title)?;
    let site = example.on(site);
    let options = example.options;
    Some(Filled { plan: example.plan, site, body: options.body, mode: options.mode, task: options.task })
}

fn written(wanted: &Wanted) -> Option<Written> {
    let plan = Plan::resolve(&wanted.plan).plan?;
    let (text, findings) = script(&plan, &wanted.site, &wanted.options);
    Some(Written { text, findings })
}

/// A diagnosis that has read nothing yet. `plan` is the run's, as a plan file's text, where it is known.
#[wasm_bindgen]
pub fn diagnosis(plan: Option<String>) -> Diagnosis {
    let file: Option<PlanFile> = plan.and_then(|text| read_json(&text).ok());
    let plan = file.and_then(|file| Plan::resolve(&file).plan);
    Diagnosis(diagnose::Diagnosis::new(plan.as_ref()))
}

/// Why a run ended, from its logs piece by piece.
#[wasm_bindgen]
pub struct Diagnosis(diagnose::Diagnosis);

#[wasm_bindgen]
impl Diagnosis {
    /// What follows is of this file.
    pub fn file(&mut self, name: &str) {
        self.0.file(name);
    }

    /// The next bytes of it.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.feed(bytes);
    }

    /// The answer, as JSON.
    pub fn finish(self) -> String {
        serde_json::to_string(&self.0.finish()).unwrap_or_default()
    }
}
