//! Where the first plan comes from, and how the address follows the plan from then on.

use std::time::Duration;

use gloo::events::EventListener;
use gloo::storage::{SessionStorage, Storage};
use gloo::timers::callback::Timeout;
use leptos::prelude::*;
use planner::finding::Finding;
use planner::plan::with_usual_framework;
use planner::wire::{self, Choose, ClusterFile, LinkError, ModelFile, PlanFile};

use super::Store;
use super::fragment::{self, Fragment, MAX_LINK};
use crate::browser;
use crate::hub::Hub;

const TOKEN_KEY: &str = "shardplan.token";
/// How long the plan must rest before the address follows.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// What an address without a plan shows.
pub fn example() -> PlanFile {
    with_usual_framework(&PlanFile {
        version: wire::VERSION,
        model: ModelFile { preset: Some("llama-3-70b".to_owned()), ..ModelFile::default() },
        cluster: ClusterFile {
            gpu: "h100-sxm".to_owned(),
            nodes: Some(8),
            gpus_per_node: Some(8),
            ..ClusterFile::default()
        },
        choose: Some(Choose::all()),
        ..PlanFile::default()
    })
}

/// Takes the token out of the address, first of all, and reads the plan that the address holds.
pub fn from_address() -> (Option<PlanFile>, Vec<Finding>) {
    let fragment = Fragment::parse(&browser::fragment());
    if let Some(token) = &fragment.token {
        // Cleared before anything else can read or share the address.
        browser::replace_fragment(&fragment.plan.as_deref().map(fragment::of_plan).unwrap_or_default());
        let _ = SessionStorage::set(TOKEN_KEY, token);
    }
    match fragment.plan {
        None => (None, Vec::new()),
        Some(link) => match read_link(&link) {
            Ok(plan) => (Some(plan), Vec::new()),
            Err(finding) => (None, vec![finding]),
        },
    }
}

/// The hub's token, if this page was opened with one.
pub fn token() -> Option<String> {
    SessionStorage::get::<String>(TOKEN_KEY).ok().filter(|token| !token.is_empty())
}

/// Forgets a token that the hub refused.
pub fn forget_token() {
    SessionStorage::delete(TOKEN_KEY);
}

/// The plan in a link.
fn read_link(link: &str) -> Result<PlanFile, Finding> {
    let shown: String = link.chars().take(32).collect();
    if link.len() > MAX_LINK {
        let message = format!(
            "The link holds {} characters, more than the {MAX_LINK} that are read; ask for the plan as a file",
            link.len()
        );
        return Err(Finding::error("", shown, message));
    }
    wire::decode_link(&format!("p={link}")).map_err(|error| match error {
        // What planner found in the plan itself is more use than that it found something.
        LinkError::Plan(findings) if findings.len() == 1 => findings[0].clone(),
        error => Finding::error("", shown, error.to_string()),
    })
}

/// The address of this page with the plan in it.
pub fn link(plan: &PlanFile) -> String {
    browser::address_with(&format!("#{}", wire::encode_link(plan)))
}

/// Lets the address follow the plan, and the plan a link that is put into the address. The address stays as it was
/// opened until the first edit.
pub fn keep_address(store: Store, hub: Hub) {
    let pending = StoredValue::new_local(None::<Timeout>);
    Effect::new(move |first: Option<()>| {
        let plan = store.said();
        if first.is_none() {
            return;
        }
        // Replacing a timeout cancels the one before.
        let timeout = Timeout::new(ADDRESS_DELAY.as_millis() as u32, move || {
            browser::replace_fragment(&format!("#{}", wire::encode_link(&plan)));
        });
        pending.set_value(Some(timeout));
    });
    let listener = EventListener::new(&gloo::utils::window(), "hashchange", move |_| {
        let (plan, notices) = from_address();
        if let Some(plan) = plan {
            store.replace(plan);
        }
        store.notices.set(notices);
        // A token may have come with it.
        hub.connect();
    });
    // Lives as long as the page.
    listener.forget();
}
