//! The rank map: where each GPU of a cluster is drawn, in which colour, and by what.
//!
//! What is drawn is a list of rectangles with colours. It is drawn by the GPU from a second module where the browser
//! has WebGPU, and else by `raster` on a 2D canvas; both snap to the same pixels. Text lies on a canvas above both.

pub mod camera;
pub mod colour;
pub mod geometry;
pub mod loader;
pub mod places;
pub mod raster;
pub mod surface;
pub mod text;
pub mod watch;
