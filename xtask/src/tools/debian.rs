//! Programs that only the system's packages bring: a C++ compiler, Chromium, Slurm.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::console::timed;
use crate::lock::Lock;
use crate::place::Place;
use crate::process;

/// A Debian package and the program, or the file by its whole path, that shows that it (or an equal) is there.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    name: &'static str,
    program: &'static str,
}

impl Package {
    /// The C++ compiler that torch-sys and our own shim need.
    pub const COMPILER: Package = Package { name: "g++", program: "c++" };
    /// Python's virtual environments. Its program is asked for by import, before.
    pub const VENV: Package = Package { name: "python3-venv", program: "" };
    /// The browser of the browser tests.
    pub const CHROMIUM: Package = Package { name: "chromium", program: "chromium" };
    /// Its remote control.
    pub const CHROMEDRIVER: Package = Package { name: "chromium-driver", program: "chromedriver" };
    /// The controller, daemon and commands of the Slurm tests.
    pub const SLURM: Package = Package { name: "slurm-wlm", program: "slurmctld" };
    /// Reads the launch scripts that planner writes.
    pub const SHELLCHECK: Package = Package { name: "shellcheck", program: "shellcheck" };
    /// What Slurm's parts know one another by.
    pub const MUNGE: Package = Package { name: "munge", program: "munged" };
    /// The headers that the tests' plugin for Slurm is compiled against.
    pub const SLURM_HEADERS: Package =
        Package { name: "libslurm-dev", program: "/usr/include/slurm/spank.h" };
    /// What `srun --mpi=pmix` opens.
    pub const PMIX: Package = Package {
        name: "libpmix2",
        program: if cfg!(target_arch = "aarch64") {
            "/usr/lib/aarch64-linux-gnu/libpmix.so.2"
        } else {
            "/usr/lib/x86_64-linux-gnu/libpmix.so.2"
        },
    };
    /// `ip`, with which the Slurm tests make networks.
    pub const IPROUTE: Package = Package { name: "iproute2", program: "ip" };

    fn is_there(self) -> bool {
        if self.program.starts_with('/') {
            std::path::Path::new(self.program).is_file()
        } else {
            !self.program.is_empty() && process::is_installed(self.program)
        }
    }
}

/// Makes sure of packages.
pub fn packages(place: &Place, wanted: &[Package]) -> Result<()> {
    let absent = || -> Vec<&'static str> {
        wanted.iter().filter(|package| !package.is_there()).map(|package| package.name).collect()
    };
    if absent().is_empty() {
        return Ok(());
    }
    let _lock = Lock::acquire(&place.lock_file("packages"))?;
    let names = absent();
    if names.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install {}", names.join(" "));
    if !process::is_installed("apt-get") {
        bail!(
            "this machine lacks {} and has no apt-get: install what they contain by its own means",
            names.join(", ")
        );
    }
    let Some(prefix) = root_prefix() else {
        bail!(
            "this machine lacks {}, and installing them needs root: run `sudo {by_hand}`",
            names.join(", ")
        );
    };
    timed(format_args!("installing Debian packages: {}", names.join(", ")), || {
        apt(prefix, &["update"])?;
        let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
        arguments.extend(&names);
        apt(prefix, &arguments)
    })
    .with_context(|| format!("try it by hand: {by_hand}"))
}

/// What goes before a command to run it as root: nothing, sudo, or there is no way.
fn root_prefix() -> Option<&'static [&'static str]> {
    let user = process::read(Command::new("id").arg("-u")).unwrap_or_default();
    if user == "0" {
        Some(&[])
    } else if process::succeeds(Command::new("sudo").args(["--non-interactive", "true"])) {
        Some(&["sudo", "--non-interactive"])
    } else {
        None
    }
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Result<()> {
    // Through `env`, because sudo drops variables that are set for it.
    let line = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
    let mut words = prefix.iter().chain(&line).chain(arguments);
    let program = words.next().context("an empty command line")?;
    process::run(Command::new(program).args(words))
}
