//! The only server: it gives the page to a browser, tails run folders for it, and starts and stops runs.
//!
//! All that it knows of runs stands on disk, so it may start late, stop, or be started anew at any time.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use planner::wire::RunSummary;
use tokio::sync::{Semaphore, watch};
use tracing::level_filters::LevelFilter;
use tracing::warn;

use crate::process::host_name;
use crate::report::{Failure, print};

mod address;
mod assets;
mod control;
mod door;
mod follow;
mod guard;
mod index;
mod listen;
mod metrics;
mod problems;
mod server;
mod slurm;
mod socket;

pub use index::standing;

use address::Address;

/// Pages that may be connected at once.
const MAX_PAGES: usize = 64;

/// What `shardplan serve` was told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to listen on; a loopback address stands for those of both families.
    pub bind: IpAddr,
    /// Port; 0 for any that is free.
    pub port: u16,
    /// Folder of run folders.
    pub runs: PathBuf,
    /// Origins of pages from elsewhere that may connect.
    pub allow_origins: Vec<String>,
    /// `shardplan-rank`, when named.
    pub rank_binary: Option<PathBuf>,
    /// A Python that has torch, when named.
    pub torch_python: Option<PathBuf>,
    /// Folder of the page, when it is not the one in this binary.
    pub page: Option<PathBuf>,
    /// The file that says what is still being built or installed, while something is.
    pub preparing: Option<PathBuf>,
    /// Whether there is a page of metrics, which asks for no token.
    pub metrics: bool,
    /// Whether the URL is printed as JSON.
    pub json: bool,
    /// What is told on standard error, and what is too fine for that.
    pub log: LevelFilter,
}

/// What all connections share.
pub struct Hub {
    settings: Settings,
    port: u16,
    host: String,
    token: String,
    assets: assets::Assets,
    runs: watch::Receiver<Arc<Vec<RunSummary>>>,
    /// Of each page that has shown the token, a permit.
    pages: Semaphore,
    problems: problems::Problems,
    /// One start at a time: each asks Python where torch is, and makes a folder.
    starting: Semaphore,
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// When the port is taken or the runs folder can't be made.
pub fn serve(settings: Settings) -> anyhow::Result<()> {
    tell_on_stderr(settings.log);
    std::fs::create_dir_all(&settings.runs).map_err(|error| {
        Failure::environment(format!("the runs folder can't be made ({error}): {}", settings.runs.display()))
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve_async(settings))
}

/// From here on, what the hub has to tell is a line on standard error. Nobody listening, or a full disk behind it, is no error.
fn tell_on_stderr(log: LevelFilter) {
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(log)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false)
        .finish();
    // One that is there already is the caller's.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

async fn serve_async(mut settings: Settings) -> anyhow::Result<()> {
    settings.runs = settings.runs.canonicalize().unwrap_or(settings.runs);
    let bound = listen::listen(settings.bind, settings.port).await?;
    let port = bound.port;
    let token = new_token()?;
    if !settings.bind.is_loopback() {
        warn!(
            "listening on {}, so others on the network reach this hub; whoever has the token can run plans here. An ssh \
             tunnel to a loopback hub is safer",
            settings.bind
        );
    }
    let (sender, runs) = watch::channel(Arc::new(Vec::new()));
    index::start(settings.runs.clone(), sender);
    // Before there is a file that must go with the hub.
    let told_to_end = told_to_end();
    let address = Address::new(bound.address, port, &token, &settings.runs)?;
    let json = settings.json;
    let problems = problems::Problems::new(&settings);
    let assets = assets::Assets::load(settings.page.as_deref());
    let hub = Arc::new(Hub {
        settings,
        port,
        host: host_name(),
        token,
        assets,
        runs,
        pages: Semaphore::new(MAX_PAGES),
        problems,
        starting: Semaphore::new(1),
    });
    if hub.assets.is_empty() {
        warn!("there is no page in this binary; `cargo xtask run` builds one and serves it");
    }
    print(&if json { address.json() } else { address.text() })?;
    tokio::select! {
        () = server::serve(bound.listeners, hub) => Ok(()),
        () = told_to_end => Ok(()),
    }
}

/// 256 random bits. They travel in the URL's fragment, which browsers keep to themselves.
fn new_token() -> anyhow::Result<String> {
    let mut random = [0u8; 32];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::environment(format!("the system gives no random bytes: {error}")))?;
    Ok(hex::encode(random))
}

/// Handles SIGINT and SIGTERM from now on; what it gives is ready when one has come.
fn told_to_end() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let handlers = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = handlers else {
            // Without handlers the signals end the process at once.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
