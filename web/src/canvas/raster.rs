//! Rectangles to pixels without a GPU. The edges are those of the shader, so that both draw the same picture.

/// Colours of a picture: red in the lowest byte, as in an image's memory.
pub type Colour = u32;

/// What part of a picture is on screen: a point of it times `scale` plus `offset` is a pixel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct View {
    /// Pixels per unit, across and down.
    pub scale: (f32, f32),
    /// Left and top, in pixels.
    pub offset: (f32, f32),
}

impl View {
    /// The same on a screen with this many pixels for each of ours.
    pub fn times(self, ratio: f32) -> View {
        View {
            scale: (self.scale.0 * ratio, self.scale.1 * ratio),
            offset: (self.offset.0 * ratio, self.offset.1 * ratio),
        }
    }
}

/// Fills `pixels`, `width` by `height`, with the ground and the rectangles.
pub fn draw(
    pixels: &mut Vec<Colour>,
    (width, height): (usize, usize),
    rectangles: &[f32],
    colours: &[Colour],
    view: View,
    ground: Colour,
) {
    pixels.clear();
    pixels.resize(width * height, ground);
    for (rectangle, &colour) in rectangles.as_chunks::<4>().0.iter().zip(colours) {
        let [left, top, across, down] = *rectangle;
        let (from, to) = edges(left, across, view.scale.0, view.offset.0, width);
        let (above, below) = edges(top, down, view.scale.1, view.offset.1, height);
        if from < to {
            for row in above..below {
                pixels[row * width + from..row * width + to].fill(colour);
            }
        }
    }
}

/// First pixel and the one after the last, cut to the screen. What is in the picture has at least one pixel.
pub fn edges(start: f32, length: f32, scale: f32, offset: f32, screen: usize) -> (usize, usize) {
    let from = (start * scale + offset + 0.5).floor();
    let to = ((start + length) * scale + offset + 0.5).floor().max(from + 1.0);
    // A negative float becomes 0.
    ((from as usize).min(screen), (to as usize).min(screen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_are_cut_to_the_screen_and_never_vanish() {
        let mut pixels = Vec::new();
        let rectangles = [-1.0, -1.0, 2.0, 2.0, 1.5, 0.0, 0.01, 0.5, 9.0, 9.0, 1.0, 1.0];
        let view = View { scale: (2.0, 2.0), offset: (0.0, 0.0) };
        draw(&mut pixels, (4, 3), &rectangles, &[1, 2, 3], view, 0);
        assert_eq!(pixels, [1, 1, 0, 2, 1, 1, 0, 0, 0, 0, 0, 0]);
    }
}
