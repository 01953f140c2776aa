//! The only server: it gives the page to a browser, tails run folders for it, and starts and stops runs.
//!
//! All that it knows of runs stands on disk, so it may start late, stop, or be started anew at any time.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use planner::wire::RunSummary;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::cli::{Failure, print, say};
use crate::run::process::host_name;

mod assets;
mod control;
mod follow;
mod guard;
mod index;
mod metrics;
mod problems;
mod server;
mod socket;
mod state;

pub use control::is_job_id;

/// What `shardplan serve` was told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to listen on.
    pub bind: IpAddr,
    /// Port; 0 for any.
    pub port: u16,
    /// Folder of run folders.
    pub runs: PathBuf,
    /// Origins of pages from elsewhere that may connect.
    pub allow_origins: Vec<String>,
    /// `shardplan-rank`, when named.
    pub rank_binary: Option<PathBuf>,
    /// A Python that has torch, when named.
    pub torch_python: Option<PathBuf>,
    /// Whether the URL is printed as JSON.
    pub json: bool,
}

/// What all connections share.
pub struct Hub {
    settings: Settings,
    port: u16,
    host: String,
    token: String,
    assets: assets::Assets,
    runs: watch::Receiver<Arc<Vec<RunSummary>>>,
    connections: AtomicUsize,
    problems: problems::Problems,
    /// One start at a time: each asks Python where torch is, and makes a folder.
    starting: Semaphore,
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// When the port is taken or the runs folder can't be made.
pub fn serve(settings: Settings) -> anyhow::Result<()> {
    std::fs::create_dir_all(&settings.runs).map_err(|error| {
        Failure::environment(format!("the runs folder can't be made ({error}): {}", settings.runs.display()))
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve_async(settings))
}

async fn serve_async(mut settings: Settings) -> anyhow::Result<()> {
    settings.runs = settings.runs.canonicalize().unwrap_or(settings.runs);
    let listener = listen(settings.bind, settings.port).await?;
    let port = listener.local_addr()?.port();
    let token = new_token()?;
    if !settings.bind.is_loopback() {
        say(&format!(
            "warning: listening on {}, so others on the network reach this hub; whoever has the token can run plans \
             here. An ssh tunnel to a loopback hub is safer",
            settings.bind
        ));
    }
    let (sender, runs) = watch::channel(Arc::new(Vec::new()));
    index::start(settings.runs.clone(), sender);
    let url = url(settings.bind, port, &token);
    let json = settings.json;
    let problems = problems::Problems::new(settings.rank_binary.clone(), settings.torch_python.clone());
    let hub = Arc::new(Hub {
        settings,
        port,
        host: host_name(),
        token,
        assets: assets::Assets::load(),
        runs,
        connections: AtomicUsize::new(0),
        problems,
        starting: Semaphore::new(1),
    });
    if hub.assets.is_empty() {
        say("note: no page is built into this binary; `cargo xtask run` builds it");
    }
    if json {
        print(&(serde_json::json!({"url": url, "port": port}).to_string() + "\n"))?;
    } else {
        print(&(url + "\n"))?;
    }
    tokio::select! {
        served = server::serve(listener, hub) => served.map_err(Into::into),
        () = told_to_end() => Ok(()),
    }
}

async fn listen(bind: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(SocketAddr::new(bind, port)).await.map_err(|error| {
        Failure::environment(match error.kind() {
            std::io::ErrorKind::AddrInUse => format!(
                "port {port} of {bind} is already in use, perhaps by another `shardplan serve`; end that one, or give \
                 --port another number (0 takes any that is free)"
            ),
            std::io::ErrorKind::PermissionDenied => {
                format!("port {port} of {bind} is for the system only; give --port a number above 1023, or 0")
            }
            _ => format!("port {port} of {bind} can't be listened on: {error}"),
        })
    })
}

/// 256 random bits. They travel in the URL's fragment, which browsers keep to themselves.
fn new_token() -> anyhow::Result<String> {
    let mut random = [0u8; 32];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::environment(format!("the system gives no random bytes: {error}")))?;
    Ok(hex::encode(random))
}

fn url(bind: IpAddr, port: u16, token: &str) -> String {
    let host = if bind.is_unspecified() { host_name() } else { bind.to_string() };
    let host = if bind.is_ipv6() && !bind.is_unspecified() { format!("[{host}]") } else { host };
    format!("http://{host}:{port}/#token={token}")
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers the signals end the process at once, which is as good.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
