//! GPUs by the names that people and price lists give them: with a maker, a board, a capacity, a number before them.

use super::{Gpu, gpu, gpus};

/// What a name means.
#[derive(Debug, Clone, PartialEq)]
pub enum Meant {
    /// A GPU of the catalogue.
    Gpu {
        /// Its id.
        id: &'static str,
        /// How many of them, where the name says that.
        count: Option<u64>,
        /// Nameplate memory of one in GiB, where it is not the record's.
        memory_gib: Option<f64>,
    },
    /// None: what to write, as the end of a sentence.
    Says(&'static str),
}

/// Names of GPUs that are not in the catalogue, or that are several.
const OTHERS: &[(&str, &str)] = &[
    ("h200nvl", "it is not in the catalogue; the nearest is h200, with cluster.nvlink_domain 4 or 2"),
    (
        "gh200",
        "it is not in the catalogue; write h100-sxm with cluster.memory_gib 96, or h200, and cluster.nvlink_domain 1",
    ),
    ("v100", "it has no bf16 and is not in the catalogue, which starts with a100-80gb-sxm and a100-40gb-sxm"),
    ("p100", "it has no bf16 and is not in the catalogue, which starts with a100-80gb-sxm and a100-40gb-sxm"),
    ("t4", "it has no bf16 and is not in the catalogue, which starts with a100-80gb-sxm and a100-40gb-sxm"),
    ("l40", "it is not in the catalogue; the nearest is l40s"),
    ("l4", "it is not in the catalogue; the nearest is l40s with cluster.memory_gib 24"),
    ("a10", "it is not in the catalogue; the nearest is rtx-4090, of the same capacity"),
    ("a10g", "it is not in the catalogue; the nearest is rtx-4090, of the same capacity"),
    ("a40", "it is not in the catalogue; the nearest is l40s, of the same capacity"),
    ("rtxa6000", "it is not in the catalogue; the nearest is l40s, of the same capacity"),
    ("a6000", "it is not in the catalogue; the nearest is l40s, of the same capacity"),
    ("mi300a", "it is not in the catalogue; the nearest is mi300x with cluster.memory_gib 128"),
    ("mi250x", "it is not in the catalogue, which has mi300x, mi325x and mi355x"),
    ("tpu", "TPUs are not planned; write a GPU of the catalogue"),
    ("tpuv5p", "TPUs are not planned; write a GPU of the catalogue"),
    ("tpuv5e", "TPUs are not planned; write a GPU of the catalogue"),
    ("trainium", "Trainium is not planned; write a GPU of the catalogue"),
    ("trn2", "Trainium is not planned; write a GPU of the catalogue"),
    ("gaudi3", "Gaudi is not planned; write a GPU of the catalogue"),
];

/// Words of makers and systems, which say nothing more.
const MAKERS: &[&str] =
    &["nvidia", "amd", "instinct", "geforce", "tesla", "dgx", "hgx", "tensorcore", "gpus", "gpu"];

/// What a name means that is no id; none when nobody is known to write it.
pub fn meant_gpu(name: &str) -> Option<Meant> {
    if gpu(name).is_some() || name.len() > 80 {
        return None;
    }
    let (count, name) = counted(&name.trim().to_ascii_lowercase());
    let mut bare = folded(&name);
    for maker in MAKERS {
        bare = bare.replace(maker, "");
    }
    if let Some(id) = known(&bare) {
        return Some(Meant::Gpu { id, count, memory_gib: None });
    }
    if let Some(sentence) = other(&bare) {
        return Some(Meant::Says(sentence));
    }
    let (bare, gigabytes) = capacity(&bare)?;
    let Some(id) = known(&bare) else { return other(&bare).map(Meant::Says) };
    let nameplate = |id: &str| gpu(id).and_then(|gpu| gpu.speeds).map(|speeds| speeds.memory_gb);
    if nameplate(id) == Some(gigabytes) {
        return Some(Meant::Gpu { id, count, memory_gib: None });
    }
    // A record of the same kind with that capacity has its bandwidth too.
    let sibling = id.replace("-80gb", &format!("-{gigabytes}gb"));
    let (id, memory_gib) = match gpus().iter().find(|gpu| gpu.id == sibling && gpu.id != id) {
        Some(gpu) => (gpu.id, None),
        None => (id, Some(gigabytes)),
    };
    Some(Meant::Gpu { id, count, memory_gib })
}

/// The id of a name in letters and digits.
fn known(bare: &str) -> Option<&'static str> {
    let is = |gpu: &&Gpu| folded(gpu.id) == bare || gpu.names.contains(&bare);
    gpus().iter().find(is).map(|gpu| gpu.id)
}

/// What is to be said of a GPU that is not there.
fn other(bare: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(other, _)| *other == bare).map(|(_, sentence)| *sentence)
}

