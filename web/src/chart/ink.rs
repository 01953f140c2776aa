//! Colours of charts. A chart is drawn with markers for colours; on the page they become CSS variables, so that a
//! change of theme needs no redrawing, and in an exported file the light theme's values.

use plotters::style::RGBColor;

use crate::browser;

/// What a mark means, which decides its colour and its pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ink {
    /// Weights.
    Weights,
    /// Gradients.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// Activations.
    Activations,
    /// Transient peak: hatched.
    Transient,
    /// What the allocator holds beyond what is allocated.
    Rounding,
    /// Outside the allocator: dotted.
    Outside,
    /// Text.
    Text,
    /// Axis text.
    Muted,
    /// Grid lines.
    Grid,
    /// The page behind.
    Ground,
    /// Capacity line.
    Capacity,
    /// What was measured: an outline.
    Measured,
    /// A curve.
    Curve,
    /// Seconds of computing.
    Compute,
    /// Seconds of communication.
    Communication,
    /// Seconds of waiting: dotted.
    Waiting,
}

impl Ink {
    /// All of them.
    pub const ALL: [Ink; 17] = [
        Ink::Weights,
        Ink::Gradients,
        Ink::Optimizer,
        Ink::Activations,
        Ink::Transient,
        Ink::Rounding,
        Ink::Outside,
        Ink::Text,
        Ink::Muted,
        Ink::Grid,
        Ink::Ground,
        Ink::Capacity,
        Ink::Measured,
        Ink::Curve,
        Ink::Compute,
        Ink::Communication,
        Ink::Waiting,
    ];

    /// The marker that a drawing carries in place of the colour.
    pub fn marker(self) -> RGBColor {
        RGBColor(0x53, 0x50, self as u8)
    }

    /// The CSS variable.
    pub fn variable(self) -> &'static str {
        match self {
            Ink::Weights => "--weights",
            Ink::Gradients => "--gradients",
            Ink::Optimizer => "--optimizer",
            Ink::Activations => "--activations",
            Ink::Transient => "--transient",
            Ink::Rounding => "--rounding",
            Ink::Outside => "--outside",
            Ink::Text => "--text",
            Ink::Muted => "--muted",
            Ink::Grid => "--grid",
            Ink::Ground => "--surface",
            Ink::Capacity => "--capacity",
            Ink::Measured => "--measured",
            Ink::Curve => "--accent",
            Ink::Compute => "--backward",
            Ink::Communication => "--communication",
            Ink::Waiting => "--outside",
        }
    }

    fn pattern(self) -> Option<&'static str> {
        match self {
            Ink::Transient => Some("hatch"),
            Ink::Outside | Ink::Waiting => Some("dots"),
            _ => None,
        }
    }
}

/// The drawing as it stands on the page; `id` keeps its patterns apart from those of other charts.
pub fn for_page(svg: &str, id: &str) -> String {
    dress(svg, id, |ink| format!("var({})", ink.variable()))
}

/// The drawing as a file of its own; `colour` reads a CSS variable.
pub fn for_export(svg: &str, colour: impl Fn(&str) -> String) -> String {
    let dressed = dress(svg, "chart", |ink| colour(ink.variable()));
    let dressed = dressed.replacen("<svg ", &format!("<svg font-family=\"{}\" ", browser::SANS), 1);
    let ground = colour(Ink::Ground.variable());
    insert_first(&dressed, &format!("<rect width=\"100%\" height=\"100%\" fill=\"{ground}\"/>"))
}

fn dress(svg: &str, id: &str, colour: impl Fn(Ink) -> String) -> String {
    let mut dressed = svg.to_owned();
    for ink in Ink::ALL {
        let marker = format!("\"#5350{:02X}\"", ink as u8);
        if let Some(pattern) = ink.pattern() {
            dressed = dressed.replace(&format!("fill={marker}"), &format!("fill=\"url(#{id}-{pattern})\""));
        }
        dressed = dressed.replace(&marker, &format!("\"{}\"", colour(ink)));
    }
    insert_first(&dressed, &patterns(id, colour(Ink::Transient), colour(Ink::Outside), colour(Ink::Ground)))
}

fn patterns(id: &str, hatch: String, dots: String, ground: String) -> String {
    format!(
        "<defs><pattern id=\"{id}-hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"6\" height=\"6\" fill=\"{ground}\"/><rect width=\"3.5\" height=\"6\" fill=\"{hatch}\"/></pattern>\
         <pattern id=\"{id}-dots\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
         <rect width=\"5\" height=\"5\" fill=\"{ground}\"/><circle cx=\"2.5\" cy=\"2.5\" r=\"1.6\" fill=\"{dots}\"/></pattern></defs>\n"
    )
}

fn insert_first(svg: &str, part: &str) -> String {
    match svg.find('>') {
        Some(end) => format!("{}{part}{}", &svg[..=end], &svg[end + 1..]),
        None => svg.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_is_replaced() {
        let drawing: String = Ink::ALL
            .iter()
            .map(|ink| format!("<rect fill=\"#5350{:02X}\" stroke=\"#5350{:02X}\"/>", *ink as u8, *ink as u8))
            .collect();
        let page = for_page(&format!("<svg width=\"1\">{drawing}</svg>"), "x");
        assert!(!page.contains("#5350"), "{page}");
        assert!(
            page.contains("fill=\"url(#x-hatch)\"") && page.contains("stroke=\"var(--transient)\""),
            "{page}"
        );
        let read = |variable: &str| format!("#{}", variable.len());
        let file = for_export(&format!("<svg width=\"1\">{drawing}</svg>"), read);
        assert!(!file.contains("var(") && !file.contains("#5350"), "{file}");
    }
}
