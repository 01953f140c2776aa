//! Where each GPU stands in the picture, in units of a cell: cells in nodes, nodes in NVLink domains, those in rows.

/// Room around the square of a cell.
const INSET: f32 = 0.06;
/// Between nodes of one block; a node's name stands in it.
const NODE_GAP: f32 = 0.45;
/// Between blocks.
const BLOCK_GAP: f32 = 0.5;
/// Around the nodes of a domain.
const PADDING: f32 = 0.3;
/// Nodes of a domain in one column.
const STACK: u64 = 32;

/// A rectangle: left, top, width, height.
pub type Rectangle = [f32; 4];

/// The picture's plan: a block is an NVLink domain that joins several nodes, or else one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Geometry {
    world: u64,
    per_node: u64,
    /// Nodes of a block.
    nodes: u64,
    /// Cells of a node in a row.
    columns: u64,
    /// Nodes of a block in a column.
    stack: u64,
    /// Blocks in a row.
    across: u64,
}

impl Geometry {
    /// `world` GPUs in nodes, `joined` nodes to a domain, in a picture of about this width to height.
    pub fn new(world: u64, per_node: u64, joined: u64, aspect: f32) -> Geometry {
        let (world, per_node) = (world.max(1), per_node.max(1));
        let nodes = joined.clamp(1, world.div_ceil(per_node));
        let joined = nodes > 1;
        // A node of a rack is a tray: one row. A node on its own is a block of about two rows to four columns.
        let columns = match (joined, per_node) {
            (true, 1..=8) => per_node,
            (_, 1..=3) => per_node,
            (_, 4..=16) => ((per_node as f64).sqrt().ceil() as u64).next_power_of_two(),
            _ => (per_node as f64).sqrt().ceil() as u64,
        };
        let mut geometry =
            Geometry { world, per_node, nodes, columns, stack: nodes.clamp(1, STACK), across: 1 };
        let (width, height) = geometry.pitch();
        let blocks = geometry.blocks();
        let across = (blocks as f32 * f32::max(aspect, 0.01) * height / width).sqrt().round() as u64;
        geometry.across = across.clamp(1, blocks);
        geometry
    }

    /// GPUs in all.
    pub fn world(&self) -> u64 {
        self.world
    }

    /// Whether a block is more than a node.
    pub fn has_domains(&self) -> bool {
        self.nodes > 1
    }

    /// Blocks in all.
    pub fn blocks(&self) -> u64 {
        self.world.div_ceil(self.per_node * self.nodes)
    }

    /// Nodes in all.
    pub fn node_count(&self) -> u64 {
        self.world.div_ceil(self.per_node)
    }

    /// Width and height of the whole.
    pub fn size(&self) -> (f32, f32) {
        let (width, height) = self.pitch();
        (
            width * self.across as f32 + BLOCK_GAP,
            height * self.blocks().div_ceil(self.across) as f32 + BLOCK_GAP,
        )
    }

    fn padding(&self) -> f32 {
        if self.has_domains() { PADDING } else { 0.0 }
    }

    fn rows(&self) -> u64 {
        self.per_node.div_ceil(self.columns)
    }

    /// From one node of a block to the next.
    fn node_pitch(&self) -> (f32, f32) {
        (self.columns as f32 + NODE_GAP, self.rows() as f32 + NODE_GAP)
    }

    /// From one block to the next.
    fn pitch(&self) -> (f32, f32) {
        let (width, height) = self.block_size();
        (width + BLOCK_GAP, height + BLOCK_GAP)
    }

    fn block_size(&self) -> (f32, f32) {
        let (width, height) = self.node_pitch();
        let side = self.nodes.div_ceil(self.stack) as f32;
        if self.has_domains() {
            // A name above every node, the first ones included.
            (side * width - NODE_GAP + 2.0 * PADDING, self.stack as f32 * height + 2.0 * PADDING)
        } else {
            (self.columns as f32, self.rows() as f32)
        }
    }

    /// The rectangle of a block.
    pub fn block(&self, block: u64) -> Rectangle {
        let (pitch, (width, height)) = (self.pitch(), self.block_size());
        let column = (block % self.across) as f32;
        let row = (block / self.across) as f32;
        [BLOCK_GAP + column * pitch.0, BLOCK_GAP + row * pitch.1, width, height]
    }

    /// The rectangle of a node.
    pub fn node(&self, node: u64) -> Rectangle {
        let [left, top, ..] = self.block(node / self.nodes);
        let (pitch, padding, slot) = (self.node_pitch(), self.padding(), node % self.nodes);
        let name = if self.has_domains() { NODE_GAP } else { 0.0 };
        [
            left + padding + (slot / self.stack) as f32 * pitch.0,
            top + padding + name + (slot % self.stack) as f32 * pitch.1,
            self.columns as f32,
            self.rows() as f32,
        ]
    }

    /// The rectangle of a rank's cell.
    pub fn cell(&self, rank: u64) -> Rectangle {
        let [left, top, ..] = self.node(rank / self.per_node);
        let slot = rank % self.per_node;
        let (column, row) = (slot % self.columns, slot / self.columns);
        let side = 1.0 - 2.0 * INSET;
        [left + column as f32 + INSET, top + row as f32 + INSET, side, side]
    }

