//! Tells a picture that its box has another size, or that the page's colours have changed.

use gloo::utils::{document, window};
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{Element, MediaQueryList, MutationObserver, MutationObserverInit, ResizeObserver};

/// Observes until it is dropped.
pub struct Watch {
    size: Option<ResizeObserver>,
    theme: Option<MutationObserver>,
    scheme: Option<MediaQueryList>,
    // Called by the three above, so it goes after them.
    changed: Closure<dyn FnMut()>,
}

impl Watch {
    /// Calls `changed` when `element` has another size, once it is laid out: it may ask for sizes then without having the page
    /// laid out anew.
    pub fn of_size(element: &Element, changed: impl FnMut() + 'static) -> Watch {
        let changed = Closure::<dyn FnMut()>::new(changed);
        let size = ResizeObserver::new(changed.as_ref().unchecked_ref()).ok();
        if let Some(size) = &size {
            size.observe(element);
        }
        Watch { size, theme: None, scheme: None, changed }
    }

    /// Calls `changed` when `element` has another size or the theme changes.
    pub fn new(element: &Element, changed: impl FnMut() + 'static) -> Watch {
        let mut watch = Watch::of_size(element, changed);
        let function = watch.changed.as_ref().unchecked_ref();
        let theme = MutationObserver::new(function).ok();
        if let (Some(theme), Some(root)) = (&theme, document().document_element()) {
            let attributes = MutationObserverInit::new();
            attributes.set_attributes(true);
            // Without it, a change of theme shows with the next drawing.
            let _ = theme.observe_with_options(&root, &attributes);
        }
        let scheme = window().match_media("(prefers-color-scheme: dark)").ok().flatten();
        if let Some(scheme) = &scheme {
            scheme.set_onchange(Some(function));
        }
        (watch.theme, watch.scheme) = (theme, scheme);
        watch
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(size) = &self.size {
            size.disconnect();
        }
        if let Some(theme) = &self.theme {
            theme.disconnect();
        }
        if let Some(scheme) = &self.scheme {
            scheme.set_onchange(None);
        }
    }
}
