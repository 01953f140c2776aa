//! Brings the module `texts` when a view first wants it, and asks it.

pub mod protocol;

use diagnose::Answer;
use planner::json::read_json;
use planner::wire::PlanFile;
use wasm_bindgen::prelude::*;

use crate::browser;
use protocol::{Ask, Tell};

/// Where it is, seen from the page's own module.
const ADDRESS: &str = "./texts.js";

/// Said when it does not come.
pub const ABSENT: &str = "This part of the page could not be loaded; reload the page";

#[wasm_bindgen]
extern "C" {
    /// The module's namespace.
    type Module;

    #[wasm_bindgen(method, catch)]
    fn answer(this: &Module, question: &str) -> Result<Option<String>, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn diagnosis(this: &Module, plan: Option<String>) -> Result<Diagnosis, JsValue>;

    /// A diagnosis in the module.
    pub type Diagnosis;

    #[wasm_bindgen(method, catch)]
    fn file(this: &Diagnosis, name: &str) -> Result<(), JsValue>;

    #[wasm_bindgen(method, catch)]
    fn feed(this: &Diagnosis, bytes: &[u8]) -> Result<(), JsValue>;

    #[wasm_bindgen(method, catch)]
    fn finish(this: &Diagnosis) -> Result<String, JsValue>;
}

async fn module() -> Result<Module, JsValue> {
    Ok(browser::module(ADDRESS).await?.unchecked_into())
}

/// Asks; nothing when the module does not come.
pub async fn ask(question: &Ask) -> Option<Tell> {
    let text = serde_json::to_string(question).ok()?;
    let answer = module().await.ok()?.answer(&text).ok()??;
    read_json(&answer).ok()
}

impl Diagnosis {
    /// A diagnosis that has read nothing yet; nothing when the module does not come.
    pub async fn begin(plan: Option<&PlanFile>) -> Option<Diagnosis> {
        let plan = plan.and_then(|plan| serde_json::to_string(plan).ok());
        module().await.ok()?.diagnosis(plan).ok()
    }

    /// What follows is of this file; false when the module has failed.
    pub fn names(&self, file: &str) -> bool {
        self.file(file).is_ok()
    }

    /// The next bytes of it; false when the module has failed.
    pub fn reads(&self, bytes: &[u8]) -> bool {
        self.feed(bytes).is_ok()
    }

    /// The answer; nothing when the module has failed.
    pub fn answers(self) -> Option<Answer> {
        read_json(&self.finish().ok()?).ok()
    }
}
