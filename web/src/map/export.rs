//! The rank map as files: a table of where every rank stands, and a picture coloured by one coordinate.

use std::fmt::{Display, Write};

use planner::units::counted;

use super::places::Column;
use super::scene::Drawn;
use crate::kit::Sheet;

/// Side of a cell in the picture, and the step from one to the next.
const CELL: u64 = 8;
const STEP: u64 = 10;
/// Space between nodes.
const GAP: u64 = 6;

/// Node, GPU of the node and all coordinates of every rank.
pub fn write_ranks(drawn: &Drawn, sheet: &mut Sheet) {
    let columns: Vec<&Column> = drawn.columns.iter().filter(|column| column.id != "node").collect();
    let mut row =
        |first: [&dyn Display; 3], others: &[&dyn Display]| sheet.row(&[&first[..], others].concat());
    let ids: Vec<&dyn Display> = columns.iter().map(|column| &column.id as &dyn Display).collect();
    row([&"rank", &"node", &"gpu"], &ids);
    let per_node = drawn.per_node.max(1);
    for rank in 0..drawn.ranks {
        let value = |column: &&Column| column.values.get(rank as usize).copied().unwrap_or_default();
        let values: Vec<u32> = columns.iter().map(value).collect();
        let values: Vec<&dyn Display> = values.iter().map(|value| value as &dyn Display).collect();
        row([&rank, &(rank / per_node), &(rank % per_node)], &values);
    }
}

/// Every GPU as a square, a node's in a row, coloured by the column `axis`: one path for each value.
pub fn to_svg(drawn: &Drawn, axis: &str) -> String {
    let per_node = drawn.per_node.max(1);
    let (nodes, wide) = (drawn.ranks.div_ceil(per_node).max(1), per_node * STEP + GAP);
    // About as wide as high.
    let across = nodes.saturating_mul(STEP + GAP).div_ceil(wide).isqrt().max(1);
    let column = drawn.columns.iter().find(|column| column.id == axis);
    let value = |rank: u64| column.and_then(|column| column.values.get(rank as usize)).copied().unwrap_or(0);
    let mut paths: std::collections::BTreeMap<u32, String> = std::collections::BTreeMap::new();
    for rank in 0..drawn.ranks {
        let (node, gpu) = (rank / per_node, rank % per_node);
        let (x, y) = (GAP + node % across * wide + gpu * STEP, GAP + node / across * (STEP + GAP));
        let path = paths.entry(value(rank)).or_default();
        let _ = write!(path, "M{x} {y}h{CELL}v{CELL}h-{CELL}z");
    }
    let (width, height) = (GAP + across * wide, GAP + nodes.div_ceil(across) * (STEP + GAP));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n<title>{} by {axis}</title>\n",
        counted(drawn.ranks, "rank")
    );
    let last = column.map_or(1, |column| column.count).saturating_sub(1).max(1);
    for (value, path) in paths {
        // From blue over green to yellow, and lighter, so that it reads without colour too.
        let share = u64::from(value).min(last) * 1000 / last;
        let (hue, light) = (240 - 190 * share / 1000, 32 + 36 * share / 1000);
        let _ = writeln!(
            text,
            "<path fill=\"hsl({hue} 62% {light}%)\" d=\"{path}\"><title>{axis} {value}</title></path>"
        );
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn() -> Drawn {
        let column = |id, name, values: [u32; 4]| Column { id, name, values: values.to_vec(), count: 2 };
        Drawn {
            ranks: 4,
            per_node: 2,
            columns: vec![column("tp", "tensor", [0, 1, 0, 1]), column("node", "node", [0, 0, 1, 1])],
            ..Drawn::default()
        }
    }

    #[test]
    fn every_rank_has_a_line() {
        let mut sheet = Sheet::csv();
        write_ranks(&drawn(), &mut sheet);
        assert_eq!(sheet.text(), "rank,node,gpu,tp\n0,0,0,0\n1,0,1,1\n2,1,0,0\n3,1,1,1\n");
    }

    #[test]
    fn every_rank_has_a_square_of_its_value() {
        let svg = to_svg(&drawn(), "tp");
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        assert_eq!(svg.matches("h8v8h-8z").count(), 4, "{svg}");
        assert!(svg.contains("<title>4 ranks by tp</title>") && svg.contains("<title>tp 1</title>"), "{svg}");
        assert!(to_svg(&Drawn::default(), "tp").ends_with("</svg>\n"));
    }
}
