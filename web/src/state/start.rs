//! Where the first plan comes from, and how the address follows plan and view from then on: Back and Forward walk over both.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use gloo::events::EventListener;
use gloo::timers::callback::Timeout;
use leptos::prelude::*;
use planner::finding::Finding;
use planner::link::{self, LinkError};
use planner::software::with_usual_framework;
use planner::wire::{self, Choose, ClusterFile, ModelFile, PlanFile};

use super::fragment::{Fragment, MAX_LINK, joins};
use super::{Store, View};
use crate::browser::{self, Kept};
use crate::hub::Hub;

const TOKEN_KEY: &str = "shardplan.token";

thread_local! {
    /// The token that an address brought: a browser that keeps nothing has it here until a reload.
    static TOKEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

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

/// What an address holds.
pub struct Address {
    /// The plan; none where the address brought a token alone, or a plan that can't be read.
    pub plan: Option<PlanFile>,
    /// The view.
    pub view: Option<View>,
    /// Why the plan could not be read.
    pub notices: Vec<Finding>,
}

/// Takes the token out of the address, first of all, and reads the plan and the view that the address holds.
pub fn from_address() -> Address {
    let fragment = Fragment::parse(&browser::fragment());
    if let Some(token) = &fragment.token {
        // Cleared before anything else can read or share the address.
        browser::write_fragment(&fragment.written(), false);
        Kept::InTab.put(TOKEN_KEY, token);
        TOKEN.set(Some(token.clone()));
    }
    let view = fragment.view;
    match fragment.plan.as_deref().map(read_link) {
        None => Address { plan: fragment.token.is_none().then(example), view, notices: Vec::new() },
        Some(Ok(plan)) => Address { plan: Some(plan), view, notices: Vec::new() },
        Some(Err(finding)) => Address { plan: None, view, notices: vec![finding] },
    }
}

/// The hub's token, if this page was opened with one.
pub fn token() -> Option<String> {
    let brought = TOKEN.with_borrow(Option::clone);
    brought.or_else(|| Kept::InTab.get(TOKEN_KEY)).filter(|token| !token.is_empty())
}

/// Forgets a token that the hub refused.
pub fn forget_token() {
    TOKEN.set(None);
    Kept::InTab.put(TOKEN_KEY, "");
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
    link::decode_link(&format!("p={link}")).map_err(|error| match error {
        // What planner found in the plan itself is more use than that it found something.
        LinkError::Plan(findings) if findings.len() == 1 => findings[0].clone(),
        error => Finding::error("", shown, error.to_string()),
    })
}

/// The address of this page with the plan and the view in it.
///
/// # Errors
/// When no page would read the plan in it.
pub fn link(plan: &PlanFile, view: View) -> Result<String, Finding> {
    Ok(browser::address_with(&fragment_of(plan, view)?))
}

fn fragment_of(plan: &PlanFile, view: View) -> Result<String, Finding> {
    let encoded = link::encode_link(plan);
    let plan = encoded.strip_prefix("p=").unwrap_or(&encoded).to_owned();
    read_link(&plan).map_err(|_| {
        let size = plan.len();
        let message = format!(
            "The plan is too large for a link ({size} characters, and {MAX_LINK} are read): save its file in Data, for a reload loses it"
        );
        Finding::warning("", size, message)
    })?;
    Ok(Fragment { plan: Some(plan), view: Some(view), token: None }.written())
}

/// Lets the address follow plan and view, each rest in an entry of the browser's history; and plan and view an address that
/// Back, Forward or somebody's hand puts there. The address stays as it was opened until the first change, and holds no plan
/// that a reload could not read.
pub fn keep_address(store: Store, hub: Hub) {
    let (began, view_began) = (browser::fragment(), store.view.get_untracked());
    let pending = StoredValue::new_local(None::<Timeout>);
    // The entry that was written last: its view, and when.
    let last = StoredValue::new_local(None::<(View, f64)>);
    // What the address says, whoever wrote it, and the fragment that says it.
    let there = StoredValue::new_local((store.said_now(), view_began, began.clone()));
    // Whether it was said that the address can't hold the plan.
    let told = Rc::new(Cell::new(false));
    Effect::new(move |first: Option<()>| {
        let (plan, view) = (store.said(), store.view.get());
        if first.is_none() {
            return;
        }
        let told = told.clone();
        // Replacing a timeout cancels the one before.
        let timeout = Timeout::new(ADDRESS_DELAY.as_millis() as u32, move || {
            if there.with_value(|there| (&there.0, there.1) == (&plan, view)) {
                return;
            }
            let fragment = match fragment_of(&plan, view) {
                Ok(fragment) => fragment,
                Err(finding) => {
                    if !told.replace(true) {
                        store.notices.set(vec![finding]);
                    }
                    return;
                }
            };
            told.set(false);
            let now = browser::now_ms();
            let own_entry = !joins(last.get_value(), view, now);
            browser::write_fragment(&fragment, own_entry);
            there.set_value((plan, view, fragment));
            last.set_value(Some((view, now)));
        });
        pending.set_value(Some(timeout));
    });
    let listener = EventListener::new(&gloo::utils::window(), "hashchange", move |_| {
        let Address { plan, view, notices } = from_address();
        let fragment = browser::fragment();
        // The first address may say no view.
        let view = view.or((fragment == began).then_some(view_began));
        if let Some(view) = view {
            store.view.set(view);
        }
        match plan {
            Some(plan) => {
                if plan != *store.said_now() {
                    store.replace(plan);
                }
                // What is changed from here on is an entry of its own, and this one is left as it is; so is what was about to be written.
                pending.set_value(None);
                last.set_value(None);
                there.set_value((store.said_now(), store.view.get_untracked(), fragment));
            }
            // The plan on screen stays, and the address says it again.
            None => there.with_value(|there| browser::write_fragment(&there.2, false)),
        }
        store.notices.set(notices);
        // A token may have come with it.
        hub.connect();
    });
    // Lives as long as the page.
    listener.forget();
}
