//! Rectangles as SVG: for small pictures where there is no WebGPU, and for files.

use std::fmt::Write;

use super::colour::css;
use super::raster::{Colour, View, edges};

/// Rectangles up to which a picture is drawn as SVG: beyond, a browser takes longer over the elements than over pixels.
pub const MOST: usize = 2000;

/// An SVG of what is on a screen of this size, in CSS pixels, snapped to them as `raster` does; `overlay` is put on top.
pub fn svg(
    (width, height): (f32, f32),
    rectangles: &[f32],
    colours: &[Colour],
    view: View,
    ground: Colour,
    overlay: &str,
) -> String {
    let (across, down) = (width.ceil() as usize, height.ceil() as usize);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{across}\" height=\"{down}\" viewBox=\"0 0 {across} {down}\" \
         shape-rendering=\"crispEdges\"><rect width=\"100%\" height=\"100%\" fill=\"{}\"/>",
        name(ground)
    );
    for (&[left, top, length, depth], &colour) in rectangles.as_chunks::<4>().0.iter().zip(colours) {
        let (from, to) = edges(left, length, view.scale.0, view.offset.0, across);
        let (above, below) = edges(top, depth, view.scale.1, view.offset.1, down);
        if from < to && above < below {
            // Writing to a String can't fail.
            let _ = write!(
                out,
                "<rect x=\"{from}\" y=\"{above}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                to - from,
                below - above,
                name(colour)
            );
        }
    }
    out.push_str(overlay);
    out.push_str("</svg>");
    out
}

fn name(colour: Colour) -> String {
    let [red, green, blue, _] = colour.to_le_bytes();
    css([red, green, blue])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_screen_is_written_and_nothing_else() {
        let rectangles = [0.0, 0.0, 2.0, 1.0, 50.0, 0.0, 1.0, 1.0];
        let view = View { scale: (10.0, 5.0), offset: (3.0, 0.0) };
        let text = svg((100.0, 20.0), &rectangles, &[0xff03_0201, 0xff00_00ff], view, 0xffff_ffff, "<g/>");
        assert!(
            text.contains("<rect x=\"3\" y=\"0\" width=\"20\" height=\"5\" fill=\"#010203\"/>"),
            "{text}"
        );
        assert!(!text.contains("#ff0000") && text.ends_with("<g/></svg>"), "{text}");
    }
}
