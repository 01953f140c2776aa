//! Bytes of a file or text, a slice at a time.

use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
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

/// The bytes from `start` to `end`; none when they can't be read any more.
pub async fn slice(blob: &Blob, start: f64, end: f64) -> Option<Vec<u8>> {
    let part = blob.slice_with_f64_and_f64(start, end).ok()?;
    let buffer = JsFuture::from(part.array_buffer()).await.ok()?;
    Some(js_sys::Uint8Array::new(&buffer).to_vec())
}
