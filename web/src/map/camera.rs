//! What part of the picture is on screen.

/// Largest side of a cell in CSS pixels.
const LARGEST: f32 = 112.0;

/// A point of the picture times `scale` plus `offset` is a pixel of the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Camera {
    /// Pixels per unit.
    pub scale: f32,
    /// Left and top, in pixels.
    pub offset: (f32, f32),
}

impl Camera {
    /// The whole picture in the middle of the screen.
    pub fn fit(picture: (f32, f32), screen: (f32, f32)) -> Camera {
        let scale = (screen.0 / picture.0).min(screen.1 / picture.1).clamp(0.01, LARGEST);
        Camera { scale, offset: ((screen.0 - picture.0 * scale) / 2.0, (screen.1 - picture.1 * scale) / 2.0) }
    }

    /// The point of the picture under a pixel.
    pub fn point(&self, pixel: (f32, f32)) -> (f32, f32) {
        ((pixel.0 - self.offset.0) / self.scale, (pixel.1 - self.offset.1) / self.scale)
    }

    /// Larger or smaller around a pixel, no smaller than the whole.
    pub fn zoomed(self, factor: f32, pixel: (f32, f32), picture: (f32, f32), screen: (f32, f32)) -> Camera {
        let least = Camera::fit(picture, screen).scale;
        let scale = (self.scale * factor).clamp(least, LARGEST.max(least));
        let (x, y) = self.point(pixel);
        Camera { scale, offset: (pixel.0 - x * scale, pixel.1 - y * scale) }.held(picture, screen)
    }

    /// Moved by pixels.
    pub fn moved(self, by: (f32, f32), picture: (f32, f32), screen: (f32, f32)) -> Camera {
        Camera { scale: self.scale, offset: (self.offset.0 + by.0, self.offset.1 + by.1) }
            .held(picture, screen)
    }

    /// Moved as little as shows a rectangle.
    pub fn showing(
        self,
        [left, top, width, height]: [f32; 4],
        picture: (f32, f32),
        screen: (f32, f32),
    ) -> Camera {
        let along = |start: f32, length: f32, offset: f32, screen: f32| {
            let (from, to) = (start * self.scale + offset, (start + length) * self.scale + offset);
            if from < 0.0 {
                -from
            } else if to > screen {
                screen - to
            } else {
                0.0
            }
        };
        let by = (along(left, width, self.offset.0, screen.0), along(top, height, self.offset.1, screen.1));
        self.moved(by, picture, screen)
    }

    /// Kept over the picture: centred where it is smaller than the screen, else without a margin.
    fn held(self, picture: (f32, f32), screen: (f32, f32)) -> Camera {
        let along = |offset: f32, picture: f32, screen: f32| {
            let room = screen - picture * self.scale;
            if room >= 0.0 { room / 2.0 } else { offset.clamp(room, 0.0) }
        };
        Camera {
            scale: self.scale,
            offset: (along(self.offset.0, picture.0, screen.0), along(self.offset.1, picture.1, screen.1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: (f32, f32) = (400.0, 100.0);
    const SCREEN: (f32, f32) = (800.0, 500.0);

    #[test]
    fn the_whole_is_centred() {
        let camera = Camera::fit(PICTURE, SCREEN);
        assert_eq!(camera, Camera { scale: 2.0, offset: (0.0, 150.0) });
        assert_eq!(camera.zoomed(0.5, (1.0, 1.0), PICTURE, SCREEN), camera);
    }

    #[test]
    fn zooming_keeps_the_point_under_the_pointer() {
        let camera = Camera::fit(PICTURE, SCREEN);
        let near = camera.zoomed(8.0, (300.0, 250.0), PICTURE, SCREEN);
        let (before, after) = (camera.point((300.0, 250.0)), near.point((300.0, 250.0)));
        assert!(
            (before.0 - after.0).abs() < 0.01 && (before.1 - after.1).abs() < 0.01,
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn a_rectangle_comes_into_sight() {
        let near = Camera::fit(PICTURE, SCREEN).zoomed(20.0, (0.0, 150.0), PICTURE, SCREEN);
        let there = near.showing([390.0, 90.0, 1.0, 1.0], PICTURE, SCREEN);
        let (x, y) = there.point((SCREEN.0, SCREEN.1));
        assert!(x >= 390.9 && y >= 90.9, "{x} {y}");
    }
}
