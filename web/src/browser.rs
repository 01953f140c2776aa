//! The few things that the page asks of the browser itself: address, clipboard, downloads, focus, the clock.

use gloo::utils::{document, window};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::js_sys::Promise;
use web_sys::{Blob, BlobPropertyBag, Element, HtmlAnchorElement, HtmlElement, Storage, Url};

#[wasm_bindgen]
extern "C" {
    // Not a function but syntax, which reads the same.
    #[wasm_bindgen(catch, js_name = import)]
    fn import_module(address: &str) -> Result<Promise, JsValue>;

    /// The namespace of a module that wasm-bindgen has made.
    type Namespace;

    #[wasm_bindgen(method, catch, js_name = default)]
    fn ready(this: &Namespace) -> Result<Promise, JsValue>;
}

/// Another module of the page, ready to be called, by its address seen from the page's own. However often it is asked for, a
/// browser loads it once.
///
/// # Errors
/// What the browser says when it can't be loaded.
pub async fn module(address: &str) -> Result<JsValue, JsValue> {
    let module: Namespace = JsFuture::from(import_module(address)?).await?.unchecked_into();
    JsFuture::from(module.ready()?).await?;
    Ok(module.into())
}

/// Milliseconds since 1970, for telling edits apart and showing ages; nothing is computed from it.
pub fn now_ms() -> f64 {
    web_sys::js_sys::Date::now()
}

/// What a browser keeps for a page. Where it keeps nothing (site data is blocked, or storage is full) nothing is remembered,
/// and the page does all the rest.
#[derive(Debug, Clone, Copy)]
pub enum Kept {
    /// Until the tab is closed.
    InTab,
    /// For good.
    ForGood,
}

impl Kept {
    /// Asking for it throws where site data is blocked.
    fn storage(self) -> Option<Storage> {
        match self {
            Kept::InTab => window().session_storage(),
            Kept::ForGood => window().local_storage(),
        }
        .ok()?
    }

    /// What was kept under this name.
    pub fn get(self, name: &str) -> Option<String> {
        self.storage()?.get_item(name).ok()?
    }

    /// Keeps a text; an empty one is as good as none.
    pub fn put(self, name: &str, text: &str) {
        if let Some(storage) = self.storage() {
            let _ = storage.set_item(name, text);
        }
    }
}

/// The bytes of a file from `start` to `end`; none when they can't be read any more.
pub async fn slice(blob: &Blob, start: f64, end: f64) -> Option<Vec<u8>> {
    let part = blob.slice_with_f64_and_f64(start, end).ok()?;
    let buffer = JsFuture::from(part.array_buffer()).await.ok()?;
    Some(web_sys::js_sys::Uint8Array::new(&buffer).to_vec())
}

/// Waits.
pub async fn rest(milliseconds: u32) {
    let (done, rested) = futures::channel::oneshot::channel();
    let timeout = gloo::timers::callback::Timeout::new(milliseconds, move || {
        // Nobody waits any more when the receiver is gone.
        let _ = done.send(());
    });
    let _ = rested.await;
    drop(timeout);
}

/// Whether the `details` element that an event came from is open.
pub fn is_open(event: &web_sys::Event) -> bool {
    event.target().is_some_and(|target| target.unchecked_into::<Element>().has_attribute("open"))
}

/// The fragment of the address, with its `#`.
pub fn fragment() -> String {
    window().location().hash().unwrap_or_default()
}

/// Puts another fragment into the address, in a history entry of its own or in place of the one that there is; an empty
/// fragment leaves the bare address.
pub fn write_fragment(fragment: &str, own_entry: bool) {
    let location = window().location();
    let base =
        format!("{}{}", location.pathname().unwrap_or_default(), location.search().unwrap_or_default());
    let address = format!("{base}{fragment}");
    if let Ok(history) = window().history() {
        // A browser may refuse when asked too often; the next change asks again.
        let _ = match own_entry {
            true => history.push_state_with_url(&JsValue::NULL, "", Some(&address)),
            false => history.replace_state_with_url(&JsValue::NULL, "", Some(&address)),
        };
    }
}

/// The whole address of this page with another fragment.
pub fn address_with(fragment: &str) -> String {
    let location = window().location();
    format!(
        "{}{}{}{fragment}",
        location.origin().unwrap_or_default(),
        location.pathname().unwrap_or_default(),
        location.search().unwrap_or_default()
    )
}

/// The websocket address of a path on the host that served this page; none for a page opened from a file.
pub fn socket_address(path: &str) -> Option<String> {
    let location = window().location();
    let scheme = match location.protocol().ok()?.as_str() {
        "http:" => "ws",
        "https:" => "wss",
        _ => return None,
    };
    let host = location.host().ok().filter(|host| !host.is_empty())?;
    Some(format!("{scheme}://{host}{path}"))
}

