//! The keyboard's focus, lent to what opens.

use leptos::prelude::*;
use web_sys::HtmlElement;

use crate::browser;

/// Lends the focus to the element with this id while what it stands in is open, as a dialog, and gives it back afterwards.
pub fn lend_focus(is_open: Signal<bool>, id: &'static str) {
    let before = StoredValue::new_local(None::<HtmlElement>);
    Effect::new(move |was_open: Option<bool>| {
        let opens = is_open.get();
        if opens != was_open.unwrap_or_default() {
            // Inputs beside a view are none.
            browser::set_role(id, if opens { "dialog" } else { "complementary" });
            if opens {
                before.set_value(browser::focused());
                browser::focus(id);
            } else if let Some(element) = before.try_update_value(Option::take).flatten() {
                let _ = element.focus();
            }
        }
        opens
    });
}
