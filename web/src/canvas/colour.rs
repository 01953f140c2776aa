//! Colours of the page for pictures: read from the CSS variables, mixed, and laid along the ramp.

use super::raster::Colour;

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Names of the ramp's CSS variables, from the first to the last.
pub const RAMP: [&str; 5] = ["--ramp-0", "--ramp-1", "--ramp-2", "--ramp-3", "--ramp-4"];

/// What a map is coloured with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Palette {
    /// Behind everything.
    pub ground: Rgb,
    /// Boxes of domains and nodes.
    pub block: Rgb,
    /// Text, and outlines of a group.
    pub text: Rgb,
    /// Names of nodes.
    pub muted: Rgb,
    /// The selected one.
    pub accent: Rgb,
    /// Forward of a timeline.
    pub forward: Rgb,
    /// Backward, or backward of the input.
    pub backward: Rgb,
    /// Backward of the weights.
    pub backward_weight: Rgb,
    /// Communication.
    pub communication: Rgb,
    /// What is dead.
    pub failed: Rgb,
    /// The ramp.
    pub ramp: [Rgb; RAMP.len()],
}

impl Palette {
    /// Reads the variables; one that is no `#rrggbb` is middle grey.
    pub fn read(variable: impl Fn(&str) -> String) -> Palette {
        let read = |name: &str| parse(&variable(name)).unwrap_or([128; 3]);
        Palette {
            ground: read("--surface"),
            block: read("--grid"),
            text: read("--text"),
            muted: read("--muted"),
            accent: read("--accent"),
            forward: read("--forward"),
            backward: read("--backward"),
            backward_weight: read("--backward-weight"),
            communication: read("--communication"),
            failed: read("--capacity"),
            ramp: RAMP.map(read),
        }
    }

    /// The colour of `value` of `count` values.
    pub fn of(&self, value: u64, count: u64) -> Rgb {
        let last = (self.ramp.len() - 1) as f32;
        let along =
            if count > 1 { value.min(count - 1) as f32 / (count - 1) as f32 * last } else { last / 2.0 };
        let low = (along as usize).min(self.ramp.len() - 2);
        mix(self.ramp[low], self.ramp[low + 1], along - low as f32)
    }

    /// A colour that steps back behind the lit ones.
    pub fn faded(&self, colour: Rgb) -> Rgb {
        mix(self.ground, colour, 0.28)
    }

    /// A share of the ground in it.
    pub fn paler(&self, colour: Rgb, share: f32) -> Rgb {
        mix(colour, self.ground, share)
    }
}

/// `#rrggbb`.
fn parse(text: &str) -> Option<Rgb> {
    let digits = text.trim().strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    Some([byte(0)?, byte(2)?, byte(4)?])
}

/// From `a` (0) to `b` (1).
fn mix(a: Rgb, b: Rgb, share: f32) -> Rgb {
    std::array::from_fn(|i| (f32::from(a[i]) + (f32::from(b[i]) - f32::from(a[i])) * share).round() as u8)
}

/// Opaque, as in a picture's memory.
pub fn packed([red, green, blue]: Rgb) -> Colour {
    u32::from_le_bytes([red, green, blue, 255])
}

/// As CSS.
pub fn css([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Black or white, whichever is read better on a colour.
pub fn ink_on([red, green, blue]: Rgb) -> Rgb {
    let linear = |byte: u8| (f32::from(byte) / 255.0).powf(2.2);
    let light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
    if light > 0.179 { [0; 3] } else { [255; 3] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_goes_from_end_to_end() {
        let palette = Palette::read(|name| match name {
            "--ramp-0" => " #000000".to_owned(),
            "--ramp-4" => "#ffffff".to_owned(),
            "--ramp-2" => "#0a0b0c".to_owned(),
            _ => "nonsense".to_owned(),
        });
        assert_eq!(palette.of(0, 8), [0, 0, 0]);
        assert_eq!(palette.of(7, 8), [255, 255, 255]);
        assert_eq!(palette.of(0, 1), [10, 11, 12]);
        assert_eq!(palette.text, [128, 128, 128]);
        assert_eq!(css(palette.of(0, 1)), "#0a0b0c");
        assert_eq!(packed([1, 2, 3]), 0xff03_0201);
    }

    #[test]
    fn text_is_read_on_any_colour() {
        assert_eq!(ink_on([255, 231, 76]), [0; 3]);
        assert_eq!(ink_on([44, 17, 96]), [255; 3]);
    }
}
