//! Large pictures drawn by the GPU: coloured rectangles, tens of thousands of them, in one draw call.
//!
//! A module of its own, because the graphics library would double the page. The page loads it when a view wants it
//! (`canvas::loader`), and draws by itself where this finds no WebGPU.

#[cfg(target_arch = "wasm32")]
mod painter;

fn main() {
    #[cfg(target_arch = "wasm32")]
    console_error_panic_hook::set_once();
}
