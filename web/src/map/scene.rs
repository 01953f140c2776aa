//! What the rank map shows: which rank is selected, which group is lit, and the part that is looked at.

use std::sync::Arc;

use web_sys::CanvasRenderingContext2d;

use super::camera::Camera;
use super::geometry::Geometry;
use super::places::{self, Column, sentence};
use super::text::Overlay;
use crate::canvas::colour::{Palette, Rgb, packed};
use crate::canvas::raster::View;
use crate::canvas::screen::{self, Cells, Scene, Shared};
use planner::Plan;
use planner::layout::Group;

/// What is drawn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawn {
    /// GPUs that are drawn.
    pub ranks: u64,
    /// GPUs of a node.
    pub per_node: u64,
    /// Nodes of an NVLink domain.
    pub joined: u64,
    /// What they can be coloured by.
    pub columns: Vec<Column>,
    /// All groups.
    pub groups: Vec<Group>,
    /// Ranks that are crossed out, ascending: their GPUs are dead.
    pub failed: Vec<u64>,
    /// What is said of those.
    pub failed_word: &'static str,
}

/// Largest world that is drawn; each rank is in a dozen groups.
pub const MOST_DRAWN: u64 = 1 << 17;

impl Drawn {
    /// The ranks of a plan, without groups, of which these (ascending) are crossed out, with what is said of them.
    pub fn of(plan: &Plan, failed: Vec<u64>, failed_word: &'static str) -> Drawn {
        let ranks = plan.world_size().min(MOST_DRAWN);
        Drawn {
            ranks,
            per_node: plan.cluster.gpus_per_node,
            joined: places::nodes_of_domain(plan),
            columns: places::columns(plan, ranks),
            groups: Vec::new(),
            failed,
            failed_word,
        }
    }

    /// Where a rank stands and whether its GPU is dead, as text.
    pub fn sentence(&self, rank: u64) -> String {
        let place = sentence(&self.columns, rank);
        match self.failed.binary_search(&rank) {
            Ok(_) => format!("{place}, {}", self.failed_word),
            Err(_) => place,
        }
    }
}

/// The map.
#[derive(Default)]
pub struct Map {
    drawn: Arc<Drawn>,
    geometry: Option<Geometry>,
    cells: Cells,
    palette: Palette,
    camera: Camera,
    screen: (f32, f32),
    /// Whether a part is looked at; the whole stays whole when the size changes.
    part: bool,
    axis: String,
    rank: u64,
    lit: Vec<u64>,
    faded: bool,
}

/// Moves the view as a key asks. Says whether the key is one for that.
pub fn look(shared: Shared<Map>, key: &str) -> bool {
    const STEP: f32 = 80.0;
    match key {
        "+" | "=" => screen::change(shared, |map| map.zoom(1.5, None)),
        "-" => screen::change(shared, |map| map.zoom(1.0 / 1.5, None)),
        "0" => screen::change(shared, Map::fit),
        "w" | "W" => screen::change(shared, |map| map.pan((0.0, STEP))),
        "s" | "S" => screen::change(shared, |map| map.pan((0.0, -STEP))),
        "a" | "A" => screen::change(shared, |map| map.pan((STEP, 0.0))),
        "d" | "D" => screen::change(shared, |map| map.pan((-STEP, 0.0))),
        _ => return false,
    }
    true
}

impl Map {
    /// Draws what is new.
    pub fn set_drawn(&mut self, drawn: Arc<Drawn>) {
        self.drawn = drawn;
        self.arrange();
        self.fit();
    }

    /// Colours, selects and lights.
    pub fn set_shown(&mut self, axis: String, rank: u64, lit: Vec<u64>, faded: bool) {
        (self.axis, self.rank, self.lit, self.faded) = (axis, rank, lit, faded);
        self.paint();
    }

    /// The next rank above or below.
    pub fn beyond(&self, rank: u64, step: f32) -> Option<u64> {
        self.geometry.and_then(|geometry| geometry.beyond(rank, step))
    }

    /// The rank at a pixel.
    pub fn rank_at(&self, pixel: (f32, f32)) -> Option<u64> {
        let (x, y) = self.camera.point(pixel);
        self.geometry.and_then(|geometry| geometry.rank_at(x, y))
    }

    /// Shows the whole.
    pub fn fit(&mut self) {
        self.part = false;
        if let Some(geometry) = self.geometry {
            self.camera = Camera::fit(geometry.size(), self.screen);
        }
    }

    /// Moves so that a rank is seen.
    pub fn show(&mut self, rank: u64) {
        if let Some(geometry) = self.geometry {
            self.camera = self.camera.showing(geometry.cell(rank), geometry.size(), self.screen);
        }
    }

    /// Places everything anew.
    fn arrange(&mut self) {
        let Drawn { ranks, per_node, joined, .. } = *self.drawn;
        if ranks == 0 {
            return;
        }
        let geometry = Geometry::new(ranks, per_node, joined, self.screen.0 / self.screen.1.max(1.0));
        if self.geometry != Some(geometry) {
            self.geometry = Some(geometry);
            self.cells.set_rectangles(geometry.rectangles());
        }
        self.paint();
    }