    /// The rank at a point; the seams between the cells of a node belong to the cells.
    pub fn rank_at(&self, x: f32, y: f32) -> Option<u64> {
        let pitch = self.pitch();
        let (column, row) = (whole((x - BLOCK_GAP) / pitch.0)?, whole((y - BLOCK_GAP) / pitch.1)?);
        let block = (column < self.across).then(|| row * self.across + column)?;
        let [left, top, ..] = self.node(block * self.nodes);
        let node_pitch = self.node_pitch();
        let (side, place) = (whole((x - left) / node_pitch.0)?, whole((y - top) / node_pitch.1)?);
        let slot =
            (place < self.stack).then(|| side * self.stack + place).filter(|&slot| slot < self.nodes)?;
        let node = block * self.nodes + slot;
        let [left, top, ..] = self.node(node);
        let (column, row) = (whole(x - left)?, whole(y - top)?);
        let cell =
            (column < self.columns).then(|| row * self.columns + column).filter(|&c| c < self.per_node)?;
        Some(node * self.per_node + cell).filter(|&rank| rank < self.world)
    }

    /// The next rank above (`-1`) or below (`1`).
    pub fn beyond(&self, rank: u64, step: f32) -> Option<u64> {
        let [left, top, width, height] = self.cell(rank);
        let (x, mut y, end) = (left + width / 2.0, top + height / 2.0, self.size().1);
        loop {
            y += step * 0.5;
            if y < 0.0 || y > end {
                return None;
            }
            if let Some(found) = self.rank_at(x, y).filter(|&found| found != rank) {
                return Some(found);
            }
        }
    }

    /// All rectangles in the order of drawing: blocks, nodes where they are not the blocks, cells by rank.
    pub fn rectangles(&self) -> Vec<f32> {
        let nodes = if self.has_domains() { self.node_count() } else { 0 };
        let boxes = (0..self.blocks()).map(|block| self.block(block));
        let boxes = boxes.chain((0..nodes).map(|node| self.node(node)));
        boxes.chain((0..self.world).map(|rank| self.cell(rank))).flatten().collect()
    }

    /// Rectangles before those of the cells: those of blocks, and of nodes.
    pub fn boxes(&self) -> (usize, usize) {
        let nodes = if self.has_domains() { self.node_count() } else { 0 };
        (self.blocks() as usize, nodes as usize)
    }
}

/// The whole part of what is not negative.
fn whole(value: f32) -> Option<u64> {
    (value >= 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// World, GPUs of a node, nodes of a domain.
    const CLUSTERS: [(u64, u64, u64); 8] = [
        (1, 1, 1),
        (64, 8, 1),
        (100, 8, 1),
        (144, 4, 18),
        (100, 4, 18),
        (576, 1, 576),
        (4096, 16, 2),
        (131_072, 8, 1),
    ];

    #[test]
    fn a_cell_is_found_where_it_is_drawn() {
        for (world, per_node, joined) in CLUSTERS {
            for aspect in [0.4, 2.0] {
                let geometry = Geometry::new(world, per_node, joined, aspect);
                let (width, height) = geometry.size();
                for rank in (0..world).step_by(1 + world as usize / 977).chain([world - 1]) {
                    let [x, y, w, h] = geometry.cell(rank);
                    assert_eq!(geometry.rank_at(x + w / 2.0, y + h / 2.0), Some(rank), "{geometry:?}");
                    assert!(x > 0.0 && y > 0.0 && x + w < width && y + h < height, "{geometry:?} {rank}");
                }
                assert_eq!(geometry.rank_at(0.1, 0.1), None);
                assert_eq!(geometry.rank_at(width + 9.0, height + 9.0), None);
            }
        }
    }

    #[test]
    fn the_picture_has_about_the_shape_that_is_asked_for() {
        let (width, height) = Geometry::new(131_072, 8, 1, 2.0).size();
        assert!((1.8..2.2).contains(&(width / height)), "{width} x {height}");
    }

    #[test]
    fn nodes_of_a_domain_lie_in_its_box() {
        let geometry = Geometry::new(144, 4, 18, 2.0);
        assert!(geometry.has_domains() && geometry.blocks() == 2 && geometry.node_count() == 36);
        for node in 0..36 {
            let [left, top, width, height] = geometry.block(node / 18);
            let [x, y, w, h] = geometry.node(node);
            assert!(x > left && y > top && x + w < left + width && y + h < top + height, "{node}");
        }
        assert_eq!(geometry.rectangles().len(), 4 * (2 + 36 + 144));
    }

    #[test]
    fn up_and_down_are_each_other() {
        let geometry = Geometry::new(1024, 8, 1, 2.0);
        assert_eq!(geometry.beyond(0, 1.0), Some(4));
        assert_eq!(geometry.beyond(4, -1.0), Some(0));
        assert_eq!(geometry.beyond(0, -1.0), None);
        let below = geometry.beyond(4, 1.0).expect("more nodes below");
        assert_eq!(geometry.beyond(below, -1.0), Some(4));
    }
}
