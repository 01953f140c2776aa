//! The keyboard's focus, lent to what opens.

use leptos::prelude::*;

use crate::browser;

/// Lends the focus to the element with this id while what it stands in is open, and gives it back afterwards. What opens where nobody
/// sees it, such as a phone's sheet beside a wide view, gets none.
pub fn lend_focus(is_open: Signal<bool>, id: &'static str) {
    let before = StoredValue::new_local(None::<web_sys::HtmlElement>);
    Effect::new(move |was_open: Option<bool>| {
        let opens = is_open.get();
        match (was_open.unwrap_or_default(), opens) {
            (false, true) => {
                before.set_value(browser::focused().filter(|_| browser::focus(id)));
                // What is made when it opens may not be there yet.
                if document().get_element_by_id(id).is_none() {
                    browser::focus_soon(id.to_owned());
                }
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
