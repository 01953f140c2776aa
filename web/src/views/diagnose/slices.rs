//! Bytes of a file or text, a slice at a time.

use wasm_bindgen::JsValue;
use web_sys::{Blob, js_sys};

/// Something to read.
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub blob: Blob,
}

/// A text as something that is read in slices; none when the browser has no memory for it.
pub fn text_as_blob(text: &str) -> Option<Blob> {
    Blob::new_with_str_sequence(&js_sys::Array::of1(&JsValue::from_str(text))).ok()
}
