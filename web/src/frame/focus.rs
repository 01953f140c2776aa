//! Where the keyboard's focus goes when something opens or closes, or takes it along.

use gloo::events::{EventListener, EventListenerOptions};
use gloo::timers::callback::Timeout;
use gloo::utils::{body, document};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::js_sys::Array;
use web_sys::{FocusOptions, HtmlElement, MutationObserver, MutationObserverInit};

use crate::browser;

/// What somebody can use. What only scripts focus is none of it, such as the steps beside a number.
const CONTROLS: &str = ":is(input,select,textarea,button,summary):not(:disabled,[tabindex='-1'])";

/// Lends the focus to the element with this id while something is open, and gives it back afterwards.
pub fn lend_focus(is_open: Signal<bool>, id: &'static str) {
    let before = StoredValue::new_local(None::<HtmlElement>);
    Effect::new(move |was_open: Option<bool>| {
        let opens = is_open.get();
        match (was_open.unwrap_or_default(), opens) {
            (false, true) => {
                before.set_value(browser::focused());
                browser::focus(id);
            }
            (true, false) => before.with_value(|before| {
                if let Some(element) = before {
                    let _ = element.focus();
                }
            }),
            _ => {}
        }
        opens
    });
}

/// Lets the focus never fall out of the page, as long as the page lives: what has it may go away or be disabled by being used, and then
/// the nearest place around it has it that takes it: the place itself, or the first control in it.
pub fn keep_focus() {
    // What has the focus, and what it stands in, from inside out: nobody knows that any more once it is gone.
    let path = StoredValue::new_local(Vec::<HtmlElement>::new());
    // A click where nothing takes the focus gives it up.
    for event in ["focusin", "click"] {
        let options = EventListenerOptions::run_in_capture_phase();
        EventListener::new_with_options(&document(), event, options, move |_| {
            let inner = browser::focused().filter(|inner| **inner != *body());
            let path_of = |inner| {
                std::iter::successors(Some(inner), |at: &HtmlElement| {
                    at.parent_element().map(JsCast::unchecked_into)
                })
            };
            path.set_value(inner.into_iter().flat_map(path_of).collect());
        })
        .forget();
    }
    let is_lost = move || {
        let gone = |lost: &HtmlElement| !lost.is_connected() || lost.matches(":disabled").unwrap_or_default();
        // Somebody else may have seen to it already.
        let falls = |lost: &HtmlElement| browser::focused().is_none_or(|now| now == *lost || *now == *body());
        path.with_value(|path| path.first().is_some_and(|lost| gone(lost) && falls(lost)))
    };
    let changed = Closure::<dyn FnMut()>::new(move || {
        if is_lost() {
            // A click or the tab key may be about to put it somewhere: what is left by them may go away before they are through.
            Timeout::new(0, move || {
                if is_lost() {
                    hand_on(&path.get_value())
                }
            })
            .forget();
        }
    });
    let what = MutationObserverInit::new();
    what.set_child_list(true);
    what.set_subtree(true);
    what.set_attribute_filter(&Array::of1(&"disabled".into()));
    if let Ok(observer) = MutationObserver::new(changed.as_ref().unchecked_ref()) {
        // Without it the focus starts from the top again, as it does in any page.
        let _ = observer.observe_with_options(&document(), &what);
    }
    changed.forget();
}

/// Gives the focus to the nearest of these places, from inside out, that takes it.
fn hand_on(path: &[HtmlElement]) {
    let still = FocusOptions::new();
    still.set_prevent_scroll(true);
    for place in path.iter().skip(1).filter(|place| place.is_connected()) {
        let own = place.has_attribute("tabindex").then(|| place.clone());
        let first = || place.query_selector(CONTROLS).ok().flatten().map(JsCast::unchecked_into);
        let Some(next) = own.or_else(first) else { continue };
        // What is hidden does not take it.
        let _ = next.focus_with_options(&still);
        if browser::focused().is_some_and(|now| now == next) {
            return;
        }
    }
}
