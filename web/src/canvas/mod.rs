//! Large pictures: a list of rectangles with colours, and text above them.
//!
//! They are drawn by the GPU from a second module where the browser has WebGPU, and else by `raster` on a 2D canvas;
//! both snap to the same pixels. A picture that says so is drawn as SVG in place of the canvas while it is small.
//! Text lies on a canvas above. `screen` puts these together; what a picture shows is its `Scene`.

pub mod colour;
pub mod frame;
pub mod loader;
pub mod pen;
pub mod raster;
pub mod screen;
pub mod surface;
pub mod vector;
pub mod watch;
