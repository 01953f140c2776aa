//! A hub under test, and a client of its websocket.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use futures::{SinkExt, StreamExt};
use planner::wire::{self, ToHub, ToPage};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::process::{Guarded, Lines};
use crate::programs;
use crate::wait::SOON;

/// A running `shardplan serve`. Killed when dropped; ranks that it started live on, as they should.
pub struct Hub {
    /// The process.
    pub process: Guarded,
    /// What it prints, kept so that it can go on printing.
    _lines: Lines,
    /// Its URL, token and all.
    pub url: String,
}

impl Hub {
    /// Starts one on a free port over a folder of runs.
    pub fn start(runs: &Path) -> Result<Hub> {
        let mut command = programs::shardplan()?;
        command.args(["serve", "--port", "0", "--runs"]).arg(runs);
        Hub::start_by(&mut command)
    }

    /// The address of the page with a plan in it that leaves nothing open, so that no search chooses.
    pub fn page(&self) -> Result<String> {
        let plan = serde_json::json!({
            "version": 1, "model": {"preset": "llama-3-70b"},
            "cluster": {"gpu": "h100-sxm", "nodes": 8, "gpus_per_node": 8}, "layout": {"tp": 4, "pp": 4},
        });
        let plan =
            planner::parse_plan(&plan.to_string()).map_err(|findings| anyhow::anyhow!("{findings:?}"))?;
        Ok(format!("{}&{}", self.url, planner::link::encode_link(&plan)))
    }

    /// Starts one by a command of the caller's.
    pub fn start_by(command: &mut Command) -> Result<Hub> {
        let (process, lines) = Guarded::with_lines(command)?;
        // No terminal, no token: the address lies in a file.
        let file = lines.find("an address", SOON, |line| {
            let (_, rest) = line.split_once("open the address in ")?;
            rest.split_once(": it has the token").map(|(file, _)| file.to_owned())
        })?;
        let url =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?.trim().to_owned();
        Ok(Hub { process, _lines: lines, url })
    }

    /// `127.0.0.1:PORT`, or as the hub names itself.
    pub fn authority(&self) -> Result<&str> {
        let rest = self.url.strip_prefix("http://").context("the hub's URL is not http")?;
        rest.split('/').next().context("the hub's URL has no host")
    }

    /// The token in the URL's fragment.
    pub fn token(&self) -> Result<&str> {
        let (_, fragment) = self.url.split_once("#token=").context("the hub's URL has no token")?;
        Ok(fragment)
    }

    /// A session, opened with the right token.
    pub async fn connect(&self) -> Result<Session> {
        let mut session = self.connect_raw(None).await?;
        session.send(&ToHub::Hello { token: self.token()?.to_owned(), version: wire::VERSION }).await?;
        match session.next().await? {
            ToPage::Welcome { .. } => Ok(session),
            other => bail!("expected a welcome, got {other:?}"),
        }
    }

    /// A websocket with nothing said yet, from an origin (the hub's own when none is given).
    pub async fn connect_raw(&self, origin: Option<&str>) -> Result<Session> {
        let authority = self.authority()?;
        let mut request = format!("ws://{authority}/ws").into_client_request()?;
        let own = format!("http://{authority}");
        request.headers_mut().insert("origin", origin.unwrap_or(&own).parse()?);
        let (socket, _) =
            tokio_tungstenite::connect_async(request).await.context("the hub refused the websocket")?;
        Ok(Session { socket })
    }
}

/// One websocket to a hub.
pub struct Session {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Session {
    /// Sends a message.
    pub async fn send(&mut self, message: &ToHub) -> Result<()> {
        self.send_text(serde_json::to_string(message)?).await
    }

    /// Sends any text.
    pub async fn send_text(&mut self, text: String) -> Result<()> {
        self.socket.send(Message::text(text)).await.context("the hub takes no more")
    }

    /// The next message.
    pub async fn next(&mut self) -> Result<ToPage> {
        let Some(text) = self.next_text().await? else { bail!("the hub has closed the websocket") };
        serde_json::from_str(&text).with_context(|| format!("the hub said {text}"))
    }

    /// The next text frame; none once the hub has closed.
    pub async fn next_text(&mut self) -> Result<Option<String>> {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let frame = tokio::time::timeout_at(deadline, self.socket.next());
            match frame.await.with_context(|| format!("the hub said nothing for {} s", SOON.as_secs()))? {
                Some(Ok(Message::Text(text))) => return Ok(Some(text.to_string())),
                None | Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Err(
                    tungstenite::Error::ConnectionClosed
                    | tungstenite::Error::Protocol(_)
                    | tungstenite::Error::Io(_),
                )) => {
                    return Ok(None);
                }
                Some(Err(error)) => return Err(error).context("the websocket failed"),
                Some(Ok(_)) => {}
            }
        }
    }

    /// Records of a watched run until `enough` says so, all since the watch began.
    pub async fn records_until(
        &mut self,
        run: &str,
        mut enough: impl FnMut(&[wire::LogRecord], bool) -> bool,
    ) -> Result<Vec<wire::LogRecord>> {
        self.send(&ToHub::Watch { run: run.to_owned() }).await?;
        let mut all = Vec::new();
        loop {
            match self.next().await? {
                ToPage::Records { run: of, records, caught_up, .. } => {
                    ensure!(of == run, "records of {of} instead of {run}");
                    all.extend(records);
                    if enough(&all, caught_up) {
                        return Ok(all);
                    }
                }
                ToPage::Error { message } => bail!("the hub said: {message}"),
                ToPage::Runs { .. }
                | ToPage::Started { .. }
                | ToPage::Problems { .. }
                | ToPage::Welcome { .. } => {}
            }
        }
    }
}