    /// Colours everything anew.
    fn paint(&mut self) {
        let Some(geometry) = self.geometry else { return };
        let (blocks, nodes) = geometry.boxes();
        let mut colours = vec![packed(self.palette.block); blocks];
        colours.resize(blocks + nodes, packed(self.palette.ground));
        if let Some(column) = self.drawn.columns.iter().find(|column| column.id == self.axis) {
            // Colours of large worlds come in a few kinds; each is made once.
            let kinds: Vec<u32> =
                (0..column.count).map(|value| packed(self.palette.of(value, column.count))).collect();
            colours
                .extend(column.values.iter().map(|&value| kinds.get(value as usize).copied().unwrap_or(0)));
        }
        if self.fades() {
            let cells = blocks + nodes;
            let mut lit: Vec<(usize, u32)> = Vec::with_capacity(self.lit.len());
            for &rank in &self.lit {
                lit.extend(colours.get(cells + rank as usize).map(|&colour| (cells + rank as usize, colour)));
            }
            for colour in &mut colours[cells..] {
                let [red, green, blue, _] = colour.to_le_bytes();
                *colour = packed(self.palette.faded([red, green, blue]));
            }
            for (at, colour) in lit {
                colours[at] = colour;
            }
        }
        for &rank in &self.drawn.failed {
            if let Some(colour) = colours.get_mut(blocks + nodes + rank as usize) {
                *colour = packed(self.palette.failed);
            }
        }
        self.cells.set_colours(colours);
    }

    /// A group of one says nothing, and one of all leaves nobody to step back.
    fn fades(&self) -> bool {
        self.faded && self.lit.len() > 1
    }
}

impl Scene for Map {
    // The same pixels with a GPU and without: an SVG of 131,072 cells would not do.
    const VECTOR: bool = false;

    fn resize(&mut self, screen: (f32, f32)) {
        self.screen = screen;
        self.arrange();
        if self.part {
            self.pan((0.0, 0.0));
        } else {
            self.fit();
        }
    }

    fn recolour(&mut self, palette: &Palette) {
        self.palette = palette.clone();
        self.paint();
    }

    fn cells(&mut self) -> &mut Cells {
        &mut self.cells
    }

    fn view(&self) -> Option<View> {
        let Camera { scale, offset } = self.camera;
        self.geometry.map(|_| View { scale: (scale, scale), offset })
    }

    fn zoom(&mut self, factor: f32, pixel: Option<(f32, f32)>) {
        let Some(geometry) = self.geometry else { return };
        let [left, top, width, height] = geometry.cell(self.rank.min(geometry.world() - 1));
        let Camera { scale, offset } = self.camera;
        let selected = ((left + width / 2.0) * scale + offset.0, (top + height / 2.0) * scale + offset.1);
        self.camera = self.camera.zoomed(factor, pixel.unwrap_or(selected), geometry.size(), self.screen);
        self.part = self.camera.scale > Camera::fit(geometry.size(), self.screen).scale;
    }

    fn pan(&mut self, by: (f32, f32)) {
        if let Some(geometry) = self.geometry {
            self.camera = self.camera.moved(by, geometry.size(), self.screen);
        }
    }

    fn hint(&self, pixel: (f32, f32)) -> Option<String> {
        self.rank_at(pixel).map(|rank| self.drawn.sentence(rank))
    }

    fn write(&self, context: &CanvasRenderingContext2d) {
        let Some(geometry) = self.geometry else { return };
        let colours = self.cells.colours();
        let column = self.drawn.columns.iter().find(|column| column.id == self.axis);
        let first = colours.len().saturating_sub(self.drawn.ranks as usize);
        let ground = packed(self.palette.ground);
        let cell = |rank: u64| -> (Rgb, u32) {
            let [red, green, blue, _] =
                colours.get(first + rank as usize).copied().unwrap_or(ground).to_le_bytes();
            let value = column.and_then(|column| column.values.get(rank as usize)).copied();
            ([red, green, blue], value.unwrap_or(0))
        };
        let overlay = Overlay {
            geometry: &geometry,
            camera: self.camera,
            screen: self.screen,
            palette: &self.palette,
            selected: self.rank,
            lit: &self.lit,
            failed: &self.drawn.failed,
            cell: &cell,
        };
        overlay.draw(context);
    }

    fn says(&self) -> Vec<(&'static str, String)> {
        let lit = if self.fades() { self.lit.len() } else { 0 };
        vec![
            ("data-ranks", self.drawn.ranks.to_string()),
            ("data-rank", self.rank.to_string()),
            ("data-colour", self.axis.clone()),
            ("data-lit", lit.to_string()),
            ("data-failed", self.drawn.failed.len().to_string()),
        ]
    }
}
