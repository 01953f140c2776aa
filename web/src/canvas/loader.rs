//! Brings the second module, `pictures`, when a view first wants it.

use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::HtmlCanvasElement;
use web_sys::js_sys::{Function, Promise, Reflect};

use crate::browser;

/// Where it is, seen from the page's own module.
const ADDRESS: &str = "./pictures.js";

#[wasm_bindgen]
extern "C" {
    /// The module's namespace.
    type Pictures;

    #[wasm_bindgen(method, catch)]
    fn start(this: &Pictures, canvas: &HtmlCanvasElement, lost: &Function) -> Result<Promise, JsValue>;

    /// A picture that the GPU draws; see `pictures::painter`.
    pub type Picture;

    /// New rectangles.
    #[wasm_bindgen(method, catch)]
    pub fn set_rectangles(this: &Picture, rectangles: &[f32]) -> Result<(), JsValue>;

    /// New colours.
    #[wasm_bindgen(method, catch)]
    pub fn set_colours(this: &Picture, colours: &[u32]) -> Result<(), JsValue>;

    /// Draws.
    #[wasm_bindgen(method, catch)]
    pub fn draw(
        this: &Picture,
        width: u32,
        height: u32,
        across: f32,
        down: f32,
        left: f32,
        top: f32,
        ground: u32,
    ) -> Result<bool, JsValue>;

    /// Gives back what it holds.
    #[wasm_bindgen(method, catch)]
    pub fn free(this: &Picture) -> Result<(), JsValue>;
}

/// A picture on `canvas`; none where the browser has no WebGPU, and then the canvas is as it was. A browser without
/// any is not sent the module.
pub async fn picture(canvas: &HtmlCanvasElement, lost: &Function) -> Option<Picture> {
    let navigator = gloo::utils::window().navigator();
    let gpu = Reflect::get(&navigator, &JsValue::from_str("gpu")).ok()?;
    if gpu.is_undefined() || gpu.is_null() {
        return None;
    }
    let module: Pictures = browser::module(ADDRESS).await.ok()?.unchecked_into();
    let picture = JsFuture::from(module.start(canvas, lost).ok()?).await.ok()?;
    (!picture.is_undefined() && !picture.is_null()).then(|| picture.unchecked_into())
}
