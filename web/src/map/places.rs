//! Where the ranks of a plan stand, as planner says, in columns that a map can be coloured by.

use planner::Plan;
use planner::layout::{coordinates, place};
use planner::wire::RankRole;

/// One way to colour the map: a number for each rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Id: `tp`.
    pub id: &'static str,
    /// Name in a choice: `tensor`.
    pub name: &'static str,
    /// Of each rank.
    pub values: Vec<u32>,
    /// One more than the largest value.
    pub count: u64,
}

/// All columns of a plan, for its first `ranks` ranks.
pub fn columns(plan: &Plan, ranks: u64) -> Vec<Column> {
    let mut columns = match plan.runtime.facts().uses_device_mesh {
        true => mesh_columns(plan, ranks),
        false => grid_columns(plan, ranks),
    };
    if let Some(nonuniform) = &plan.nonuniform {
        columns.extend(table(ranks, [("role", "role around failed GPUs")], |rank| {
            let role = nonuniform.shrunk.role(&coordinates(&plan.layout, rank));
            [ROLES.iter().position(|&known| known == role).unwrap_or(0) as u64]
        }));
    }
    columns.extend(table(ranks, [("node", "node"), ("nvlink", "NVLink domain")], |rank| {
        let at = place(&plan.cluster, rank);
        [at.node, at.nvlink_domain]
    }));
    columns
}

/// Nodes that an NVLink domain joins.
pub fn nodes_of_domain(plan: &Plan) -> u64 {
    let domain = |node: u64| place(&plan.cluster, node * plan.cluster.gpus_per_node).nvlink_domain;
    let first = domain(0);
    (1..plan.cluster.nodes).take_while(|&node| domain(node) == first).count() as u64 + 1
}

fn grid_columns(plan: &Plan, ranks: u64) -> Vec<Column> {
    const NAMES: [(&str, &str); 7] = [
        ("pp", "pipeline stage"),
        ("tp", "tensor"),
        ("dp", "data"),
        ("cp", "context"),
        ("ep", "expert"),
        ("etp", "expert tensor"),
        ("edp", "data of experts"),
    ];
    table(ranks, NAMES, |rank| {
        let at = coordinates(&plan.layout, rank);
        [at.pp, at.tp, at.dp, at.cp, at.ep, at.etp, at.edp]
    })
}

fn mesh_columns(plan: &Plan, ranks: u64) -> Vec<Column> {
    const NAMES: [(&str, &str); 7] = [
        ("pp", "pipeline stage"),
        ("dp_replicate", "replica"),
        ("dp_shard", "shard"),
        ("cp", "context"),
        ("tp", "tensor"),
        ("ep_shard", "shard of experts"),
        ("ep", "expert"),
    ];
    let mesh = plan.mesh();
    table(ranks, NAMES, |rank| {
        let at = mesh.place(rank);
        [at.pp, at.dp_replicate, at.dp_shard, at.cp, at.tp, at.ep_shard, at.ep]
    })
}

fn table<const N: usize>(
    ranks: u64,
    names: [(&'static str, &'static str); N],
    read: impl Fn(u64) -> [u64; N],
) -> Vec<Column> {
    let mut columns: Vec<Column> = names
        .into_iter()
        .map(|(id, name)| Column { id, name, values: Vec::with_capacity(ranks as usize), count: 1 })
        .collect();
    for rank in 0..ranks {
        for (column, value) in columns.iter_mut().zip(read(rank)) {
            // Coordinates are below the number of ranks, which is below 2^20.
            column.values.push(value as u32);
            column.count = column.count.max(value + 1);
        }
    }
    columns
}

/// Names of the values of column `role`.
const ROLES: [RankRole; 4] = [RankRole::Inactive, RankRole::Reduced, RankRole::Core, RankRole::Extra];

/// Where one rank stands, as text: what varies in this plan.
pub fn sentence(columns: &[Column], rank: u64) -> String {
    let mut parts = vec![format!("Rank {rank}")];
    for column in columns.iter().filter(|column| column.count > 1 || column.id == "node") {
        if column.id == "role" {
            let role = column.values.get(rank as usize).and_then(|&value| ROLES.get(value as usize));
            parts.extend(role.map(|role| role.name().to_owned()));
        } else if let Some(value) = column.values.get(rank as usize) {
            let name = if matches!(column.id, "node" | "nvlink") { column.name } else { column.id };
            parts.push(format!("{name} {value}"));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_say_what_planner_says() {
        let columns =
            table(4, [("tp", "tensor"), ("node", "node"), ("ep", "expert")], |rank| [rank % 2, rank / 2, 0]);
        assert_eq!(columns[0].values, [0, 1, 0, 1]);
        assert_eq!((columns[0].count, columns[2].count), (2, 1));
        assert_eq!(sentence(&columns, 3), "Rank 3, tp 1, node 1");
    }
}