fn folded(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// A name without its capacity, and that in GB: where the name ends and the number begins is where a GPU is known.
fn capacity(bare: &str) -> Option<(String, f64)> {
    let unit = bare.rfind("gb")?;
    let (before, after) = (&bare[..unit], &bare[unit + 2..]);
    let digits = before.len() - before.trim_end_matches(|last: char| last.is_ascii_digit()).len();
    [2, 3].into_iter().filter(|taken| *taken <= digits).find_map(|taken| {
        let (rest, number) = before.split_at(before.len() - taken);
        let whole = format!("{rest}{after}");
        let there = known(&whole).is_some() || other(&whole).is_some();
        (there && !number.starts_with('0')).then_some(())?;
        Some((whole, f64::from(number.parse::<u16>().ok()?)))
    })
}

/// The number before or after a name: `8xh100`, `8 x h100`, `h100 x8`, `h100:8`.
fn counted(name: &str) -> (Option<u64>, String) {
    let digits = name.len() - name.trim_start_matches(|first: char| first.is_ascii_digit()).len();
    let after = name[digits..].trim_start();
    if let (Ok(count), Some(rest)) = (name[..digits].parse(), after.strip_prefix(['x', '*'])) {
        return (Some(count), rest.to_owned());
    }
    if let (Ok(count), true) = (name[..digits].parse(), name[digits..].starts_with(' ')) {
        return (Some(count), after.to_owned());
    }
    for sign in [" x", ":", "*"] {
        if let Some((rest, count)) = name.rsplit_once(sign)
            && let Ok(count) = count.trim().parse()
        {
            return (Some(count), rest.to_owned());
        }
    }
    (None, name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(name: &str, id: &str, count: Option<u64>, memory: Option<f64>) {
        let found = meant_gpu(name);
        let Some(Meant::Gpu { id: found, count: counted, memory_gib }) = found else {
            panic!("{name}: {found:?}");
        };
        assert_eq!((found, counted, memory_gib), (id, count, memory), "{name}");
    }

    #[test]
    fn names_of_people() {
        for (name, id) in [
            ("h100", "h100-sxm"),
            ("H100", "h100-sxm"),
            ("H100 SXM", "h100-sxm"),
            ("H100-SXM5-80GB", "h100-sxm"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("H100 PCIe", "h100-pcie"),
            ("h100_nvl", "h100-nvl"),
            ("H100 NVL 94GB", "h100-nvl"),
            ("DGX H100", "h100-sxm"),
            ("a100", "a100-80gb-sxm"),
            ("A100 80GB", "a100-80gb-sxm"),
            ("a100-40gb", "a100-40gb-sxm"),
            ("NVIDIA A100-SXM4-40GB", "a100-40gb-sxm"),
            ("A100-SXM4-80GB", "a100-80gb-sxm"),
            ("a800", "a800-80gb-sxm"),
            ("A800-SXM4-80GB", "a800-80gb-sxm"),
            ("H800", "h800-sxm"),
            ("H200 141GB", "h200"),
            ("H20 96GB", "h20"),
            ("HGX B200", "b200"),
            ("GB200 NVL72", "gb200"),
            ("AMD Instinct MI300X", "mi300x"),
            ("RTX 4090", "rtx-4090"),
            ("GeForce RTX 4090", "rtx-4090"),
            ("L40S", "l40s"),
            ("CPU", "cpu"),
        ] {
            means(name, id, None, None);
        }
    }

    #[test]
    fn numbers_and_capacities() {
        means("8xH100", "h100-sxm", Some(8), None);
        means("8 x H100 SXM", "h100-sxm", Some(8), None);
        means("64 H100", "h100-sxm", Some(64), None);
        means("H100 x8", "h100-sxm", Some(8), None);
        means("gpu:h100:4", "h100-sxm", Some(4), None);
        means("H100 96GB", "h100-sxm", None, Some(96.0));
        means("16xA100-40GB", "a100-40gb-sxm", Some(16), None);
        means("A100 64GB", "a100-80gb-sxm", None, Some(64.0));
        means("A100 PCIe", "a100-80gb-pcie", None, None);
        means("4 x NVIDIA A100-PCIE-40GB", "a100-40gb-pcie", Some(4), None);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let there = OTHERS.iter().find(|(name, _)| known(name).is_some());
        assert_eq!(there, None, "the catalogue has it");
        for name in ["V100", "GH200", "L40", "TPU v5p", "RTX A6000"] {
            assert!(matches!(meant_gpu(name), Some(Meant::Says(_))), "{name}: {:?}", meant_gpu(name));
        }
        for name in [
            "",
            "h101",
            "8x",
            "x8",
            "gb",
            "0gb",
            "h100-sxm",
            "100gb",
            "99999999999999999999xH100",
            "h100 0gb",
        ] {
            assert!(!matches!(meant_gpu(name), Some(Meant::Says(_))), "{name}");
        }
    }
}