/// Puts text on the clipboard.
///
/// # Errors
/// When the browser refuses, in a sentence with another way.
pub async fn copy(text: String) -> Result<(), String> {
    let refused = || "The browser did not allow copying; select the text and copy it by hand".to_owned();
    // Outside of a secure context there is no clipboard, whatever its type says.
    let navigator = window().navigator();
    let present = web_sys::js_sys::Reflect::get(&navigator, &JsValue::from_str("clipboard"))
        .is_ok_and(|clipboard| !clipboard.is_undefined());
    if !present {
        return Err(refused());
    }
    JsFuture::from(navigator.clipboard().write_text(&text)).await.map(|_| ()).map_err(|_| refused())
}

/// Lets the browser save text as a file.
pub fn download(file_name: &str, media_type: &str, text: &str) {
    // Each step can only fail where there is no document to click in; then there is nobody to tell either.
    let _ = try_download(file_name, media_type, text);
}

fn try_download(file_name: &str, media_type: &str, text: &str) -> Result<(), JsValue> {
    let options = BlobPropertyBag::new();
    options.set_type(media_type);
    let parts = web_sys::js_sys::Array::of1(&JsValue::from_str(text));
    let blob = Blob::new_with_str_sequence_and_options(&parts, &options)?;
    let url = Url::create_object_url_with_blob(&blob)?;
    let anchor: HtmlAnchorElement = document().create_element("a")?.unchecked_into();
    anchor.set_href(&url);
    anchor.set_download(file_name);
    anchor.click();
    Url::revoke_object_url(&url)
}

/// Size of small text, which pictures and charts have, in pixels: `--small` of the style sheet.
pub const SMALL: f32 = 12.0;
/// Fonts of pictures: the first and the last of `--sans` and of `--mono` there.
pub const SANS: &str = "system-ui, sans-serif";
/// Of numbers.
pub const MONO: &str = "ui-monospace, monospace";

/// Reads CSS variables as they hold for an element.
pub fn variables(element: Option<Element>) -> impl Fn(&str) -> String {
    let style = element.and_then(|element| window().get_computed_style(&element).ok()?);
    move |name| style.as_ref().and_then(|style| style.get_property_value(name).ok()).unwrap_or_default()
}

/// Reads the variables of the light theme, whichever is on: a file is read on white.
pub fn light_variables() -> impl Fn(&str) -> String {
    variables(document().get_element_by_id("light"))
}

/// Moves the keyboard focus to the element with this id; the browser scrolls as far as it must. Whether nothing hides it.
pub fn focus(id: &str) -> bool {
    let element = document().get_element_by_id(id);
    if let Some(element) = &element {
        // An element of HTML like all that have ids here.
        let _ = element.unchecked_ref::<HtmlElement>().focus();
    }
    // What is hidden does not take it.
    element.is_none() || element == document().active_element()
}

/// Moves the focus to the element with this id once it is there: after this turn of the event loop.
pub fn focus_soon(id: String) {
    gloo::timers::callback::Timeout::new(0, move || _ = focus(&id)).forget();
}

/// Scrolls the row that an element stands in as far sideways as the element needs to be seen; the page stays where it is.
pub fn show_in_row(id: &str) {
    let Some(element) = document().get_element_by_id(id) else { return };
    let Some(row) = element.parent_element() else { return };
    let [own, seen] = [&element, &row].map(Element::get_bounding_client_rect);
    let beyond = (own.right() - seen.right()).max(0.0);
    let before = (seen.left() - own.left()).max(0.0);
    if beyond > 0.0 || before > 0.0 {
        row.set_scroll_left(row.scroll_left() + (beyond - before).round() as i32);
    }
}

/// What has the keyboard focus, so that it can be given back.
pub fn focused() -> Option<HtmlElement> {
    document().active_element().and_then(|element| element.dyn_into::<HtmlElement>().ok())
}

/// A name that can be a file's: letters, digits, `-` and `_`.
pub fn file_stem(name: &str) -> String {
    let mut stem = String::new();
    for c in name.chars().take(80) {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' => stem.push(c),
            _ if stem.ends_with('-') || stem.is_empty() => {}
            _ => stem.push('-'),
        }
    }
    let stem = stem.trim_matches(['-', '.']).to_owned();
    if stem.is_empty() { "plan".to_owned() } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_the_style_sheets_text() {
        let css = include_str!("../style/page.css");
        let said = |name: &str| {
            let (_, rest) = css.split_once(&format!("\n  --{name}: ")).unwrap();
            rest.split_once(';').unwrap().0
        };
        assert_eq!(said("small"), format!("{SMALL}px"));
        for (name, fonts) in [("sans", SANS), ("mono", MONO)] {
            let (first, last) = fonts.split_once(", ").unwrap();
            let all: Vec<&str> = said(name).split(", ").collect();
            assert_eq!((all.first(), all.last()), (Some(&first), Some(&last)), "{name}");
        }
    }

    #[test]
    fn a_plan_name_becomes_a_file_name() {
        assert_eq!(file_stem("minimax-m2 on 64 H100"), "minimax-m2-on-64-H100");
        assert_eq!(file_stem("../../etc/passwd"), "etc-passwd");
        assert_eq!(file_stem("???"), "plan");
    }
}
