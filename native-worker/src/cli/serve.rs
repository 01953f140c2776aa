//! `shardplan serve`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::hub::{Settings, serve};
use crate::report::{Exit, Failure};
use tracing::level_filters::LevelFilter;

/// Serve the page, and the runs of a folder, to a browser on this machine
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Port, of IPv4 and of IPv6; 0 takes any that is free
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
    /// A page from elsewhere that may connect, such as https://example.org
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    allow_origins: Vec<String>,
    /// Address to listen on; that of loopback stands for both families, anything else lets others on the network reach the hub
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// The rank binary; by default the one beside this program, or on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_RANK", hide_env_values = true)]
    rank_binary: Option<PathBuf>,
    /// A Python that has torch 2.11; by default the one that `cargo xtask` installed, or python3
    #[arg(long, value_name = "PYTHON", env = "SHARDPLAN_TORCH", hide_env_values = true)]
    torch: Option<PathBuf>,
    /// Folder of a built page, served instead of the one in this program
    #[arg(long, value_name = "DIR", env = "SHARDPLAN_PAGE", hide_env_values = true)]
    page: Option<PathBuf>,
    /// Serve no /metrics, which whoever reaches the hub may read without a token
    #[arg(long)]
    no_metrics: bool,
    /// A file that says what is still being built or installed for runs, and goes when it is there: `cargo xtask run` writes it
    #[arg(long, value_name = "FILE", hide = true)]
    preparing: Option<PathBuf>,
    /// What the hub tells on standard error: off, error, warn, info (what pages ask for) or debug (that they come and go)
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    log: LevelFilter,
}

/// A level by its word.
fn level(text: &str) -> Result<LevelFilter, &'static str> {
    match text {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        _ => Err("a level is off, error, warn, info or debug"),
    }
}

impl Serve {
    /// Serves until it is told to end.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        for origin in &self.allow_origins {
            if !is_origin(origin) {
                return Err(Failure::usage(format!(
                    "--allow-origin {origin:?}: give scheme, host and port without a path, such as https://example.org"
                )));
            }
        }
        serve(Settings {
            bind: self.bind,
            port: self.port,
            runs: self.runs,
            allow_origins: self.allow_origins,
            rank_binary: self.rank_binary,
            torch_python: self.torch,
            page: self.page,
            preparing: self.preparing,
            metrics: !self.no_metrics,
            json,
            log: self.log,
        })?;
        Ok(Exit::Yes)
    }
}

fn is_origin(origin: &str) -> bool {
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']))
}
