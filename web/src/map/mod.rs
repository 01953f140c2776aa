//! The rank map: where each GPU of a cluster is drawn, in which colour, and by what.

pub mod camera;
pub mod export;
pub mod geometry;
pub mod places;
pub mod scene;
pub mod text;
