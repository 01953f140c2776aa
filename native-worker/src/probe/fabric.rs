//! Network adapters that bypass the kernel: InfiniBand and RoCE.

use std::path::Path;

/// A port of an RDMA adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Device and port, such as `mlx5_0:1`.
    pub name: String,
    /// Such as `4: ACTIVE`.
    pub state: String,
    /// Such as `400 Gb/sec (4X NDR)`.
    pub rate: String,
    /// `InfiniBand`, or `Ethernet` for RoCE.
    pub link: String,
}

impl Port {
    /// Whether it carries traffic.
    pub fn is_active(&self) -> bool {
        self.state.ends_with("ACTIVE")
    }
}

/// The most adapters and ports of one that are looked at.
const MAX: usize = 64;

/// All ports, from `/sys/class/infiniband` (`folder`), by name.
pub fn ports(folder: &Path) -> Vec<Port> {
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    };
    let mut found = Vec::new();
    for device in names(folder) {
        let ports = folder.join(&device).join("ports");
        for number in names(&ports) {
            let read = |name: &str| {
                let text = std::fs::read_to_string(ports.join(&number).join(name)).unwrap_or_default();
                text.trim().to_owned()
            };
            found.push(Port {
                name: format!("{device}:{number}"),
                state: read("state"),
                rate: read("rate"),
                link: read("link_layer"),
            });
        }
    }
    found
}
